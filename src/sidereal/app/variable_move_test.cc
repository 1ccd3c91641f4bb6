#include "sidereal/service/variable_move.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/resources/change_entry.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/status_client.h"

// Variables that go from one task to another while sessions use them.
namespace sidereal::app {
namespace {

using service::MovedVariables;
using service::VariableMove;
using std::chrono::milliseconds;
using tensor::DType;
using tensor::Shape;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kRows = 1000;
constexpr int64_t kDim = 3;
constexpr int64_t kLength = kRows * kDim;
constexpr milliseconds kPatience(60'000);
constexpr const char* kGroup = "g";

std::string part(int k) { return "t/part_" + std::to_string(k); }
std::string task_name_of(int task) { return "/job:w/replica:0/task:" + std::to_string(task); }

/// Parts of a table, part k on task `tasks[k]`: nodes "init", "add", which adds 1 to all of them,
/// "PART/read" and "PART/destroy".
class PartsModel : public Model {
 public:
  explicit PartsModel(const std::vector<int>& tasks) {
    for (size_t k = 0; k < tasks.size(); ++k) {
      const std::string name = part(static_cast<int>(k));
      const std::string device = task_name_of(tasks[k]) + "/device:CPU:0";
      const ir::AttrMap attrs = {
          {"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", Shape{kRows, kDim}}};
      const ir::Output handle = add("Variable", {}, attrs, name + "/handle", device);
      const auto all = [&](float value, const std::string& what) {
        const std::vector<float> values(kLength, value);
        return add("Const", {}, {{"value", tensor::Tensor::of(Shape{kRows, kDim}, values)}},
                   name + what, device);
      };
      add("VariableAssign", {handle, all(static_cast<float>(k), "/first")}, {}, name + "/init",
          device);
      add("VariableAssignAdd", {handle, all(1, "/one")}, {}, name + "/add", device);
      add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{kRows, kDim}}},
          name + "/read", device);
      add("DestroyResource", {handle}, {}, name + "/destroy", device);
    }
  }
};

std::vector<std::string> nodes(const std::string& what, const std::vector<int>& parts) {
  std::vector<std::string> out;
  for (const int k : parts) out.push_back(part(k) + what);
  return out;
}

