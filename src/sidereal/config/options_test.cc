#include "sidereal/config/options.h"

#include <gtest/gtest.h>

#include "sidereal/base/status.h"

namespace sidereal::config {
namespace {

TEST(Options, DefaultsAreValid) { EXPECT_TRUE(validate(Options()).ok()); }

TEST(Options, AnOutOfRangeValueNamesTheOptionItsUnitAndItsRange) {
  Options options;
  options.keepalive_timeout_ms = 5;
  const Status status = validate(options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(base::message_of(status), "keepalive_timeout_ms is 5; it must be 100 to 3600000 ms");
}

TEST(Options, AreSetFromText) {
  Options options;
  EXPECT_TRUE(set_option(options, option_fields(), "spin_us", " -1 ").ok());
  EXPECT_EQ(options.spin_us, -1);
}

TEST(Options, BadTextAndUnknownNamesAreRefusedAndChangeNothing) {
  Options options;
  EXPECT_FALSE(set_option(options, option_fields(), "spin_us", "much").ok());
  EXPECT_FALSE(set_option(options, option_fields(), "spin_us", "-3").ok());
  EXPECT_EQ(options.spin_us, Options().spin_us);
  const Status status = set_option(options, option_fields(), "spinn", "1");
  EXPECT_NE(base::message_of(status).find("spin_us"), std::string::npos);
}

TEST(Options, RenderOneLineEach) {
  const std::string text = render_options(Options(), option_fields());
  EXPECT_NE(text.find("connect_deadline_ms = 10000  (1 to 3600000 ms; default 10000) time to"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace sidereal::config
