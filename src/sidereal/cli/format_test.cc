#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "sidereal/cli/progress.h"
#include "sidereal/cli/report.h"
#include "sidereal/cli/table.h"

namespace sidereal::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

train::Progress half_way() {
  train::Progress p;
  p.epoch = 0;
  p.samples_per_s = 12345;
  p.loss = 0.45;
  p.auc = 0.78123;
  p.fraction = 0.5;
  p.seconds_left = 83;
  return p;
}

TEST(Table, AlignsItsColumns) {
  EXPECT_EQ(format_table({"task", "steps"}, {{"a", "1"}, {"longer", "12345678"}}),
            "task       steps\n"
            "------  --------\n"
            "a              1\n"
            "longer  12345678\n");
}

TEST(Table, TasksShowStepsRatesBytesAndWaiting) {
  train::TaskStats worker;
  worker.task = "/job:worker/task:0";
  worker.steps = 100;
  worker.rows = 20000;
  worker.bytes_in = 1536;
  worker.compute_s = 3.25;
  worker.wait_s = 0.5;
  const std::string text = format_tasks({worker}, 2);
  EXPECT_THAT(text, HasSubstr("/job:worker/task:0"));
  EXPECT_THAT(text, HasSubstr("10.0k"));
  EXPECT_THAT(text, HasSubstr("1.5 KiB"));
}

TEST(Table, DurationsAreShort) {
  EXPECT_EQ(format_duration(9.87), "9.9s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(125), "2m05s");
  EXPECT_EQ(format_duration(3725), "1h02m");
  EXPECT_EQ(format_duration(-1), "?");
}

TEST(Progress, OneLineSaysEverything) {
  EXPECT_EQ(format_progress(half_way(), 2),
            "epoch 1/2   50%  12.3k samples/s  loss 0.4500  auc 0.7812  1m23s left");
}

TEST(Progress, WhatIsNotKnownIsLeftOut) {
  train::Progress p = half_way();
  p.seconds_left = -1;
  p.auc = 0;
  EXPECT_EQ(format_progress(p, 1), " 50%  12.3k samples/s  loss 0.4500");
}

TEST(Progress, NoLineIsWiderThanTheLimit) {
  train::Progress p = half_way();
  p.loss = 1e300;
  EXPECT_LE(format_progress(p, 2).size(), kProgressColumns);
}

TEST(Progress, OnATerminalOneLineIsRewrittenAndEnded) {
  std::string shown;
  {
    ProgressPrinter printer([&](std::string_view text) { shown += text; }, true, 1);
    train::Progress p = half_way();
    printer.update(p);
    printer.update(p);  // Nothing new.
    p.loss /= 2;
    printer.update(p);
  }
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\r'), 2);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1);
}

TEST(Progress, ElsewhereALineComesEveryFewSeconds) {
  std::string shown;
  ProgressPrinter printer([&](std::string_view text) { shown += text; }, false, 1);
  train::Progress p = half_way();
  for (p.seconds = 0.25; p.seconds < 11; p.seconds += 0.25) printer.update(p);
  printer.finish();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 3);
  EXPECT_THAT(shown, Not(HasSubstr("\r")));
}

TEST(Report, HoldsTheFiguresAndTheConfiguration) {
  TrainingJob job;
  job.model.kind = "fm";
  TrainingOutcome outcome;
  outcome.fit.steps = 12;
  outcome.fit.samples_per_s = 1000;
  outcome.fit.loss = std::numeric_limits<double>::quiet_NaN();
  outcome.fit.tasks.resize(2);
  outcome.test = train::EvalResult{.rows = 5, .auc = 0.75, .log_loss = 0.5, .best_auc = {}};
  const auto json = nlohmann::json::parse(to_json(job, outcome));
  EXPECT_EQ(json["test_auc"], 0.75);
  EXPECT_EQ(json["test_logloss"], 0.5);
  EXPECT_EQ(json["samples_per_s"], 1000);
  EXPECT_EQ(json["steps"], 12);
  EXPECT_TRUE(json.contains("seconds"));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["valid_auc"].is_null());
  EXPECT_EQ(json["tasks"].size(), 2);
  EXPECT_EQ(json["config"]["model"], "fm");
}

TEST(Report, WithoutTestDataTheFiguresAreNull) {
  const auto json = nlohmann::json::parse(to_json({}, {}));
  EXPECT_TRUE(json.at("test_auc").is_null());
  EXPECT_TRUE(json.at("test_logloss").is_null());
}

TEST(Report, AFileThatCannotBeWrittenIsNamed) {
  const Status status = write_file("/proc/none/x.json", "{}");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(status), HasSubstr("/proc/none/x.json"));
  EXPECT_EQ(check_writable("/proc/none/x.json"), status);
}

TEST(Report, AFileIsTriedWithoutAChangeOfIt) {
  const std::string path = ::testing::TempDir() + "tried.json";
  std::filesystem::remove(path);
  EXPECT_TRUE(check_writable(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(write_file(path, "here").ok());
  EXPECT_TRUE(check_writable(path).ok());
  EXPECT_EQ(std::filesystem::file_size(path), 4);
  EXPECT_FALSE(check_writable(::testing::TempDir()).ok());
}

TEST(Report, ATrainingThatFailedSaysSo) {
  TrainingOutcome outcome;
  EXPECT_FALSE(nlohmann::json::parse(to_json({}, outcome)).contains("error"));
  outcome.error = base::unavailable("a task is lost");
  const auto json = nlohmann::json::parse(to_json({}, outcome));
  EXPECT_EQ(json.at("error").at("code"), "UNAVAILABLE");
  EXPECT_EQ(json.at("error").at("message"), "a task is lost");
  EXPECT_TRUE(json.at("loss").is_null());
}

}  // namespace
}  // namespace sidereal::cli
