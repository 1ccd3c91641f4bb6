#include "sidereal/cli/job_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/cli/commands.h"

namespace sidereal::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(JobCommand, TakesAParameterServerByItsNames) {
  for (const char* const text : {"ps:12", "/job:ps/task:12", "/job:ps/replica:0/task:12"}) {
    const Result<int> index = parse_ps(text);
    ASSERT_TRUE(index.ok()) << index.status();
    EXPECT_EQ(*index, 12);
  }
  for (const char* const text : {"", "1", "ps", "ps:", "ps:x", "ps:-1", "ps:1 ", "worker:0",
                                 "/job:worker/task:0", "ps:99999999999999999999", "ps:65536"}) {
    EXPECT_EQ(parse_ps(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(JobCommand, IsRefusedBeforeAnythingIsAsked) {
  const auto error = [](const std::vector<std::string>& line) {
    const Parsed parsed = parse(line);
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_FALSE(parsed.action && parsed.exit_code == 0);
    return parsed.error;
  };
  EXPECT_THAT(error({"scale"}), HasSubstr("--ps"));
  for (const char* const number : {"0", "-1", "two", "65537"}) {
    EXPECT_THAT(error({"scale", "--ps", number}), HasSubstr("--ps")) << number;
  }
  EXPECT_THAT(error({"drain"}), HasSubstr("ps"));
  for (const char* const task : {"worker:0", "ps"}) {
    EXPECT_THAT(error({"drain", task}), AllOf(HasSubstr("is no parameter server: ps:0"),
                                              HasSubstr("sidereal drain --help")));
  }
  EXPECT_THAT(error({"rebalance", "--ps", "2"}), HasSubstr("no option '--ps'"));
  for (const std::vector<std::string>& line : std::vector<std::vector<std::string>>{
           {"scale", "--ps", "3"}, {"drain", "ps:1", "--job", "ads"}, {"rebalance"}}) {
    EXPECT_TRUE(parse(line).action) << parse(line).error;
  }
}

TEST(JobCommand, SaysHowMuchWasCopied) {
  EXPECT_EQ(format_copied({.bytes = 512 << 20, .bytes_all = 1 << 30}),
            "copied 512 MiB of 1.0 GiB   50%");
  EXPECT_THAT(format_copied({.bytes = 0, .bytes_all = 0}), HasSubstr("  0%"));
  // What is to be copied is known about.
  EXPECT_THAT(format_copied({.bytes = 20, .bytes_all = 10}), HasSubstr("100%"));
}

}  // namespace
}  // namespace sidereal::cli
