#include "sidereal/app/endpoint_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/ports.h"

namespace sidereal::app {
namespace {

using tensor::Shape;
using tensor::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string data_of(const EndpointMap& map, const std::string& task) {
  const std::optional<sys::Address> found = map.find(task);
  return found ? found->to_string() : "";
}

std::string error_of(std::string_view text) {
  const auto map = EndpointMap::parse(text, "dir/.endpoint_map");
  EXPECT_EQ(map.status().code(), StatusCode::kInvalidArgument) << text;
  return std::string(base::message_of(map.status()));
}

/// A folder of this test, removed at its end.
class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "endpoint_map_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& text) const { std::ofstream(path_ + "/.endpoint_map") << text; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(EndpointMap, takes_the_lines_of_the_example) {
  const auto map = EndpointMap::parse(
      "127.0.0.1:3333=127.0.0.1:5555\n127.0.0.1:4444=127.0.0.1:6666", ".endpoint_map");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(data_of(*map, "127.0.0.1:3333"), "127.0.0.1:5555");
  EXPECT_EQ(data_of(*map, "127.0.0.1:4444"), "127.0.0.1:6666");
  EXPECT_EQ(data_of(*map, "127.0.0.1:5555"), "");
}

TEST(EndpointMap, takes_comments_blanks_spaces_names_and_ipv6) {
  const auto map = EndpointMap::parse(
      "# tasks\r\n\n  ps0.train:2222 = 10.0.0.1:7000  # fast "
      "network\r\n\t\n[::1]:2222=[::1]:7000\n",
      "f");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(data_of(*map, "ps0.train:2222"), "10.0.0.1:7000");
  EXPECT_EQ(data_of(*map, "[::1]:2222"), "[::1]:7000");
}

TEST(EndpointMap, says_in_which_line_something_is_wrong) {
  EXPECT_THAT(error_of("\n# x\na:1\n"),
              AllOf(HasSubstr("dir/.endpoint_map:3"), HasSubstr("'a:1' is no pair")));
  EXPECT_THAT(error_of("a:1=b:2=c:3"), HasSubstr("dir/.endpoint_map:1: 'a:1=b:2=c:3' is no pair"));
  EXPECT_THAT(error_of("a=b:2"), HasSubstr("address 'a' has no port"));
  EXPECT_THAT(error_of("a:1=b:0"), HasSubstr("address 'b:0' has port 0"));
  EXPECT_THAT(error_of("a:1=b:65536"), HasSubstr("no port between 0 and 65535"));
  EXPECT_THAT(error_of("a:1="), HasSubstr("has no port"));
}

TEST(EndpointMap, refuses_what_stands_there_twice) {
  EXPECT_THAT(error_of("a:1=b:2\n\na:1=b:3"),
              AllOf(HasSubstr(".endpoint_map:3"), HasSubstr("a:1 stands in line 1 already")));
  EXPECT_THAT(error_of("a:1=c:2\nb:1=c:2"),
              AllOf(HasSubstr(".endpoint_map:2"), HasSubstr("c:2 is that of line 1 already")));
}

TEST(EndpointMap, is_read_from_a_folder_and_a_missing_file_is_named) {
  const Folder folder;
  EXPECT_THAT(base::message_of(EndpointMap::read(folder.path()).status()),
              AllOf(HasSubstr(folder.path() + "/.endpoint_map"), HasSubstr("No such file")));
  folder.write("a:1=b:2\n");
  const auto map = EndpointMap::read(folder.path() + "/");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(data_of(*map, "a:1"), "b:2");
  EXPECT_THAT(base::message_of(EndpointMap::read(folder.path() + "/.endpoint_map").status()),
              HasSubstr("is a file; give the folder"));
}

TEST(EndpointMap, tells_lines_for_nobody) {
  cluster::ClusterSpec cluster;
  ASSERT_TRUE(cluster.add_job("ps", std::vector<std::string>{"a:1"}).ok());
  const auto map = EndpointMap::parse("a:1=b:2\n\nlost:1=b:3", "f");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_THAT(map->not_in(cluster), ElementsAre("f:3: lost:1"));
}

/// Servers "w" with the data ports of a map, which is written when the addresses are known.
class MappedCluster {
 public:
  MappedCluster(int count, cluster::Protocol protocol) : tasks_at_(count), data_at_(count) {
    options_.protocol = protocol;
    EXPECT_TRUE(options_.cluster.add_job("w", tasks_).ok());
    options_.job = "w";
    options_.endpoint_map_path = folder_.path();
    options_.data.connect_deadline_ms = 2'000;
    servers_.resize(static_cast<size_t>(count));
  }
  void write(const std::string& text) const { folder_.write(text); }
  [[nodiscard]] std::string line(size_t task, size_t data) const {
    return tasks_[task] + "=" + data_[data] + "\n";
  }
  Status start(int task) {
    options_.task = task;
    SR_ASSIGN_OR_RETURN(servers_[static_cast<size_t>(task)], Server::create(options_));
    return {};
  }
  void stop(int task) { servers_[static_cast<size_t>(task)] = nullptr; }
  [[nodiscard]] const Server& server(int task) const {
    return *servers_[static_cast<size_t>(task)];
  }
  [[nodiscard]] int data_port(size_t i) const { return sys::Address::parse(data_[i])->port; }
  ServerOptions& options() { return options_; }

