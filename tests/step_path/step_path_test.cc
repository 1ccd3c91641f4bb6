// A parameter server's lane takes neither memory nor locks for a step that it has done before.

#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/app/testing/model.h"
#include "tests/step_path/watch.h"

namespace sidereal::app {
namespace {

using cluster::Protocol;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int kWarm = 200;
constexpr int kSteps = 300;

/// What a parameter server does for models of clicks: weights that are pulled whole and pushed
/// whole, tables of which rows are pulled and pushed, and optimizers with and without slots.
class ClickModel : public Model {
 public:
  ClickModel() {
    const ir::Output step = add("Const", {}, {{"value", Tensor::scalar(1.0)}}, "step", "/task:0");
    const ir::Output rate = add("Const", {}, {{"value", Tensor::scalar(0.1F)}}, "rate", "/task:0");
    for (int i = 0; i < kDense; ++i) {
      // One is sent from where it is: a reader may hold it while it is changed.
      const Shape shape = {i == 0 ? 5000 : 16};
      const std::string name = "dense" + std::to_string(i);
      const bool has_slot = i % 2 == 1;
      const ir::Output v = variable(name, shape);
      const ir::Output pulled = read(v, shape);
      const ir::Output gradient = add("Tanh", {pulled}, {}, "", "/task:0");
      std::vector<ir::Output> inputs = {v, gradient, step, rate};
      if (has_slot) inputs.push_back(variable(name + "_slot", shape));
      update("VariableUpdateDense", inputs, has_slot);
    }
    const ir::Output ids =
        add("Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", Shape{-1}}}, "ids", "/task:0");
    for (int i = 0; i < kTables; ++i) {
      const std::string name = "table" + std::to_string(i);
      const ir::Output v = variable(name, Shape{kRows, 8});
      const ir::Output rows = add("Gather", {read(v, Shape{kRows, 8}), ids}, {}, "", "/task:1");
      const ir::Output gradient = add("Tanh", {rows}, {}, "", "/task:0");
      update("VariableUpdateRows",
             {v, ids, gradient, step, rate, variable(name + "_slot", Shape{kRows, 8})}, true);
    }
  }

  [[nodiscard]] const std::vector<std::string>& inits() const { return inits_; }
  [[nodiscard]] const std::vector<std::string>& updates() const { return updates_; }
  static std::vector<service::Session::Feed> feeds(int step) {
    std::vector<int64_t> ids(64);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>(i * 37 + static_cast<size_t>(step) * 11) % kRows;
    }
    return {{"ids", Tensor::of(Shape{64}, ids)}};
  }

 private:
  static constexpr int kDense = 20;
  static constexpr int kTables = 3;
  static constexpr int64_t kRows = 1000;

  ir::Output variable(const std::string& name, const Shape& shape) {
    const ir::Output v =
        add("Variable", {}, {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", shape}},
            name, "/task:1");
    Tensor zeros = Tensor::zeros(DType::kFloat32, shape);
    for (float& x : zeros.data<float>()) x = 0.5F;
    inits_.push_back("init_" + name);
    add("VariableAssign", {v, add("Const", {}, {{"value", zeros}}, "", "/task:1")}, {},
        inits_.back(), "/task:1");
    return v;
  }
  ir::Output read(ir::Output v, const Shape& shape) {
    return add("VariableRead", {v}, {{"dtype", DType::kFloat32}, {"shape", shape}}, "", "/task:1");
  }
  void update(std::string_view op, const std::vector<ir::Output>& inputs, bool has_slot) {
    updates_.push_back("update" + std::to_string(updates_.size()));
    add_node(op, inputs, {{"kind", std::string(has_slot ? "adagrad" : "sgd")}}, updates_.back(),
             "/task:1");
  }

  std::vector<std::string> inits_;
  std::vector<std::string> updates_;
};

struct Kind {
  Protocol protocol = Protocol::kStarServer;
  int lanes = 1;
  bool shared_memory = true;
  int watched = 0;  ///< The lane.
};
std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  const Kind& kind = info.param;
  std::string name = test_name({kind.protocol, info.index});
  name += kind.shared_memory ? "_in_memory" : "_over_tcp";
  return name + "_lane_" + std::to_string(kind.watched) + "_of_" + std::to_string(kind.lanes);
}

