#include "sidereal/cluster/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace sidereal::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ClusterSpec from(std::string_view json) {
  Result<ClusterSpec> out = ClusterSpec::from_json(json);
  EXPECT_TRUE(out.ok()) << json << ": " << out.status();
  return out.ok() ? *std::move(out) : ClusterSpec();
}

std::string error_of(std::string_view json) {
  return base::message_of(ClusterSpec::from_json(json).status());
}

TEST(ClusterSpec, TellsJobsTasksAndAddresses) {
  const ClusterSpec c = from(R"({"worker": ["w0:1", "w1:1", "w2:1"], "ps": ["p0:1", "p1:1"]})");
  EXPECT_THAT(c.jobs(), ElementsAre("ps", "worker"));
  EXPECT_EQ(*c.num_tasks("worker"), 3);
  EXPECT_THAT(*c.task_indices("worker"), ElementsAre(0, 1, 2));
  EXPECT_EQ(*c.task_address("worker", 2), "w2:1");
  EXPECT_THAT(*c.job_tasks("ps"), ElementsAre("p0:1", "p1:1"));
  EXPECT_EQ(c.to_string(),
            "ClusterSpec({'ps': ['p0:1', 'p1:1'], 'worker': ['w0:1', 'w1:1', 'w2:1']})");
  EXPECT_FALSE(c.empty());
  EXPECT_TRUE(ClusterSpec().empty());
}

TEST(ClusterSpec, ASparseJobHasHoles) {
  const ClusterSpec c = from(R"({"worker": {"0": "a:1", "3": "b:1"}})");
  EXPECT_FALSE(*c.is_dense("worker"));
  EXPECT_EQ(*c.num_tasks("worker"), 2);
  EXPECT_THAT(*c.task_indices("worker"), ElementsAre(0, 3));
  EXPECT_THAT(*c.job_tasks("worker"), ElementsAre(std::optional<std::string>("a:1"), std::nullopt,
                                                  std::nullopt, std::optional<std::string>("b:1")));
  EXPECT_EQ(c.to_string(), "ClusterSpec({'worker': {0: 'a:1', 3: 'b:1'}})");
}

TEST(ClusterSpec, TheOrderOfAddressesMattersAndThatOfJobsDoesNot) {
  EXPECT_EQ(from(R"({"a": ["x:1", "y:1"], "b": []})"),
            from(R"({"b": {}, "a": {"1": "y:1", "0": "x:1"}})"));
  EXPECT_NE(from(R"({"a": ["x:1", "y:1"]})"), from(R"({"a": ["y:1", "x:1"]})"));
  EXPECT_NE(from(R"({"a": ["x:1"]})"), from(R"({"a": ["x:1"], "b": []})"));
}

TEST(ClusterSpec, JobsWithoutTasksSurviveEveryRoundTrip) {
  const ClusterSpec c = from(R"({"ps": [], "worker": ["w:1"], "other": {"2": "o:1"}})");
  EXPECT_EQ(from(c.to_json()), c);
  EXPECT_EQ(*c.num_tasks("ps"), 0);
  EXPECT_FALSE(*c.is_dense("ps"));
  EXPECT_TRUE(c.job_tasks("ps")->empty());
  EXPECT_EQ(c.to_json(), R"({"other":{"2":"o:1"},"ps":{},"worker":["w:1"]})");
}

TEST(ClusterSpec, NamesWhatIsNotThereAndWhatIs) {
  const ClusterSpec c = from(R"({"ps": ["p0:1", "p1:1"]})");
  EXPECT_EQ(c.num_tasks("worker").status().code(), base::StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(c.tasks("worker").status()),
              HasSubstr("No such job in cluster: 'worker'; there are: ps"));
  EXPECT_THAT(base::message_of(c.task_address("ps", 2).status()),
              HasSubstr("No task with index 2 in job 'ps'; there are: 0, 1"));
  EXPECT_THAT(base::message_of(ClusterSpec().tasks("x").status()), HasSubstr("none"));
}

