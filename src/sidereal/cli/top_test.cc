#include "sidereal/cli/top.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sidereal/base/strings.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/terminal.h"
#include "sidereal/metrics/staleness.h"

namespace sidereal::cli {
namespace {

using metrics::Unit;
using service::TaskReport;
using ::testing::HasSubstr;
using ::testing::Not;

TaskReport report(int64_t steps) {
  TaskReport r;
  r.task = "/job:ps/replica:0/task:0";
  r.address = "ps0:2222";
  r.incarnation = 1;
  const auto count = [&](const char* name, Unit unit, int64_t value,
                         std::vector<metrics::Label> labels = {}) {
    r.figures.add(metrics::counter(name, unit, "", std::move(labels)), value);
  };
  const auto gauge = [&](const char* name, Unit unit, int64_t value) {
    r.figures.add(metrics::gauge(name, unit, ""), value);
  };
  gauge("sidereal_task_uptime_seconds", Unit::kSeconds, 125'000'000'000);
  gauge("sidereal_task_memory_bytes", Unit::kBytes, 3 << 20);
  count("sidereal_task_steps_total", Unit::kCount, steps);
  count("sidereal_task_sent_bytes_total", Unit::kBytes, steps * 1024);
  count("sidereal_task_received_bytes_total", Unit::kBytes, steps * 2048);
  count("sidereal_task_busy_seconds_total", Unit::kSeconds, steps * 1'000'000);
  count("sidereal_task_steps_failed_total", Unit::kCount, 4);
  gauge("sidereal_task_steps_running", Unit::kCount, 2);
  gauge("sidereal_task_steps_blocked", Unit::kCount, 1);
  gauge("sidereal_task_sessions", Unit::kCount, 5);
  gauge("sidereal_task_programs", Unit::kCount, 6);
  gauge("sidereal_task_resources", Unit::kCount, 7);
  gauge("sidereal_task_resource_bytes", Unit::kBytes, 2048);
  gauge("sidereal_task_threads", Unit::kCount, 8);
  count("sidereal_refused_total", Unit::kCount, 2, {{"why", "certificate"}});
  count("sidereal_refused_total", Unit::kCount, 1, {{"why", "garbage"}});
  metrics::HistogramSnapshot calls{.count = 2, .sum = 3'000'000, .max = 2'000'000};
  calls.counts.resize(metrics::HistogramSnapshot::kBuckets);
  calls.counts[metrics::Histogram::bucket_of(1'000'000)] = 1;
  calls.counts[metrics::Histogram::bucket_of(2'000'000)] = 1;
  r.figures.add(metrics::histogram("sidereal_transport_call_seconds", Unit::kSeconds, ""), calls);
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
  EXPECT_EQ(
      format_top(view),
      "2 tasks, 1 up\n"
      "\n"
      "task                 state  uptime  steps/s  failed  running  blocked     in/s"
      "    out/s  cpu   memory  sessions  programs  resources     kept  stale  threads  refused\n"
      "-------------------  -----  ------  -------  ------  -------  -------  -------"
      "  -------  ---  -------  --------  --------  ---------  -------  -----  -------  -------\n"
      "/job:ps/task:0          up   2m05s    100.0       4        2        1  200 KiB"
      "  100 KiB  10%  3.0 MiB         5         6          7  2.0 KiB      -        8        3\n"
      "/job:worker/task:11   down\n"
      "\n"
      "/job:worker/replica:0/task:11 at w11:2222: refused by it\n");
}

TEST(Top, shows_how_stale_pushes_are_by_who_counts_and_by_who_pushes) {
  const auto counted = [](TaskReport of, int64_t changes, int64_t times) {
    metrics::HistogramSnapshot seen{.count = times, .sum = changes * times, .max = changes};
    seen.counts.resize(metrics::HistogramSnapshot::kBuckets);
    seen.counts[metrics::Histogram::bucket_of(changes)] = times;
    of.figures.add(metrics::staleness("w", "/job:worker/replica:0/task:0"), seen);
    seen.sum = 10 * times;
    seen.counts = {};
    seen.counts.resize(metrics::HistogramSnapshot::kBuckets);
    seen.counts[metrics::Histogram::bucket_of(10)] = times;
    of.figures.add(metrics::staleness("w", "/job:worker/replica:0/task:1"), seen);
    return of;
  };
  const auto worker = [](int task) {
    TaskReport out = report(10);
    out.task = fmt::format("/job:worker/replica:0/task:{}", task);
    return out;
  };
  const TopView view = {.now = {counted(report(10), 2, 3), worker(0), worker(1), worker(2)},
                        .before = {counted(report(10), 2, 1), worker(0), worker(1), worker(2)},
                        .seconds = 1};
  const std::string table = format_top(view);
  std::vector<std::string> lines;
  for (size_t at = 0; at < table.size(); at = table.find('\n', at) + 1) {
    lines.push_back(table.substr(at, table.find('\n', at) - at));
  }
  ASSERT_EQ(lines.size(), 8U) << table;
  EXPECT_THAT(lines[4], HasSubstr("2.0 KiB    6.0  ")) << "of both workers";
  EXPECT_THAT(lines[5], HasSubstr("2.0 KiB    2.0  "));
  EXPECT_THAT(lines[6], HasSubstr("2.0 KiB   10.0  "));
  EXPECT_THAT(lines[7], HasSubstr("2.0 KiB      -  "));
  const auto json = nlohmann::json::parse(top_json(view));
  EXPECT_EQ(json["tasks"][0]["figures"]["sidereal_staleness{table=\"w\",worker=\""
                                        "/job:worker/replica:0/task:1\"}"]["mean"],
            10.0);
}

TEST(Top, has_no_rates_for_a_task_that_was_restarted) {
  TaskReport restarted = report(500);
  restarted.incarnation = 2;
  const std::string table = format_top({.now = {restarted}, .before = {report(100)}, .seconds = 1});
  EXPECT_THAT(table, HasSubstr("up   2m05s        -"));
  const auto json =
      nlohmann::json::parse(top_json({.now = {restarted}, .before = {report(1)}, .seconds = 1}));
  EXPECT_TRUE(json["tasks"][0]["per_s"].is_null());
}

TEST(Top, is_one_line_of_json_a_table) {
  TaskReport strange = unreached();
  strange.status = base::unavailable("\xff");
  const std::string line =
      top_json({.now = {report(300), strange}, .before = {report(100), strange}, .seconds = 2});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const auto json = nlohmann::json::parse(line);
  const auto& task = json["tasks"][0];
  EXPECT_EQ(task["per_s"]["sidereal_task_steps_total"], 100.0);
  EXPECT_DOUBLE_EQ(task["per_s"]["sidereal_task_busy_seconds_total"], 0.1);
  EXPECT_FALSE(task["per_s"].contains("sidereal_task_sessions")) << "a gauge";
  EXPECT_EQ(task["figures"]["sidereal_refused_total{why=\"garbage\"}"], 1);
  EXPECT_EQ(task["figures"]["sidereal_task_uptime_seconds"], 125.0);
  EXPECT_EQ(task["figures"]["sidereal_transport_call_seconds"]["count"], 2);
  EXPECT_EQ(task["figures"]["sidereal_transport_call_seconds"]["max"], 0.002);
  EXPECT_EQ(json["tasks"][0]["state"], "up");
  EXPECT_EQ(json["tasks"][1]["state"], "down");
  EXPECT_FALSE(json["tasks"][1].contains("figures"));
}

TEST(Top, shows_who_runs_which_job) {
  TaskReport granter = report(300);
  granter.jobs = {{.holder = {.name = "ads",
                              .user = "alice",
                              .host = "n7",
                              .pid = 4711,
                              .program = "sidereal train --data " + std::string(100, 'x')},
                   .since_s = 1'795'705'392}};
  const TopView view = {.now = {granter, report(1)}, .before = {}, .seconds = 1};
  EXPECT_THAT(format_top(view), HasSubstr("job   user  host   pid                    since  "));
  EXPECT_THAT(
      format_top(view),
      HasSubstr("\nads  alice    n7  4711  2026-11-26 15:03:12 UTC  sidereal train --data x"));
  EXPECT_THAT(format_top(view), Not(HasSubstr(std::string(100, 'x'))));
  EXPECT_THAT(format_top({.now = {report(1)}, .before = {}}), Not(HasSubstr("user")));
  const auto json = nlohmann::json::parse(top_json(view));
  const auto& job = json["tasks"][0]["jobs"][0];
  EXPECT_EQ(job["name"], "ads");
  EXPECT_EQ(job["user"], "alice");
  EXPECT_EQ(job["pid"], 4711);
  EXPECT_EQ(job["since"], "2026-11-26 15:03:12 UTC");
  EXPECT_TRUE(json["tasks"][1]["jobs"].empty());
}

TEST(Top, shows_whatever_figures_tasks_have) {
  TaskReport one = report(300);
  one.figures = {};
  one.figures.add(metrics::counter("x_new_total", Unit::kCount, ""), 12);
  TaskReport other = report(300);
  other.task = "/job:ps/replica:0/task:1";
  other.figures = {};
  other.figures.add(metrics::gauge("x_b_seconds", Unit::kSeconds, ""), 1'500'000'000);
  other.figures.add(report(1).figures.all().at("sidereal_transport_call_seconds").what,
                    report(1).figures.all().at("sidereal_transport_call_seconds").histogram);
  EXPECT_EQ(format_figures({.now = {one, unreached(), other}, .before = {}}),
            "figure                           /job:ps/task:0  /job:ps/task:1\n"
            "-------------------------------  --------------  --------------\n"
            "sidereal_transport_call_seconds               -    2 x 0.0015 s\n"
            "x_b_seconds                                   -           1.5 s\n"
            "x_new_total                                  12               -\n");
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