class StepPath : public ::testing::TestWithParam<Kind> {
 protected:
  static ServerOptions options() {
    ServerOptions out;
    out.protocol = GetParam().protocol;
    out.lanes = GetParam().lanes;
    out.data.shared_memory = GetParam().shared_memory ? 1 : 0;
    return out;
  }
  std::unique_ptr<service::Session> session() {
    auto made = service::Session::create(cluster_.target(), model_.graph(), patient());
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  void run(service::Session* session, int first, int count) {
    for (int i = first; i < first + count; ++i) {
      const auto done = session->run(ClickModel::feeds(i), {}, model_.updates());
      ASSERT_TRUE(done.ok()) << done.status();
    }
  }
  static pid_t lane() {
    const pid_t found = step_path::find_thread("w:1/" + std::to_string(GetParam().watched));
    EXPECT_GT(found, 0);
    return found;
  }

  /// Of the steps of one worker. How many asynchronous pushes, or steps whose end is on its way,
  /// are there at once is chance: memory for one more than ever before.
  static size_t allocations_max() {
    switch (GetParam().protocol) {
      case Protocol::kStarServerLite:
        return kSteps / 10;
      case Protocol::kGrpcPlusPlus:
        return kSteps / 2;
      default:
        return 0;
    }
  }

  const TestCluster cluster_{2, options()};
  const ClickModel model_;
};
constexpr Kind kKinds[] = {
    {.protocol = Protocol::kStarServer},
    {.protocol = Protocol::kStarServer, .shared_memory = false},
    {.protocol = Protocol::kStarServer, .lanes = 3, .watched = 2},
    {.protocol = Protocol::kStarServerLite},
    {.protocol = Protocol::kStarServerLite, .shared_memory = false},
    {.protocol = Protocol::kGrpcPlusPlus},
    {.protocol = Protocol::kGrpcPlusPlus, .shared_memory = false},
};
INSTANTIATE_TEST_SUITE_P(Of, StepPath, ::testing::ValuesIn(kKinds), name_of);

TEST_P(StepPath, takes_no_memory_no_lock_and_no_atomic_change) {
  const auto worker = session();
  ASSERT_TRUE(worker->run({}, {}, model_.inits()).ok());
  run(worker.get(), 0, kWarm);
  const size_t most = allocations_max();
  step_path::watch(lane(), most == 0);
  run(worker.get(), kWarm, kSteps);
  const step_path::Counts counts = step_path::stop();
  RecordProperty("changes", step_path::counts_changes() ? std::to_string(counts.changes) : "?");
  EXPECT_LE(counts.allocations, most) << step_path::who_asked();
  EXPECT_LE(counts.changes, most) << step_path::who_asked();
  EXPECT_EQ(counts.locks, 0U) << step_path::who_asked();
}

/// Steps of many workers take memory where more of them are there at once than ever before, which
/// is seldom.
TEST_P(StepPath, of_many_workers_takes_nearly_none) {
  constexpr int kWorkers = 4;
  std::vector<std::unique_ptr<service::Session>> workers;
  for (int i = 0; i < kWorkers; ++i) workers.push_back(session());
  ASSERT_TRUE(workers[0]->run({}, {}, model_.inits()).ok());
  const auto all_run = [&](int first, int count) {
    std::vector<std::thread> threads;
    for (const auto& one : workers) {
      threads.emplace_back([&, first, count] { run(one.get(), first, count); });
    }
    for (std::thread& thread : threads) thread.join();
  };
  all_run(0, kWarm);
  step_path::watch(lane());
  all_run(kWarm, kSteps);
  const step_path::Counts counts = step_path::stop();
  RecordProperty("allocations", std::to_string(counts.allocations));
  constexpr size_t kAll = kWorkers * kSteps;
  // A variable that is sent from where it is may be on its way to more workers at once than it has
  // memory for: then a step takes two pieces for it.
  const bool keeps_answers = GetParam().protocol == Protocol::kGrpcPlusPlus;
  const size_t renewed = keeps_answers ? 2 * model_.inits().size() * kAll : 0;
  EXPECT_LT(counts.allocations, kAll / 10 + renewed) << step_path::who_asked();
  EXPECT_EQ(counts.locks, 0U) << step_path::who_asked();
}

TEST(Watch, sees_what_a_thread_takes) {
  step_path::watch(gettid());
  std::mutex mutex;
  {
    const std::lock_guard lock(mutex);
    std::vector<int> memory(100);
    memory[0] = 1;
    static_cast<void>(*const_cast<volatile int*>(memory.data()));
  }
  std::thread([] { const std::vector<int> of_another_thread(100); }).join();
  const step_path::Counts counts = step_path::stop();
  EXPECT_EQ(counts.locks, 1U) << step_path::who_asked();
  // A thread that is made takes memory, too.
  EXPECT_GE(counts.allocations, 1U);
  EXPECT_LE(counts.allocations, 4U) << step_path::who_asked();
}

}  // namespace
}  // namespace sidereal::app
