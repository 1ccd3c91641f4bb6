#include "sidereal/cli/hot_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sidereal/metrics/lane_metrics.h"

namespace sidereal::cli {
namespace {

using service::TaskReport;
using ::testing::HasSubstr;
using ::testing::Not;

/// A task whose lanes were busy for so many milliseconds.
TaskReport task(int index, const std::vector<int64_t>& busy_ms, std::string job = "ps") {
  TaskReport out;
  out.task = fmt::format("/job:{}/replica:0/task:{}", job, index);
  out.incarnation = 1;
  for (size_t i = 0; i < busy_ms.size(); ++i) {
    out.figures.add(metrics::lane_busy(static_cast<int>(i)), busy_ms[i] * 1'000'000);
  }
  return out;
}

TopView busy() {
  return {.now = {task(0, {1100, 1200}), task(1, {1100, 1600}), task(0, {1900}, "worker")},
          .before = {task(0, {1000, 1000}), task(1, {1000, 1000}), task(0, {1000}, "worker")},
          .seconds = 1};
}

TEST(HotLanes, are_compared_with_those_of_their_job) {
  const std::vector<LaneLoad> loads = lane_loads(busy());
  ASSERT_EQ(loads.size(), 5U);
  EXPECT_DOUBLE_EQ(loads[3].busy, 0.6);
  EXPECT_DOUBLE_EQ(loads[3].mean, 0.25);
  EXPECT_TRUE(loads[3].is_hottest);
  EXPECT_FALSE(loads[4].is_hottest) << "it is the only one of its job";
  EXPECT_EQ(hottest_lanes(busy()),
            "hottest lane of ps: lane 1 of /job:ps/task:1, busy 60% of the time, 2.4 times the "
            "mean of 4 lanes\n");
  EXPECT_THAT(format_top(busy()), HasSubstr("hottest lane of ps: lane 1 of /job:ps/task:1"));
  EXPECT_EQ(format_lanes(busy()),
            "task                lane  busy  of mean\n"
            "------------------  ----  ----  -------  -------\n"
            "/job:ps/task:0         0   10%     0.40\n"
            "/job:ps/task:0         1   20%     0.80\n"
            "/job:ps/task:1         0   10%     0.40\n"
            "/job:ps/task:1         1   60%     2.40  hottest\n"
            "/job:worker/task:0     0   90%     1.00\n");
  const auto json = nlohmann::json::parse(top_json(busy()));
  EXPECT_EQ(json["tasks"][1]["lanes"][1]["lane"], 1);
  EXPECT_DOUBLE_EQ(json["tasks"][1]["lanes"][1]["busy"], 0.6);
  EXPECT_DOUBLE_EQ(json["tasks"][1]["lanes"][1]["of_mean"], 2.4);
  EXPECT_EQ(json["tasks"][1]["lanes"][1]["hottest"], true);
}

TEST(HotLanes, are_not_known_of_what_a_peer_cannot_have) {
  TopView view = {.now = {task(0, {})}, .before = {task(0, {})}, .seconds = 1};
  for (const char* lane : {"", "-1", "x", "1x", "99999999999"}) {
    view.now[0].figures.add(
        metrics::counter(metrics::kLaneBusyName, metrics::Unit::kSeconds, "", {{"lane", lane}}), 1);
  }
  EXPECT_TRUE(lane_loads(view).empty());
  EXPECT_EQ(hottest_lanes(view), "");
  view.before = {};
  EXPECT_EQ(nlohmann::json::parse(top_json(view))["tasks"][0].contains("lanes"), false);
}

TopView hot() {
  const auto part = [](const char* table, std::vector<resources::RowCount> rows) {
    return task::HotVariable{.group = "g",
                             .name = table,
                             .lane = 2,
                             .pulls = {.total = 1000, .rows = std::move(rows)},
                             .pushes = {}};
  };
  TopView out{.now = {task(0, {}), task(1, {})}, .before = {}, .seconds = 1};
  out.now[0].hot = {part("w/part_0", {{.row = 3, .count = 500}, {.row = 4, .count = 9}})};
  out.now[1].hot = {part("w/part_1", {{.row = 8, .count = 120, .error = 40}})};
  return out;
}

TEST(HotRows, are_shown_with_the_tasks_and_by_themselves) {
  const std::string top =
      "table  row  of pulls  of pushes              on  lane\n"
      "-----  ---  --------  ---------  --------------  ----\n"
      "w        6     25.0%          -  /job:ps/task:0     2\n"
      "w       17  4.0-6.0%          -  /job:ps/task:1     2\n";
  EXPECT_EQ(hottest_rows(hot()), top);
  EXPECT_THAT(format_top(hot()), HasSubstr(top));
  EXPECT_EQ(format_rows(hot()), top + "w        8      0.4%          -  /job:ps/task:0     2\n");
  const auto json = nlohmann::json::parse(top_json(hot()))["hot_rows"][0];
  EXPECT_EQ(json["table"], "w");
  EXPECT_EQ(json["group"], "g");
  EXPECT_EQ(json["pulled_rows"], 2000);
  EXPECT_EQ(json["rows"][1]["row"], 17);
  EXPECT_EQ(json["rows"][1]["part"], 1);
  EXPECT_EQ(json["rows"][1]["row_of_part"], 8);
  EXPECT_DOUBLE_EQ(json["rows"][1]["pulls"]["share"], 0.04);
  EXPECT_DOUBLE_EQ(json["rows"][1]["pulls"]["error"], 0.02);
  EXPECT_TRUE(json["rows"][1]["pushes"].is_null());
}

TEST(HotRows, are_named_by_their_part_while_another_one_is_not_known) {
  TopView view = hot();
  view.now[0].hot.clear();
  EXPECT_THAT(format_rows(view), HasSubstr("8 of part 1"));
  view.now[1].hot.clear();
  EXPECT_EQ(format_rows(view), "no row of a table stands out\n");
  EXPECT_EQ(hottest_rows(view), "");
}

TEST(HotRows, of_names_that_peers_say_are_one_line) {
  TopView view = hot();
  view.now[0].hot[0].name = "a\nb";
  EXPECT_THAT(format_rows(view), Not(HasSubstr("a\nb")));
}

}  // namespace
}  // namespace sidereal::cli