class VariableMoves : public ::testing::TestWithParam<ClusterKind> {
 protected:
  std::unique_ptr<service::Session> session(const std::vector<int>& tasks) {
    service::SessionOptions options = patient();
    options.state_group = group_;
    options.pull_prefetch_ms = 0;
    auto made = service::Session::create(cluster_.target(0), PartsModel(tasks).graph(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  static void run(service::Session* session, const std::vector<std::string>& targets) {
    const auto done = session->run({}, {}, targets, {.waits_for_pushes = true});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  static std::vector<float> value_of(service::Session* session, int k) {
    const auto got = session->run({}, {part(k) + "/read"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0]) : std::vector<float>();
  }
  [[nodiscard]] service::FollowedAddress address_of(int task) const {
    const std::string target = cluster_.target(task);
    return {.task = task_name_of(task), .address = target.substr(target.find("//") + 2)};
  }
  [[nodiscard]] std::unique_ptr<VariableMove> begin(const std::vector<int>& parts) const {
    auto credentials = security::Credentials::create(cluster_.options().security);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    auto move = VariableMove::begin(
        address_of(2), group_, {{.from = address_of(1), .names = nodes("", parts)}}, *credentials);
    EXPECT_TRUE(move.ok()) << move.status();
    return move.ok() ? *std::move(move) : nullptr;
  }
  /// Until all is there; why not.
  static Status wait_until_current(VariableMove* move) {
    Status status;
    const bool is_current = eventually(
        [&] {
          const auto progress = move->progress();
          status = progress.status();
          return !status.ok() || progress->is_current;
        },
        60);
    return is_current ? status : base::deadline_exceeded("it is not current");
  }
  /// Takes what changed last, and commits.
  static Status hand_over(VariableMove* move) {
    const Status taken = move->take(kPatience);
    return taken.ok() ? move->commit() : taken;
  }
  [[nodiscard]] std::unique_ptr<service::Follower> follow() const {
    service::FollowOptions options;
    options.state_group = kGroup;
    options.cut = milliseconds(1);
    options.parts = service::Parts::kModulo;
    options.tables = {"t"};
    auto made = service::Follower::create({address_of(1), address_of(2)},
                                          cluster_.options().security, options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  [[nodiscard]] int64_t figure(int task, const std::string& name) const {
    const auto client =
        service::StatusClient::create(cluster_.target(task), {}, std::chrono::seconds(60));
    EXPECT_TRUE(client.ok()) << client.status();
    const auto reports = (*client)->ask(std::chrono::seconds(60));
    return reports[static_cast<size_t>(task)].figures.value(name);
  }
  [[nodiscard]] int64_t resources(int task) const {
    return figure(task, "sidereal_task_resources");
  }

  std::string group_ = kGroup;
  // The master, and two that have variables.
  TestCluster cluster_{3, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Over, VariableMoves,
                         ::testing::Values(ClusterKind{cluster::Protocol::kGrpc},
                                           ClusterKind{cluster::Protocol::kStarServer},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus, 2},
                                           ClusterKind{cluster::Protocol::kStarServer, 2},
                                           ClusterKind{cluster::Protocol::kStarServerLite, 3}),
                         kind_name);

TEST_P(VariableMoves, lose_nothing_that_is_added_meanwhile) {
  const auto before = session({1, 1, 1, 1});
  ASSERT_NE(before, nullptr);
  const std::vector<int> all = {0, 1, 2, 3};
  run(before.get(), nodes("/init", all));
  std::atomic<bool> stops = false;
  int adds = 0;
  std::thread adding([&] {
    for (; !stops; ++adds) run(before.get(), nodes("/add", all));
  });
  const auto move = begin({1, 3});
  ASSERT_NE(move, nullptr);
  EXPECT_EQ(wait_until_current(move.get()), Status());
  EXPECT_GE(move->progress()->bytes, 2 * kLength * 4);
  const auto after = session({1, 2, 1, 2});
  stops = true;
  adding.join();
  ASSERT_NE(after, nullptr);
  ASSERT_EQ(hand_over(move.get()), Status());
  run(before.get(), nodes("/destroy", {1, 3}));
  EXPECT_GT(adds, 0);
  for (const int k : all) {
    EXPECT_THAT(value_of(after.get(), k), Each(static_cast<float>(k + adds))) << "part " << k;
  }
  run(after.get(), nodes("/add", all));
  for (const int k : all) {
    EXPECT_THAT(value_of(after.get(), k), Each(static_cast<float>(k + adds + 1)));
  }
  EXPECT_EQ(resources(1), 2);
  EXPECT_EQ(resources(2), 2);
  // Each is on the lane that steps are planned for.
  if (cluster::is_pull_push(GetParam().protocol)) {
    EXPECT_EQ(figure(2, "sidereal_task_handed_over_total"), 0);
  }
}

TEST_P(VariableMoves, are_of_what_all_sessions_share) {
  group_ = "";
  const std::vector<int> all = {0, 1, 2, 3};
  const auto before = session({1, 1, 1, 1});
  ASSERT_NE(before, nullptr);
  run(before.get(), nodes("/init", all));
  EXPECT_EQ(wait_until_current(begin({0}).get()), Status()) << "one that is given up";
  const auto move = begin({1, 3});
  ASSERT_NE(move, nullptr);
  EXPECT_EQ(wait_until_current(move.get()), Status());
  run(before.get(), nodes("/add", all));
  const auto after = session({1, 2, 1, 2});
  ASSERT_NE(after, nullptr);
  ASSERT_EQ(hand_over(move.get()), Status());
  run(before.get(), nodes("/destroy", {1, 3}));
  for (const int k : all) EXPECT_THAT(value_of(after.get(), k), Each(static_cast<float>(k + 1)));
  EXPECT_EQ(resources(1), 2);
  EXPECT_EQ(resources(2), 2);
}

TEST_P(VariableMoves, are_found_by_the_sessions_that_there_are) {
  const std::vector<int> all = {0, 1, 2, 3};
  const auto used = session({1, 1, 1, 1});
  ASSERT_NE(used, nullptr);
  run(used.get(), nodes("/init", all));
  run(used.get(), nodes("/add", all));
  const auto move = begin(all);
  ASSERT_NE(move, nullptr);
  EXPECT_EQ(wait_until_current(move.get()), Status());
  ir::PlacementOverrides overrides;
  for (const int k : all) overrides.variables[part(k)] = task_name_of(2) + "/device:CPU:0";
  const ir::Graph graph = PartsModel({1, 1, 1, 1}).graph();
  // What it has planned and runs no more.
  const auto old = session({1, 1, 1, 1});
  ASSERT_EQ(used->extend(graph, overrides), Status());
  ASSERT_EQ(hand_over(move.get()), Status());
  run(old.get(), nodes("/destroy", all));
  run(used.get(), nodes("/add", all));
  for (const int k : all) EXPECT_THAT(value_of(used.get(), k), Each(static_cast<float>(k + 2)));
  EXPECT_EQ(resources(1), 0);
  EXPECT_EQ(resources(2), 4);

  // A session that is made with them finds them too, and does without the task that was left.
  overrides.tasks[task_name_of(1)] = task_name_of(2);
  service::SessionOptions options = patient();
  options.state_group = kGroup;
  options.overrides = overrides;
  auto made = service::Session::create(cluster_.target(0), graph, options);
  ASSERT_TRUE(made.ok()) << made.status();
  for (const int k : all) EXPECT_THAT(value_of(made->get(), k), Each(static_cast<float>(k + 2)));
  const auto devices = (*made)->list_devices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 2U);
  EXPECT_EQ((*made)->extend(graph, {}), Status());
  EXPECT_EQ((*made)->list_devices()->size(), 3U);
  EXPECT_FALSE((*made)->run({}, {part(0) + "/read"}).ok());
}

TEST_P(VariableMoves, are_seen_by_followers_without_a_gap) {
  const auto before = session({1, 1, 1, 1});
  // So that the group is on both.
  const auto after = session({1, 2, 1, 2});
  ASSERT_NE(before, nullptr);
  ASSERT_NE(after, nullptr);
  run(before.get(), nodes("/init", {0, 1, 2, 3}));
  const auto follower = follow();
  ASSERT_NE(follower, nullptr);
  ASSERT_EQ(follower->wait_until_current(kPatience), Status());
  const auto row_one = [&]() -> float {
    std::vector<float> row(kDim);
    const std::vector<int64_t> ids = {1};
    const Status found = follower->look_up("t", ids, std::as_writable_bytes(std::span(row)));
    EXPECT_TRUE(found.ok()) << found;
    return row[0];
  };
  std::atomic<bool> stops = false;
  std::thread looking([&] {
    while (!stops) row_one();
  });
  const auto move = begin({1, 3});
  EXPECT_EQ(wait_until_current(move.get()), Status());
  EXPECT_EQ(hand_over(move.get()), Status());
  // Both have it, and one of them changes.
  EXPECT_EQ(follower->wait_until_current(kPatience), Status());
  run(after.get(), nodes("/add", {1}));
  EXPECT_EQ(follower->wait_until_current(kPatience), Status());
  EXPECT_EQ(row_one(), 2.0F);
  run(before.get(), nodes("/destroy", {1, 3}));
  EXPECT_EQ(follower->wait_until_current(kPatience), Status());
  EXPECT_EQ(row_one(), 2.0F);
  stops = true;
  looking.join();
}

TEST_P(VariableMoves, leave_nothing_where_they_are_given_up) {
  const auto before = session({1, 1, 1, 1});
  ASSERT_NE(before, nullptr);
  run(before.get(), nodes("/init", {0, 1, 2, 3}));
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    auto move = begin({0, 1, 2});
    ASSERT_NE(move, nullptr);
    if (i % 2 == 0) {
      poll(nullptr, 0, static_cast<int>(random() % 20));
    } else {
      ASSERT_EQ(wait_until_current(move.get()), Status());
      const Status taken = i % 4 == 1 ? move->take(kPatience) : Status();
      ASSERT_TRUE(taken.ok()) << taken;
    }
    move = nullptr;
    run(before.get(), nodes("/add", {0}));
  }
  EXPECT_TRUE(eventually([&] { return resources(2) == 0; }, 60));
  EXPECT_THAT(value_of(before.get(), 0), Each(20.0F));
  // What is there yet of one that was given up is in nobody's way for long.
  EXPECT_TRUE(eventually(
      [&] {
        const auto move = begin({0});
        return wait_until_current(move.get()).ok() && move->take(kPatience).ok() &&
               move->commit().ok();
      },
      60));
}

TEST_P(VariableMoves, take_the_place_of_what_one_before_has_left_and_no_step_has_used) {
  const auto before = session({1, 1, 1, 1});
  ASSERT_NE(before, nullptr);
  // So that the group is on both.
  const auto after = session({2, 2, 1, 1});
  ASSERT_NE(after, nullptr);
  run(before.get(), nodes("/init", {0, 1, 2, 3}));
  const auto move_all = [&](const std::vector<int>& parts) {
    const auto move = begin(parts);
    const Status current = wait_until_current(move.get());
    if (!current.ok()) return current;
    return hand_over(move.get());
  };
  // Another task did not keep its own, so that all are used where they were.
  ASSERT_EQ(move_all({0, 1}), Status());
  EXPECT_EQ(resources(2), 2);
  run(before.get(), nodes("/add", {0, 1}));
  ASSERT_EQ(move_all({0, 1}), Status());
  EXPECT_EQ(resources(2), 2);
  for (const int k : {0, 1}) {
    EXPECT_THAT(value_of(after.get(), k), Each(static_cast<float>(k + 1))) << "part " << k;
  }
  run(after.get(), nodes("/add", {0}));
  const Status refused = move_all({0});
  EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists) << refused;
  EXPECT_THAT(value_of(after.get(), 0), Each(2.0F));
}

TEST_P(VariableMoves, are_refused_for_names_that_are_nowhere_and_those_that_are_there) {
  const auto before = session({1, 2, 1, 1});
  ASSERT_NE(before, nullptr);
  run(before.get(), nodes("/init", {0, 1, 2}));
  auto move = begin({0, 3});
  ASSERT_EQ(wait_until_current(move.get()), Status());
  Status status = move->take(kPatience);
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("'t/part_3'"));

  // Part 1 is on task 2, and on task 1 is another of its name.
  const auto other = session({1, 1, 1, 1});
  ASSERT_NE(other, nullptr);
  run(other.get(), nodes("/init", {1}));
  move = begin({0, 1});
  ASSERT_EQ(wait_until_current(move.get()), Status());
  status = move->take(kPatience);
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("'t/part_1'"));
  EXPECT_EQ(move->commit().code(), StatusCode::kAlreadyExists);
  run(before.get(), nodes("/add", {1}));
  EXPECT_THAT(value_of(before.get(), 1), Each(2.0F));
  EXPECT_EQ(resources(2), 1);
}

TEST_P(VariableMoves, fail_with_a_task_that_they_are_from) {
  const auto before = session({1, 1, 1, 1});
  ASSERT_NE(before, nullptr);
  run(before.get(), nodes("/init", {0, 1, 2, 3}));
  const auto move = begin({0});
  ASSERT_EQ(wait_until_current(move.get()), Status());
  cluster_.stop(1);
  EXPECT_TRUE(eventually([&] { return !move->progress().ok(); }, 60));
  const Status status = move->take(kPatience);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(base::message_of(status), HasSubstr("task:1"));
}

/// A task that has part 0, and dies as it is asked for the rest of it.
class DyingGiver final : public session::v1::Worker::Service {
 public:
  DyingGiver() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~DyingGiver() override { server_->Shutdown(std::chrono::system_clock::now()); }
  DyingGiver(const DyingGiver&) = delete;
  DyingGiver& operator=(const DyingGiver&) = delete;

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  using Stream = grpc::ServerReaderWriter<session::v1::FollowReply, session::v1::FollowRequest>;

