#include "sidereal/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sidereal/kernels/optimizer_rules.h"

namespace sidereal::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Arguments : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    arguments_.data = {write("train.csv", "click,age,site\n1,3,a\n0,4,b\n")};
    arguments_.label = "click";
    arguments_.hidden = "8,4";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  Status error() { return plan_train(arguments_).status(); }

  std::string folder_ = ::testing::TempDir() + "arguments_" +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  TrainArguments arguments_;
};

TEST_F(Arguments, NameTheStepsToTrace) {
  EXPECT_EQ(plan_train(arguments_)->fit.trace_end, 0);
  arguments_.trace = "trace.json";
  EXPECT_EQ(plan_train(arguments_)->fit.trace_first, 10);
  arguments_.trace_steps = "0:3";
  EXPECT_EQ(plan_train(arguments_)->fit.trace_end, 3);
  EXPECT_EQ(plan_train(arguments_)->trace_path, "trace.json");
  for (const char* wrong : {"3", "3:3", "a:4", "-1:4", "1:2:3", ""}) {
    arguments_.trace_steps = wrong;
    EXPECT_THAT(base::message_of(error()), HasSubstr("--trace-steps")) << wrong;
  }
}

TEST_F(Arguments, BecomeAJob) {
  arguments_.numeric = "age";
  arguments_.test = {write("test.csv", "click,age,site\n1,3,a\n")};
  arguments_.optimizer = "ftrl";
  arguments_.learning_rate = 0.2;
  arguments_.optimizer_parameters = {"l1_regularization_strength=0.5"};
  arguments_.ps = 3;
  arguments_.seed = 9;
  const auto job = plan_train(arguments_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->data.numeric, ElementsAre("age"));
  EXPECT_EQ(job->data.shuffle_rows, 100'000);
  EXPECT_EQ(job->model.schema.dense_width, 1);
  EXPECT_EQ(job->model.schema.fields, 1);
  EXPECT_THAT(job->model.hidden, ElementsAre(8, 4));
  EXPECT_EQ(job->model.optimizer.parameters.at("learning_rate"), 0.2);
  EXPECT_EQ(job->model.optimizer.parameters.at("l1_regularization_strength"), 0.5);
  EXPECT_EQ(job->model.seed, 9);
  EXPECT_EQ(job->local.ps, 3);
  EXPECT_FALSE(job->valid.has_value());
  ASSERT_TRUE(job->test.has_value());
  EXPECT_EQ(job->test->shuffle_rows, 0);
  EXPECT_NE(job->test->files, job->data.files);
}

TEST_F(Arguments, EveryOptimizerIsKnownByNameWithItsParameters) {
  for (const kernels::Rule* rule : kernels::all_rules()) {
    arguments_.optimizer = std::string(rule->name);
    arguments_.optimizer_parameters.clear();
    for (const kernels::RuleParameter& parameter : rule->parameters) {
      if (parameter.name == "learning_rate") continue;
      arguments_.optimizer_parameters.push_back(
          fmt::format("{}={}", parameter.name, parameter.standard));
    }
    const auto job = plan_train(arguments_);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->model.optimizer.kind, rule->name);
    EXPECT_EQ(job->model.optimizer.parameters.size(), static_cast<size_t>(rule->parameters.size()));
  }
}

TEST_F(Arguments, MissingFilesAreNamed) {
  arguments_.data = {folder_ + "/none_*.csv"};
  EXPECT_EQ(error().code(), StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(error()), HasSubstr("none_*.csv"));
}

TEST_F(Arguments, MissingColumnsAreNamed) {
  arguments_.label = "clicked";
  EXPECT_THAT(base::message_of(error()), HasSubstr("clicked"));
  arguments_.label = "click";
  arguments_.test = {write("other.csv", "click,site\n1,a\n")};
  arguments_.numeric = "age";
  EXPECT_THAT(base::message_of(error()), HasSubstr("other.csv"));
}

