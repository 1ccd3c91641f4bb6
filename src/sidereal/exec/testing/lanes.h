#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sidereal/exec/executor.h"
#include "sidereal/ir/builder.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/layout.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"
#include "sidereal/reference/reference.h"

/// What the tests of this module share: a graph, compiled as a worker compiles it, run by real
/// executors; the ps lanes are here as well, behind an exchange that answers when it is told to.
namespace sidereal::exec {

/// The schemas of this release.
const ir::OpRegistry& test_registry();
/// The kernels of a worker, and those of a ps.
const KernelTable& all_kernels();

/// Reproducible choices and numbers.
class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  /// From [low, high].
  int64_t number(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return number(1, 100) <= percent; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[random_() % from.size()];
  }
  /// Evenly from [low, high], whatever the dtype.
  tensor::Tensor tensor(tensor::DType dtype, const tensor::Shape& shape, double low, double high);

 private:
  std::mt19937 random_;
};

/// Variables of all lanes, updated by w -= rate * g.
/// Thread: core-local.
class TestVariables final : public ports::Parameters {
 public:
  /// `values` are whole variables, float32. All borrowed.
  TestVariables(reference::Values* values, const passes::Placement* placement, float rate);
  ~TestVariables() override;
  Result<ports::ParameterShard*> find(std::string_view variable, int64_t shard) override;

 private:
  class Shard;
  reference::Values* values_;
  const passes::Placement* placement_;
  float rate_;
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<Shard>> shards_;
};

/// The ps lanes of a compiled step. Calls wait in line until they are answered: calls to one lane
/// in their order, those to different lanes in any. Thread: core-local.
class TestExchange final : public ports::Exchange {
 public:
  TestExchange(const program::CompiledStep* step, ports::Parameters* variables, BufferPool* pool);
  ~TestExchange() override;

  Status start(int call, uint64_t step, std::span<const tensor::Tensor> feeds,
               ports::CallCompletion* completion) override;
  void yield() override {
    if (on_yield) on_yield();
  }

  [[nodiscard]] size_t waiting() const { return waiting_.size(); }
  /// Runs the program of a waiting call and tells its step.
  void answer(size_t which);
  /// As answer(), chosen by `dice`.
  void answer_any(Dice* dice);
  /// Ends a waiting call with an error.
  void fail(size_t which, const Status& why);

  std::function<void()> on_yield;
  std::set<std::string> ops_run;  ///< By programs bound here.

 private:
  struct Waiting {
    int call;
    uint64_t step;
    std::vector<tensor::Tensor> feeds;
    ports::CallCompletion* completion;
  };
  struct Remote {
    std::unique_ptr<BoundProgram> bound;
    std::unique_ptr<Step> step;
  };

  Status run(const Waiting& waiting);
  [[nodiscard]] bool is_first_of_its_lane(size_t which) const;

  const program::CompiledStep* step_;
  std::vector<Remote> remotes_;
  std::vector<Waiting> waiting_;
};

/// Takes note of calls and lets the test answer them. Thread: core-local.
class NotedExchange final : public ports::Exchange {
 public:
  struct Noted {
    int call;
    uint64_t step;
    std::vector<tensor::Tensor> feeds;
    ports::CallCompletion* completion;
  };
  Status start(int call, uint64_t step, std::span<const tensor::Tensor> feeds,
               ports::CallCompletion* completion) override {
    if (!refuse.ok()) return refuse;
    calls.push_back({call, step, {feeds.begin(), feeds.end()}, completion});
    return {};
  }
  void yield() override {
    ++yields;
    if (on_yield) on_yield();
  }
  void answer(size_t which, std::vector<tensor::Tensor> values) {
    calls[which].completion->done({}, values);
  }

  Status refuse;
  std::vector<Noted> calls;
  int yields = 0;
  std::function<void()> on_yield;
};

/// A graph with its fetches and targets, compiled for `topology`.
struct TestStep {
  passes::Placement placement;
  program::CompiledStep compiled;
};
Result<TestStep> compile_for_test(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                                  const std::vector<ir::NodeId>& targets,
                                  const passes::Topology& topology, bool fuse = true);
Result<TestStep> compile_for_test(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                                  const std::vector<ir::NodeId>& targets,
                                  const passes::Topology& topology,
                                  const passes::PassOptions& options,
                                  const partition::PullPushOptions& cut = {});

/// Feeds `step` by name and runs it, answering calls in an order that `dice` chooses.
Result<std::vector<tensor::Tensor>> run_step(Step* step, const program::Program& program,
                                             const reference::Values& feeds, uint64_t step_id,
                                             TestExchange* exchange, Dice* dice);

/// Fails the test unless both are alike to `tolerance`, relative for numbers above 1.
void expect_close(const tensor::Tensor& got, const tensor::Tensor& want, double tolerance);

/// Fails the test unless both are the same to the last bit.
void expect_same(const std::vector<tensor::Tensor>& got, const std::vector<tensor::Tensor>& want);

/// Names of the ops of a program's instructions.
std::set<std::string> ops_of(const program::Program& program);

/// A model without a ps, to be filled by those that derive from it.
/// Thread: core-local.
class LocalModel {
 public:
  explicit LocalModel(uint32_t seed) : dice(seed) {}

  /// Copies of its fetches, and the test fails if they differ when the step runs again. None if it
  /// does not run, which fails the test. Afterwards `ops` are those of its program.
  std::vector<tensor::Tensor> run(const passes::PassOptions& options);

  Dice dice;
  ir::Graph graph;
  ir::Builder b{&graph, &test_registry()};
  reference::Values feeds;
  std::vector<ir::Output> fetches;
  std::set<std::string> ops;
};

}  // namespace sidereal::exec