  grpc::Status FollowChanges(grpc::ServerContext* /*context*/, Stream* stream) override {
    session::v1::FollowRequest request;
    while (!is_dead_ && stream->Read(&request)) {
      if (request.has_head()) give(stream);
      if (request.mark() > 0) is_dead_ = true;
    }
    return {grpc::StatusCode::UNAVAILABLE, "it has died"};
  }
  static void give(Stream* stream) {
    session::v1::FollowReply reply;
    reply.mutable_begun()->set_lanes(1);
    reply.mutable_begun()->set_incarnation(1);
    reply.mutable_begun()->set_life(1);
    stream->Write(reply);
    resources::EntryWriter all(
        {.kind = resources::EntryKind::kLastPiece, .to = {.incarnation = 1, .cut = 1}});
    all.put_value(part(0), 1, tensor::Tensor::zeros(DType::kFloat32, Shape{kRows, kDim}));
    reply.Clear();
    reply.set_entry(std::move(all).finish());
    reply.set_end(1);
    stream->Write(reply);
  }

  std::atomic<bool> is_dead_ = false;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_P(VariableMoves, fail_at_once_when_a_task_dies_while_what_is_left_is_taken) {
  DyingGiver giver;
  auto credentials = security::Credentials::create(cluster_.options().security);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  auto move = VariableMove::begin(
      address_of(2), kGroup,
      {{.from = {.task = task_name_of(1), .address = giver.address()}, .names = {part(0)}}},
      *credentials);
  ASSERT_TRUE(move.ok()) << move.status();
  ASSERT_EQ(wait_until_current(move->get()), Status());
  const Stopwatch watch;
  const Status status = (*move)->take(kPatience);
  EXPECT_LT(watch.seconds(), 30) << "all the time there was";
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr(task_name_of(1)));
  EXPECT_TRUE(eventually([&] { return resources(2) == 0; }, 60));
}

}  // namespace
}  // namespace sidereal::app