 private:
  Folder folder_;
  const ReservedPorts tasks_at_, data_at_;
  const std::vector<std::string> tasks_ = tasks_at_.addresses();
  const std::vector<std::string> data_ = data_at_.addresses();
  ServerOptions options_;
  std::vector<std::unique_ptr<Server>> servers_;
};

/// What a step that runs on task 1 gives, driven by task 0.
Status run_there(const MappedCluster& cluster) {
  Model model;
  const ir::Output there = model.add("Neg", {model.placeholder("x")}, {}, "there", "/task:1");
  model.add("Neg", {there}, {}, "back", "/task:0");
  SR_ASSIGN_OR_RETURN(const auto session,
                      service::Session::create(cluster.server(0).target(), model.graph(), {}));
  return session->run({{"x", Tensor::of(Shape{1}, std::vector<float>{3})}}, {"back"}).status();
}

class ClusterWithMap : public ::testing::TestWithParam<cluster::Protocol> {};
INSTANTIATE_TEST_SUITE_P(Over, ClusterWithMap,
                         ::testing::Values(cluster::Protocol::kGrpcPlusPlus,
                                           cluster::Protocol::kStarServer),
                         test_name);

TEST_P(ClusterWithMap, listens_and_connects_where_the_map_says) {
  MappedCluster cluster(2, GetParam());
  cluster.write("# who = where\n" + cluster.line(0, 0) + cluster.line(1, 1) + "gone:1=gone:2\n");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(cluster.start(i).ok());
  EXPECT_EQ(cluster.server(0).data_port(), cluster.data_port(0));
  EXPECT_EQ(cluster.server(1).data_port(), cluster.data_port(1));
  EXPECT_TRUE(run_there(cluster).ok());
  // The same address after a restart.
  cluster.stop(1);
  ASSERT_TRUE(cluster.start(1).ok());
  EXPECT_TRUE(run_there(cluster).ok());
}

TEST_P(ClusterWithMap, asks_tasks_that_the_map_does_not_name) {
  MappedCluster cluster(2, GetParam());
  cluster.write(cluster.line(0, 0));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(cluster.start(i).ok());
  EXPECT_EQ(cluster.server(0).data_port(), cluster.data_port(0));
  EXPECT_TRUE(run_there(cluster).ok());
}

TEST_P(ClusterWithMap, refuses_a_map_that_leads_to_another_task) {
  MappedCluster cluster(3, GetParam());
  cluster.write(cluster.line(0, 0) + cluster.line(1, 1));
  ASSERT_TRUE(cluster.start(1).ok());
  cluster.write(cluster.line(0, 0) + cluster.line(2, 2));
  ASSERT_TRUE(cluster.start(2).ok());
  cluster.write(cluster.line(0, 0) + cluster.line(1, 2));
  ASSERT_TRUE(cluster.start(0).ok());
  const Status status = run_there(cluster);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(base::message_of(status)),
              AllOf(HasSubstr("refused by"), HasSubstr("/job:w/replica:0/task:2")));
}

TEST_P(ClusterWithMap, says_where_nobody_was_found) {
  MappedCluster cluster(2, GetParam());
  cluster.write(cluster.line(0, 0));
  ASSERT_TRUE(cluster.start(1).ok());
  cluster.write(cluster.line(0, 0) + cluster.line(1, 1));
  ASSERT_TRUE(cluster.start(0).ok());
  const Status status = run_there(cluster);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(base::message_of(status)),
              AllOf(HasSubstr("cannot reach"), HasSubstr(std::to_string(cluster.data_port(1)))));
}

TEST(ServerWithMap, does_not_begin_with_a_bad_map_or_an_open_data_port) {
  MappedCluster cluster(1, cluster::Protocol::kStarServer);
  EXPECT_EQ(cluster.start(0).code(), StatusCode::kNotFound);
  cluster.write("nonsense");
  EXPECT_THAT(std::string(base::message_of(cluster.start(0))), HasSubstr(".endpoint_map:1"));
  const std::string line = cluster.line(0, 0);
  cluster.write(line.substr(0, line.find('=')) + "=0.0.0.0:" + line.substr(line.rfind(':') + 1));
  const Status open = cluster.start(0);
  EXPECT_EQ(open.code(), StatusCode::kFailedPrecondition) << open;
  EXPECT_THAT(std::string(base::message_of(open)),
              HasSubstr("nothing keeps unauthenticated peers out"));
  // Not read where there are no data ports.
  cluster.write("nonsense");
  cluster.options().protocol = cluster::Protocol::kGrpc;
  EXPECT_TRUE(cluster.start(0).ok());
}

}  // namespace
}  // namespace sidereal::app
