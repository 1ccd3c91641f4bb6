#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/app/testing/model.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/service/session.h"
#include "sidereal/sys/posix/posix.h"

// Sessions that save and restore the variables of a task while other sessions push to them.
namespace sidereal::app {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr const char* kPs = "/job:w/replica:0/task:0/device:CPU:0";
constexpr int64_t kRows = 20'000;  // More than a variable may have that is saved in one piece.
constexpr int64_t kDim = 16;
constexpr int kTables = 3;

class CheckpointSessions : public ::testing::TestWithParam<ClusterKind> {
 protected:
  CheckpointSessions() {
    std::string place = ::testing::TempDir() + "checkpoints.XXXXXX";
    directory_ = ::mkdtemp(place.data());
    prefix_ = directory_ + "/model.ckpt-1";
    for (int i = 0; i < kTables; ++i) {
      const std::string name = "w" + std::to_string(i);
      const ir::Output handle = model_.add(
          "Variable", {}, {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", kShape}},
          name + "/handle", kPs);
      handles_.push_back(handle);
      names_.push_back(name);
      const ir::Output extents = model_.add(
          "Const", {}, {{"value", Tensor::of<int64_t>({2}, {kRows, kDim})}}, name + "/shape", kPs);
      const ir::Output zeros =
          model_.add("BroadcastTo", {model_.constant({0}, name + "/zero", kPs), extents}, {},
                     name + "/zeros", kPs);
      model_.add("VariableAssign", {handle, zeros}, {}, name + "/init", kPs);
      model_.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", kShape}},
                 name + "/read", kPs);
    }
  }
  ~CheckpointSessions() override { std::filesystem::remove_all(directory_); }

  ir::Output text(const std::string& value, const std::string& name) {
    return model_.add("Const", {},
                      {{"value", Tensor::strings(Shape(), std::vector<std::string>{value})}}, name,
                      kPs);
  }
  /// Node "push/I" adds 1 to some rows of table I: the same ones each time.
  void add_pushes() {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < kRows; row += 7) rows.push_back(row);
    const auto count = static_cast<int64_t>(rows.size());
    const std::vector<float> ones(static_cast<size_t>(count * kDim), 1);
    for (size_t i = 0; i < handles_.size(); ++i) {
      const std::string name = "push/" + std::to_string(i);
      const ir::Output ids = model_.add(
          "Const", {}, {{"value", Tensor::of<int64_t>({count}, rows)}}, name + "/rows", kPs);
      const ir::Output values = model_.add(
          "Const", {}, {{"value", Tensor::of<float>({count, kDim}, ones)}}, name + "/ones", kPs);
      model_.add("VariableScatterAdd", {handles_[i], ids, values}, {}, name, kPs);
    }
  }
  /// Nodes "save" and "restore".
  void add_checkpoint() {
    const ir::Output prefix = text(prefix_, "prefix");
    const ir::Output none = text("", "none");
    const ir::AttrMap names = {{"names", names_}};
    ir::AttrMap saved = names;
    saved["shard"] = int64_t{0};
    saved["shards"] = int64_t{1};
    std::vector<ir::Output> inputs = {prefix, none};
    inputs.insert(inputs.end(), handles_.begin(), handles_.end());
    const ir::Output part = model_.add("SaveVariables", inputs, saved, "part", kPs);
    model_.add("CommitCheckpoint", {prefix, none, part}, {}, "save", kPs);
    inputs.erase(inputs.begin() + 1);
    model_.add("RestoreVariables", inputs, names, "restore", kPs);
  }
  std::unique_ptr<service::Session> session(int task) {
    service::SessionOptions options = patient();
    options.pull_prefetch_ms = 0;
    auto made = service::Session::create(cluster_.target(task), model_.graph(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  static void run(service::Session* session, const std::vector<std::string>& targets) {
    const auto done = session->run({}, {}, targets);
    ASSERT_TRUE(done.ok()) << done.status();
  }
  /// How many pushes a table has; fails when its rows differ in that.
  static float pushes_in(const Tensor& value) {
    const auto all = value.data<const float>();
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kDim; ++i) {
        const float wanted = row % 7 == 0 ? all[0] : 0;
        if (all[static_cast<size_t>(row * kDim + i)] == wanted) continue;
        ADD_FAILURE() << "row " << row << " has " << all[static_cast<size_t>(row * kDim + i)]
                      << " pushes, not " << wanted;
        return -1;
      }
    }
    return all[0];
  }

  static inline const Shape kShape{kRows, kDim};
  TestCluster cluster_{2, GetParam()};
  Model model_;
  std::vector<ir::Output> handles_;
  std::vector<std::string> names_;
  std::string directory_;
  std::string prefix_;
};

INSTANTIATE_TEST_SUITE_P(Over, CheckpointSessions,
                         ::testing::Values(ClusterKind{cluster::Protocol::kGrpc},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus, 3},
                                           ClusterKind{cluster::Protocol::kStarServer},
                                           ClusterKind{cluster::Protocol::kStarServer, 3},
                                           ClusterKind{cluster::Protocol::kStarServerLite, 2}),
                         kind_name);

TEST_P(CheckpointSessions, save_an_instant_of_each_table_while_others_push) {
  constexpr int kSaves = 8;
  add_pushes();
  add_checkpoint();
  const auto saver = session(0);
  run(saver.get(), {"w0/init", "w1/init", "w2/init"});
  std::atomic<bool> stop = false;
  std::latch pushing(2);
  std::vector<std::thread> pushers;
  for (int task = 0; task < 2; ++task) {
    pushers.emplace_back([&, task] {
      const auto own = session(task);
      run(own.get(), {"push/0", "push/1", "push/2"});
      pushing.count_down();
      while (!stop) run(own.get(), {"push/0", "push/1", "push/2"});
    });
  }
  pushing.wait();
  std::vector<float> before(kTables);
  for (int save = 0; save < kSaves; ++save) {
    run(saver.get(), {"save"});
    const auto reader = ckpt::CheckpointReader::open(sys::posix::create_disk(), prefix_);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (size_t i = 0; i < kTables; ++i) {
      const float pushes = pushes_in((*reader)->read(names_[i]).value());
      EXPECT_GE(pushes, before[i]) << "a push was lost";
      before[i] = pushes;
    }
  }
  stop = true;
  for (std::thread& pusher : pushers) pusher.join();
  EXPECT_GT(before[0], 0);

  run(saver.get(), {"restore"});
  const auto got = saver->run({}, {"w0/read", "w1/read", "w2/read"});
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < kTables; ++i) EXPECT_EQ(pushes_in((*got)[i]), before[i]);
}

TEST_P(CheckpointSessions, that_end_leave_no_half_of_a_checkpoint) {
  add_checkpoint();
  const auto keeper = session(0);
  run(keeper.get(), {"w0/init", "w1/init", "w2/init"});
  run(keeper.get(), {"save"});
  for (int i = 0; i < 5; ++i) {
    const auto one = session(1);
    std::thread saving([&] { static_cast<void>(one->run({}, {}, {"save"})); });
    static_cast<void>(one->close());
    saving.join();
    const auto reader = ckpt::CheckpointReader::open(sys::posix::create_disk(), prefix_);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_TRUE((*reader)->verify("w0").ok());
  }
}

}  // namespace
}  // namespace sidereal::app
