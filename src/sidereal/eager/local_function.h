#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sidereal/eager/engine.h"
#include "sidereal/ir/graph.h"

namespace sidereal::eager {

/// A graph with inputs and outputs. Value type.
struct FunctionDef {
  std::string name;
  ir::Graph graph;
  std::vector<ir::Output> inputs;   ///< Outputs of Placeholder nodes.
  std::vector<ir::Output> outputs;  ///< May repeat, and may be inputs.
  std::vector<ir::NodeId> targets;  ///< Nodes to run for what they do.
  /// kBFloat16: products read bfloat16 where the processor has units for it
  /// (passes/mixed_precision.h); gradients as well. Else everything is computed as written.
  ir::DType compute_dtype = ir::DType::kFloat32;
};

/// A graph that runs as one program in this process. It is optimised and compiled when it is first
/// run, and differentiated when a tape first listens: then it runs in a form that gives out the
/// values its gradient needs, and the gradient is another such function.
/// Thread: core-local. Owned by shared pointers: tapes hold what they recorded.
class LocalFunction : public std::enable_shared_from_this<LocalFunction> {
 public:
  explicit LocalFunction(FunctionDef def);
  ~LocalFunction();
  LocalFunction(const LocalFunction&) = delete;
  LocalFunction& operator=(const LocalFunction&) = delete;

  /// Runs it; the outputs are the caller's. `step` as in Context::run(), 0: a new one.
  /// Errors: those of passes and programs at the first call; those of kernels, naming the node.
  Result<std::vector<Value>> call(Engine& engine, std::span<const Value* const> inputs,
                                  uint64_t step = 0);
  /// As call() where no tape listens. kDeadlineExceeded when it waits for other steps, or loops,
  /// for longer than `limit`; 0: the engine's operation timeout alone. Denormal numbers count as
  /// zero meanwhile, as on servers.
  Result<std::vector<Value>> call_within(Engine& engine, std::span<const Value* const> inputs,
                                         std::chrono::nanoseconds limit);

  /// A variable that a function gives another value: it comes in as input `input`, and output
  /// `output` goes into `*value`.
  struct Kept {
    size_t input = 0;
    size_t output = 0;
    Tensor* value = nullptr;
  };
  /// As call() where no tape listens. Variables are read from `kept`, whatever stands in their
  /// places among the inputs, and written back: into the memory they have where nobody else holds
  /// it, by ops that update in place without a copy. Appends the other outputs, in their order, to
  /// `outputs`. Takes no memory when warm, but for outputs that the caller keeps.
  /// After an error a variable may have been updated already.
  Status update(Engine& engine, std::span<const Value* const> inputs, std::span<const Kept> kept,
                std::vector<Value>* outputs);

  [[nodiscard]] const FunctionDef& def() const { return def_; }
  /// What products are computed in: what was asked for, or float32 without units for it.
  [[nodiscard]] ir::DType compute_dtype() const;
  /// The instructions, for people; compiles if need be.
  Result<std::string> program_text(Engine& engine);

 private:
  struct Compiled;
  struct Derivative;

  /// The number of a call, from 1 on for each function: equal ones draw equal random values, whatever
  /// else the program has run. TensorFlow's functions begin again the same way.
  uint64_t next_step() { return ++steps_; }
  Status compile(Engine& engine);
  Status differentiate(Engine& engine);
  Status run(Engine& engine, std::span<const Value* const> inputs, std::span<const Kept> kept,
             uint64_t step, std::vector<Value>* outputs, std::chrono::nanoseconds limit = {});
  Result<std::vector<Value>> run(Engine& engine, std::span<const Value* const> inputs,
                                 uint64_t step);
  Result<std::vector<Gradient>> gradient(Engine& engine, std::span<const Value> inputs,
                                         std::span<const Value> outputs, std::span<const Value> dys,
                                         uint64_t step) const;

  FunctionDef def_;
  std::unique_ptr<Compiled> compiled_;
  std::shared_ptr<Derivative> derivative_;
  uint64_t steps_ = 0;
};

}  // namespace sidereal::eager
