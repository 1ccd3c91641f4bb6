#pragma once

#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sidereal/exec/executor.h"
#include "sidereal/ir/builder.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"
#include "sidereal/reference/reference.h"
#include "sidereal/resources/manager.h"

/// What the tests of this module share: a graph, compiled to one program, run by a real executor.
namespace sidereal::exec {

/// The schemas of this release.
const ir::OpRegistry& test_registry();
/// The kernels of this release.
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

/// Gives the float32 variables of `manager` these values.
void set_variables(resources::Manager* manager, const reference::Values& values);
/// The value of a variable of `manager`; fails the test when it has none.
tensor::Tensor variable_of(const resources::Manager& manager, const std::string& name);

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

/// Passes; with `fuse` those that make one node of several and fold constants too.
passes::PassOptions passes_of(bool fuse);

/// A graph with its fetches and targets as one program, whatever devices its nodes ask for.
Result<program::Program> compile_for_test(const ir::Graph& graph,
                                          const std::vector<ir::Output>& fetches,
                                          const std::vector<ir::NodeId>& targets = {},
                                          const passes::PassOptions& options = passes_of(true));

/// Feeds `step` by name and runs it, which must need nobody.
Result<std::vector<tensor::Tensor>> run_step(Step* step, const program::Program& program,
                                             const reference::Values& feeds, uint64_t step_id);

/// Fails the test unless both are alike to `tolerance`, relative for numbers above 1.
void expect_close(const tensor::Tensor& got, const tensor::Tensor& want, double tolerance);

/// Fails the test unless both are the same to the last bit.
void expect_same(const std::vector<tensor::Tensor>& got, const std::vector<tensor::Tensor>& want);

/// Names of the ops of a program's instructions.
std::set<std::string> ops_of(const program::Program& program);

/// A model of one program, to be filled by those that derive from it.
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
