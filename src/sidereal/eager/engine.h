#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "sidereal/eager/context.h"
#include "sidereal/eager/gradient_plan.h"

namespace sidereal::eager {

class Tape;

/// A tensor that has been given a name of its own: a number by which tapes know it.
struct Value {
  Tensor tensor;
  uint64_t id = 0;
  [[nodiscard]] bool defined() const { return tensor.defined(); }
  [[nodiscard]] ir::TensorSpec spec() const { return {tensor.dtype(), tensor.shape()}; }
};

/// What flowed back into a value: nothing, a tensor of its shape, or the gradient of some of its
/// rows, `rows` (values, indices, to_dense).
struct Gradient {
  Value dense;
  Value values;   ///< indices.shape + shape of a row.
  Value indices;  ///< Rows along dimension 0; may repeat.
  Value of;       ///< The value that this is the gradient of; sparse only.
  const ir::OpSchema* to_dense = nullptr;
  ir::AttrMap attrs;
  [[nodiscard]] bool is_sparse() const { return to_dense != nullptr; }
  [[nodiscard]] bool defined() const { return dense.defined() || is_sparse(); }
};

/// The gradients of a function's inputs from those of its outputs (undefined: zero).
using Backward = std::function<Result<std::vector<Gradient>>(std::span<const Value>)>;

/// True for dtypes through which gradients flow.
bool is_differentiable(tensor::DType dtype);

/// Runs ops at once and shows them to the tapes that listen.
/// Thread: one at a time (Python: under the GIL); tapes are each of one thread.
class Engine {
 public:
  explicit Engine(size_t programs_max = Context::kDefaultEntries);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Context& context() { return context_; }

  /// `tensor` with a new number.
  Value wrap(Tensor tensor) { return {std::move(tensor), ++last_id_}; }

  /// What may be said of one run.
  struct Options {
    std::string_view name = {};  ///< For messages.
    uint64_t step = 0;           ///< 0: a new one.
  };
  /// Runs an op and appends its outputs. Errors are those of Context::run().
  Status run(const ir::OpSchema& schema, std::span<const Value* const> inputs,
             const ir::AttrMap& attrs, const Options& options, std::vector<Value>* outputs);
  /// The only output of `op`, one of this release. For the engine's own use.
  Result<Value> run_one(std::string_view op, std::span<const Value* const> inputs,
                        const ir::AttrMap& attrs = {});

  /// Tells the tapes of a function of `inputs` that ran outside of the engine.
  void record(std::string_view what, std::span<const Value* const> inputs,
              std::span<const Value> outputs, Backward backward);
  /// True when a tape would record an op on these inputs.
  [[nodiscard]] bool listens(std::span<const Value* const> inputs) const;

  /// A tape listens, from push to remove, to what the thread runs that pushed it.
  void push(Tape* tape) { listeners_.push_back({tape, std::this_thread::get_id()}); }
  void remove(const Tape* tape) {
    std::erase_if(listeners_, [tape](const Listener& l) { return l.tape == tape; });
  }
  [[nodiscard]] bool has(const Tape* tape) const;

  /// Asked for the line of the user's program when an op is recorded that has no gradient.
  void set_site(std::function<std::string()> site) { site_ = std::move(site); }
  [[nodiscard]] std::string site() const { return site_ ? site_() : std::string(); }

  /// Asked now and then while a loop runs: true ends the call with kCancelled.
  void set_interrupt(std::function<bool()> interrupt) { interrupt_ = std::move(interrupt); }
  [[nodiscard]] bool interrupted() const { return interrupt_ && interrupt_(); }

  /// The whole gradient, made of its rows if need be. Undefined stays undefined.
  Result<Value> to_dense(const Gradient& gradient);
  /// The sum, from the first to the last. Rows stay rows when all are.
  Result<Gradient> sum(std::vector<Gradient> terms);

  /// The plan of the gradient of one recorded call, which `named` calls by name in errors. Good
  /// until the next call.
  Result<const GradientPlan*> plan(const CallView& call, const std::vector<ir::TensorSpec>& outputs,
                                   const std::vector<bool>& reached,
                                   const std::vector<bool>& wanted,
                                   const std::function<std::string()>& named);

 private:
  Result<Gradient> join_rows(const std::vector<Gradient>& terms);

  struct Listener {
    Tape* tape;
    std::thread::id thread;
  };

  template <class F>
  void for_each_listener(std::span<const Value* const> inputs, F f) const;

  Context context_;
  std::vector<Listener> listeners_;
  std::vector<Tensor> scratch_;
  std::vector<const Tensor*> pointers_;
  std::function<std::string()> site_;
  std::function<bool()> interrupt_;
  CallCache<GradientPlan> plans_;
  std::unique_ptr<GradientPlan> uncached_;
  uint64_t last_id_ = 0;
};

}  // namespace sidereal::eager
