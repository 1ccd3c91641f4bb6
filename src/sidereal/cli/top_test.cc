#include "sidereal/cli/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sidereal/base/strings.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/terminal.h"

namespace sidereal::cli {
namespace {

using runtime::TaskReport;
using ::testing::HasSubstr;
using ::testing::Not;

TaskReport report(int64_t steps) {
  TaskReport r;
  r.task = "/job:ps/replica:0/task:0";
  r.address = "ps0:2222";
  r.incarnation = 1;
  r.uptime_s = 125;
  r.memory_bytes = 3 << 20;
  r.steps = steps;
  r.bytes_sent = steps * 1024;
  r.bytes_received = steps * 2048;
  r.busy_s = static_cast<double>(steps) / 1000;
  r.steps_failed = 4;
  r.steps_running = 2;
  r.steps_blocked = 1;
  r.sessions = 5;
  r.programs = 6;
  r.resources = 7;
  r.resource_bytes = 2048;
  r.threads = 8;
  r.refused = {{"certificate", 2}, {"garbage", 1}};
  return r;
}

TaskReport unreached() {
  TaskReport r;
  r.task = "/job:worker/replica:0/task:11";
  r.address = "w11:2222";
  r.status = base::unavailable("/job:worker/replica:0/task:11 at w11:2222: refused\nby it");
  return r;
}

TEST(Top, shows_figures_and_rates_of_tasks) {
  const TopView view = {
      .now = {report(300), unreached()}, .before = {report(100), unreached()}, .seconds = 2};
  EXPECT_EQ(format_top(view),
            "2 tasks, 1 up\n"
            "\n"
            "task                 state  uptime  steps/s  failed  running  blocked     in/s"
            "    out/s  cpu   memory  sessions  programs  resources     kept  threads  refused\n"
            "-------------------  -----  ------  -------  ------  -------  -------  -------"
            "  -------  ---  -------  --------  --------  ---------  -------  -------  -------\n"
            "/job:ps/task:0          up   2m05s    100.0       4        2        1  200 KiB"
            "  100 KiB  10%  3.0 MiB         5         6          7  2.0 KiB        8        3\n"
            "/job:worker/task:11   down\n"
            "\n"
            "/job:worker/replica:0/task:11 at w11:2222: refused by it\n");
}

TEST(Top, has_no_rates_for_a_task_that_was_restarted) {
  TaskReport restarted = report(500);
  restarted.incarnation = 2;
  const std::string table = format_top({.now = {restarted}, .before = {report(100)}, .seconds = 1});
  EXPECT_THAT(table, HasSubstr("up   2m05s        -"));
  const auto json =
      nlohmann::json::parse(top_json({.now = {restarted}, .before = {report(1)}, .seconds = 1}));
  EXPECT_TRUE(json["tasks"][0]["steps_per_s"].is_null());
}

TEST(Top, is_one_line_of_json_a_table) {
  TaskReport strange = unreached();
  strange.status = base::unavailable("\xff");
  const std::string line =
      top_json({.now = {report(300), strange}, .before = {report(100), strange}, .seconds = 2});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["tasks"][0]["steps_per_s"], 100.0);
  EXPECT_EQ(json["tasks"][0]["refused"]["garbage"], 1);
  EXPECT_EQ(json["tasks"][0]["state"], "up");
  EXPECT_EQ(json["tasks"][1]["state"], "down");
  EXPECT_FALSE(json["tasks"][1].contains("steps"));
}

TEST(Top, is_cut_to_the_screen) {
  EXPECT_EQ(fit_screen("abcdef\n\ngh\nij\n", 4, 3), "abcd\x1b[K\r\n\x1b[K\r\ngh\x1b[K");
  EXPECT_EQ(fit_screen("", 4, 3), "");
}

TEST(Top, says_which_cluster_it_needs) {
  const auto message = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"top", "--once"});
    const Parsed parsed = parse(arguments);
    return parsed.action ? base::message_of(parsed.action()) : parsed.error;
  };
  EXPECT_THAT(message({"--target", "localhost:1"}), HasSubstr("grpc://"));
  EXPECT_THAT(message({"--cluster", "no/such/file"}), HasSubstr("no/such/file"));
  EXPECT_THAT(message({"--cluster", "{\"a\": [\"x\"]}"}), HasSubstr("/job:a/replica:0/task:0"));
  EXPECT_THAT(message({"--cluster", "{}", "--target", "grpc://x:1"}), HasSubstr("one of them"));
  EXPECT_THAT(message({"--interval", "0"}), HasSubstr("--interval"));
}

}  // namespace
}  // namespace sidereal::cli
