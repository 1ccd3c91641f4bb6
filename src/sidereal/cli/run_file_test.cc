#include "sidereal/cli/run_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sidereal/data/toml.h"

namespace sidereal::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ARunFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    job_.data.files = {write("a.csv", "label,x\n1,2\n"), write("b.csv", "label,x\n")};
    job_.fit.checkpoints.directory = folder_ + "/run";
    job_.fit.epochs = 3;
    job_.model.optimizer.parameters["learning_rate"] = 0.001;
    job_.asked = {{"data", "Data", {"a.csv"}},
                  {"weight", "Data", ""},
                  {"lr", "Training", nullptr},
                  {"epochs", "Training", 3}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  nlohmann::ordered_json read() {
    std::ostringstream text;
    text << std::ifstream(folder_ + "/run/run.toml").rdbuf();
    text_ = text.str();
    const auto read = data::parse_toml(text_);
    EXPECT_TRUE(read.ok()) << read.status() << text_;
    return read.ok() ? *read : nlohmann::ordered_json();
  }

  std::string folder_ = ::testing::TempDir() + "run_file_" +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  TrainingJob job_;
  std::string text_;
};

TEST_F(ARunFile, SaysWhatWasAskedAndHowItWentMeanwhile) {
  RunFile run(job_, "1.2.3");
  ASSERT_TRUE(run.begin().ok());
  auto got = read();
  EXPECT_EQ(got["epochs"], 3);
  EXPECT_EQ(got["data"], nlohmann::json({"a.csv"}));
  EXPECT_FALSE(got.contains("weight"));
  EXPECT_FALSE(got.contains("lr"));
  EXPECT_THAT(text_, HasSubstr("# lr = 0.001"));
  EXPECT_EQ(got["run"]["how"], "running");
  EXPECT_EQ(got["run"]["version"], "1.2.3");
  EXPECT_EQ(got["run"]["data_files"], 2);
  EXPECT_EQ(got["run"]["data_bytes"], 20);
  train::EvalResult first;
  first.auc = 0.75;
  run.evaluated(first);
  got = read();
  EXPECT_EQ(got["run"]["last"]["auc"], 0.75);
  EXPECT_EQ(got["run"]["epochs"], 1);
  TrainingOutcome failed;
  failed.error = base::unavailable("a \"task\" was lost");
  ASSERT_TRUE(run.end(failed, false).ok());
  got = read();
  EXPECT_EQ(got["run"]["how"], "failed");
  EXPECT_EQ(got["run"]["error"], "UNAVAILABLE: a \"task\" was lost");
  EXPECT_EQ(got["run"]["last"]["auc"], 0.75);
}

TEST_F(ARunFile, HasTheFiguresOfTheEnd) {
  RunFile run(job_, "1");
  TrainingOutcome outcome;
  outcome.fit.steps = 7;
  outcome.fit.epochs = 2;
  outcome.fit.best_epoch = 1;
  outcome.fit.restored_best = true;
  outcome.fit.checkpoints.latest = "/x/run/model.ckpt-7";
  outcome.fit.validation.resize(2);
  outcome.fit.validation[0].auc = 0.8;
  outcome.fit.validation[1].auc = 0.7;
  outcome.test.emplace();
  ASSERT_TRUE(run.end(outcome, false).ok());
  const auto got = read()["run"];
  EXPECT_EQ(got["how"], "stopped early");
  EXPECT_EQ(got["steps"], 7);
  EXPECT_EQ(got["best_epoch"], 1);
  EXPECT_EQ(got["restored_best"], true);
  EXPECT_EQ(got["checkpoint"], "model.ckpt-7");
  EXPECT_EQ(got["best"]["auc"], 0.8);
  EXPECT_EQ(got["last"]["auc"], 0.7);
  EXPECT_TRUE(got.contains("test"));
  EXPECT_THAT(text_, Not(HasSubstr("nan")));
}

TEST_F(ARunFile, StandsBesideTheResults) {
  EXPECT_EQ(run_path(job_), folder_ + "/run/run.toml");
  job_.events_path = "events";
  job_.json_path = "out/result.json";
  EXPECT_EQ(run_path(job_), folder_ + "/run/run.toml");
  job_.fit.checkpoints.directory = "";
  EXPECT_EQ(run_path(job_), "events/run.toml");
  job_.events_path = "";
  EXPECT_EQ(run_path(job_), "out/result.run.toml");
  job_.json_path = "/dev/stdout";
  EXPECT_EQ(run_path(job_), "");
  job_.json_path = "";
  EXPECT_EQ(run_path(job_), "");
  EXPECT_TRUE(RunFile(job_, "1").begin().ok());
}

TEST_F(ARunFile, KnowsOtherDataByItsDigest) {
  const DataFacts before = data_facts(job_.data.files);
  EXPECT_EQ(data_facts(job_.data.files).digest, before.digest);
  write("a.csv", "label,x\n1,3\n");
  const DataFacts other = data_facts(job_.data.files);
  EXPECT_EQ(other.bytes, before.bytes);
  EXPECT_NE(other.digest, before.digest);
}

}  // namespace
}  // namespace sidereal::cli
