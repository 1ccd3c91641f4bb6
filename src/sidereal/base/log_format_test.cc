#include "sidereal/base/log_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "sidereal/base/log.h"

namespace sidereal::base {
namespace {

TEST(LogFormat, TextBecomesATextOfJson) {
  EXPECT_EQ(json_text("plain"), R"("plain")");
  EXPECT_EQ(json_text("a \"b\" \\ \n"), R"("a \"b\" \\ \u000a")");
  EXPECT_EQ(json_text("\xff"), R"("\\xff")");
}

TEST(LogFormat, ALineHasDateZoneLevelAndTask) {
  ::testing::internal::CaptureStderr();
  set_log_name("/job:ps/task:0");
  log_warning("up {}", 1);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::MatchesRegex("[0-9-]+ [0-9:.]+[+-][0-9:]+ W /job:ps/task:0 up 1\n"));
}

TEST(LogFormat, JsonHasTheSameInAnObject) {
  ::testing::internal::CaptureStderr();
  set_log_format(LogFormat::kJson);
  set_log_name("/job:ps/task:0");
  log_info("a \"b\"");
  set_log_format(LogFormat::kText);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(R"("level":"info","task":"/job:ps/task:0","message":"a \"b\""})"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find(R"({"time":"20)"), 0) << text;
}

/// Logs when what lasts as long as the process is destroyed.
struct LogsLate {
  ~LogsLate() { log_info("late"); }
};

TEST(LogDeathTest, ThreadsMayLogUntilTheProcessIsGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    // Made before what logs, and so gone after what would go with the process.
    static const LogsLate late;
    log_info("first");
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "late");
}

}  // namespace
}  // namespace sidereal::base