TEST(ClusterSpec, SaysWhatIsWrongWithItsText) {
  EXPECT_THAT(error_of("{"), HasSubstr("no JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(R"({"ps": "p0:1"})"), HasSubstr("job 'ps' is string"));
  EXPECT_THAT(error_of(R"({"ps": [7]})"), HasSubstr("task 0 of job 'ps' is number"));
  EXPECT_THAT(error_of(R"({"ps": {"a": "x"}})"), HasSubstr("'a' in job 'ps' is no task index"));
  EXPECT_THAT(error_of(R"({"ps": {"-1": "x"}})"), HasSubstr("indices are 0 to"));
  EXPECT_THAT(error_of(R"({"ps": {"99999999": "x"}})"), HasSubstr("indices are 0 to"));
  EXPECT_THAT(error_of(R"({"ps": {"1": "x", "01": "y"}})"), HasSubstr("task 1 twice"));
  EXPECT_THAT(error_of(R"({"ps": [], "ps": ["x"]})"), HasSubstr("'ps' is there twice"));
  EXPECT_THAT(error_of(R"({"p s": []})"), HasSubstr("no name of a job"));
}

TEST(ClusterSpec, IsFoundInTfConfig) {
  EXPECT_EQ(from(R"({"cluster": {"ps": ["p:1"]}, "task": {"type": "ps", "index": 0}})"),
            from(R"({"ps": ["p:1"]})"));
  EXPECT_THAT(from(R"({"cluster": {"0": "a:1"}})").jobs(), ElementsAre("cluster"));
  EXPECT_THAT(from(R"({"cluster": ["a:1"]})").jobs(), ElementsAre("cluster"));
  EXPECT_TRUE(from(R"({"cluster": {}, "task": {}})").empty());
  EXPECT_THAT(error_of(R"({"cluster": {"ps": ["p:1"], "ps": ["q:1"]}})"),
              HasSubstr("'ps' is there twice"));
}

TEST(ClusterSpec, GivesTheAddressesOfDenseJobs) {
  const ClusterSpec c = from(R"({"ps": ["p0:1", "p1:1"], "worker": {"1": "w:1"}, "none": []})");
  EXPECT_THAT(*c.addresses("ps"), ElementsAre("p0:1", "p1:1"));
  EXPECT_THAT(base::message_of(c.addresses("worker").status()),
              HasSubstr("job 'worker' has a task 1 but no task 0"));
  EXPECT_THAT(base::message_of(c.addresses("none").status()), HasSubstr("no tasks of job 'none'"));
  EXPECT_THAT(base::message_of(c.addresses("who").status()), HasSubstr("no tasks of job 'who'"));
}

TEST(ClusterSpec, PrintsAddressesAsPythonDoes) {
  ClusterSpec c;
  ASSERT_TRUE(c.add_job("a", {{0, "it's"}, {1, "b\\\n"}}).ok());
  EXPECT_EQ(c.to_string(), R"(ClusterSpec({'a': ["it's", 'b\\\x0a']}))");
  EXPECT_EQ(c.add_job("a", ClusterSpec::Tasks()).code(), base::StatusCode::kAlreadyExists);
}

TEST(ClusterSpec, stands_in_a_tf_config_beside_a_protocol) {
  EXPECT_EQ(*rpc_layer_of(R"({"cluster": {"ps": ["a:1"]}, "rpc_layer": "grpc++"})"), "grpc++");
  EXPECT_EQ(*rpc_layer_of(R"({"rpc_layer": "star_server"})"), "star_server");
  EXPECT_EQ(*rpc_layer_of(R"({"cluster": {"ps": ["a:1"]}, "rpc_layer": null})"), "");
  EXPECT_EQ(*rpc_layer_of(R"({"ps": ["a:1"]})"), "");
  EXPECT_EQ(*rpc_layer_of(R"({"rpc_layer": ["a:1"]})"), "");  // A job.
  EXPECT_FALSE(rpc_layer_of(R"({"cluster": {"ps": ["a:1"]}, "rpc_layer": 3})").ok());
  EXPECT_FALSE(rpc_layer_of("[]").ok());
  EXPECT_FALSE(rpc_layer_of("{").ok());
}

}  // namespace
}  // namespace sidereal::cluster
