#include "sidereal/cli/placement_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sidereal/cli/commands.h"

namespace sidereal::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCluster = R"({"ps": ["p0:1", "p1:1"], "worker": ["w0:1"]})";

class GraphPlacement : public ::testing::Test {
 protected:
  GraphPlacement()
      : path_(std::filesystem::temp_directory_path() /
              ("placement-" + std::to_string(getpid()) + ".txt")) {
    std::ofstream(path_) << "sidereal-graph 1\n"
                            "%0 = Variable() name=\"v\" {dtype=float32, shape=shape[3,4], "
                            "shared_name=\"v\"} device=\"/job:ps/task:1\" : string[]\n"
                            "%1 = NoOp() name=\"n\"\n";
  }
  ~GraphPlacement() override { std::filesystem::remove(path_); }

  std::filesystem::path path_;
};

TEST_F(GraphPlacement, prints_tasks_variables_and_nodes) {
  const auto text = placement_text(
      {.file = path_, .cluster = kCluster, .master = "/job:worker/task:0", .nodes = true});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("/job:ps/replica:0/task:1              1     48      1"));
  EXPECT_THAT(*text, HasSubstr("n: (NoOp): /job:worker/replica:0/task:0/device:CPU:0\n"));
}

TEST_F(GraphPlacement, names_the_file_that_is_wrong) {
  const auto message = [](const PlacementArguments& arguments) {
    return base::message_of(placement_text(arguments).status());
  };
  EXPECT_THAT(message({.file = "no/such", .cluster = kCluster}), HasSubstr("no/such"));
  EXPECT_THAT(message({.file = path_, .cluster = "no/such"}), HasSubstr("--cluster"));
  EXPECT_THAT(message({.file = path_, .cluster = path_}), HasSubstr(path_.string()));
  EXPECT_THAT(message({.file = path_, .cluster = "{\"ps\": 3}"}), HasSubstr("ps"));
}

TEST_F(GraphPlacement, is_a_subcommand_with_help) {
  EXPECT_THAT(parse({"graph", "placement", "--help"}).out, HasSubstr("--soft-placement"));
  EXPECT_EQ(parse({"graph", "placement", "x"}).exit_code, 2);
  EXPECT_TRUE(parse({"graph", "placement", "x", "--cluster", kCluster}).action);
}

}  // namespace
}  // namespace sidereal::cli