TEST_F(Arguments, BadValuesAreNamed) {
  arguments_.hidden = "8,x";
  EXPECT_THAT(base::message_of(error()), HasSubstr("--hidden: 'x'"));
  arguments_.hidden = "8";
  arguments_.delimiter = "ab";
  EXPECT_THAT(base::message_of(error()), HasSubstr("--delimiter"));
  arguments_.delimiter = ",";
  arguments_.optimizer_parameters = {"beta_1"};
  EXPECT_THAT(base::message_of(error()), HasSubstr("beta_1"));
  arguments_.optimizer_parameters = {"beta9=1"};
  EXPECT_THAT(base::message_of(error()), HasSubstr("beta9"));
  arguments_.optimizer_parameters.clear();
  arguments_.patience = 2;
  EXPECT_THAT(base::message_of(error()), HasSubstr("--patience needs --valid"));
}

TEST_F(Arguments, AClusterIsJsonOrAFileOfIt) {
  const std::string json = R"({"ps": ["h:1"], "worker": ["h:2", "h:3"]})";
  arguments_.cluster = json;
  auto job = plan_train(arguments_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(*job->remote->addresses("worker"), ElementsAre("h:2", "h:3"));
  arguments_.cluster = write("cluster.json", json);
  job = plan_train(arguments_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(*job->remote->addresses("ps"), ElementsAre("h:1"));
  arguments_.cluster = folder_ + "/none.json";
  EXPECT_EQ(error().code(), StatusCode::kNotFound);
}

TEST_F(Arguments, AClusterThatIsWrongIsRefusedWithThePlaceBeforeAnythingIsPrinted) {
  const auto message = [&](const std::string& json) {
    arguments_.cluster = json;
    return std::string(base::message_of(error()));
  };
  EXPECT_THAT(message("{\"ps\": [\"h:1\"],\n \"worker\": [\"h:2\""),
              HasSubstr("--cluster: the cluster is no JSON: line 2, column 18"));
  EXPECT_THAT(message(R"({"pss": ["h:1"], "worker": ["h:2"]})"),
              HasSubstr("job 'pss' of the cluster is none of ps, worker"));
  EXPECT_THAT(message(R"({"ps": ["h:1"]})"), HasSubstr("no tasks of job 'worker'"));
  EXPECT_THAT(message(R"({"ps": ["h"], "worker": ["h:2"]})"), HasSubstr("'h' is not the address"));
  EXPECT_THAT(message(R"({"ps": ["h:99999"], "worker": ["h:2"]})"),
              HasSubstr("'h:99999' is not the address of a ps task"));
}

TEST_F(Arguments, RunningWorkersGetNamesOfFilesThatHoldInTheirDirectories) {
  const std::string here = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const std::string absolute = write("near.csv", "click,a\n1,2\n");
  arguments_.data = arguments_.valid = arguments_.test = {"near.csv"};
  const auto alone = plan_train(arguments_);
  arguments_.cluster = R"({"ps": ["h:1"], "worker": ["h:2"]})";
  const auto job = plan_train(arguments_);
  std::filesystem::current_path(here);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(alone->data.files, ElementsAre("near.csv"));
  for (const auto& files : {job->data.files, job->valid->files, job->test->files}) {
    ASSERT_EQ(files.size(), 1);
    EXPECT_TRUE(files[0].starts_with('/')) << files[0];
    EXPECT_TRUE(std::filesystem::equivalent(files[0], absolute)) << files[0];
  }
}

TEST_F(Arguments, TheDemoNeverEvaluatesOnRowsItTrainedOn) {
  arguments_.rows = 5000;
  arguments_.eval_rows = 2000;
  const auto job = plan_demo(arguments_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data.synthetic.first_row, 0);
  EXPECT_EQ(job->data.synthetic.rows, 5000);
  EXPECT_EQ(job->test->synthetic.first_row, 5000);
  EXPECT_EQ(job->test->synthetic.rows, 2000);
  EXPECT_EQ(job->test->synthetic.seed, job->data.synthetic.seed);
  EXPECT_EQ(job->model.schema.dense_width, 13);
}

}  // namespace
}  // namespace sidereal::cli
