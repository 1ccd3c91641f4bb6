#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "sidereal/base/status.h"
#include "sidereal/ports/ports.h"
#include "sidereal/program/program.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/resources/manager.h"
#include "sidereal/resources/owner.h"
#include "sidereal/sys/disk.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::exec {

class Kernel;
class Step;

/// What a run of an instruction looks at, close together: processes that share a core run steps
/// with cold caches, and an instruction has names, attributes and a list elsewhere for each of
/// these besides. Value type; borrows what it is made of.
struct BoundInstruction {
  Kernel* kernel = nullptr;  ///< nullptr: it is not computed.
  const program::Instruction* source = nullptr;
  const int32_t* slots = nullptr;  ///< Those read, written and released, in this order.
  int32_t num_inputs = 0;
  int32_t num_outputs = 0;
  int32_t num_releases = 0;
  int32_t call = -1;
  program::InstructionKind kind = program::InstructionKind::kCompute;

  [[nodiscard]] int32_t input(int i) const { return slots[i]; }
  [[nodiscard]] int32_t output(int i) const { return slots[num_inputs + i]; }
  [[nodiscard]] std::span<const int32_t> releases() const {
    return {slots + num_inputs + num_outputs, static_cast<size_t>(num_releases)};
  }
};

/// What a kernel sees of one run of its instruction.
/// Thread: core-local; good during Kernel::run only.
class KernelContext {
 public:
  KernelContext(Step* step, const BoundInstruction* instruction)
      : step_(step), instruction_(instruction) {}

  [[nodiscard]] int num_inputs() const { return instruction_->num_inputs; }
  [[nodiscard]] int num_outputs() const { return instruction_->num_outputs; }
  [[nodiscard]] const tensor::Tensor& input(int i) const;
  /// Output `i` with `shape`, in the buffer the plan gave it. May be an input's memory where the
  /// op can work in place. Ends the kernel with kResourceExhausted when there is no memory for it.
  tensor::Tensor& output(int i, const tensor::Shape& shape);
  /// Memory outside the plan, good as long as somebody holds it. For outputs that share a buffer.
  /// Ends the kernel as output() does.
  tensor::Tensor temporary(tensor::DType dtype, const tensor::Shape& shape);
  /// Sets output `i` to a tensor made elsewhere: a constant, a variable's version, a view for an op
  /// the plan knows as a view, or a view of output(i) or of a temporary(). Never of another
  /// input: the plan would use that memory again.
  void set_output(int i, tensor::Tensor value);
  /// For a kernel that cannot finish now: what it returns, once run() has changed nothing that
  /// counts. The step blocks there, and run() is called again when there may be news. `what` says
  /// what it waits for: "queue 'q' (0 elements)".
  template <class... Args>
  Status wait_for(fmt::format_string<Args...> what, Args&&... args) {
    waits_for().clear();
    fmt::format_to(std::back_inserter(waits_for()), what, std::forward<Args>(args)...);
    return base::make_status(StatusCode::kUnavailable, {});
  }
  /// What the instruction keeps while it waits in this step; nullptr at first. To be reset when the
  /// wait is over; a step that ends early drops it.
  std::shared_ptr<void>& waiting_state();
  /// The same; nullptr where it keeps nothing.
  [[nodiscard]] void* kept_while_waiting() const;
  /// Output `i` as input `from` is, to be changed: the memory of the input where that was lent to
  /// the step (Step::lend) and nobody else reads it any more, else a copy. For ops whose outputs
  /// the plan gives no buffers.
  tensor::Tensor& updated(int i, int from);
  /// Dtype the program says output `i` has.
  [[nodiscard]] tensor::DType output_dtype(int i) const;
  /// What passes tensors between the programs of the step; nullptr where it is the only one.
  [[nodiscard]] ports::Rendezvous* rendezvous() const;
  /// The devices that Recv instructions name by number.
  [[nodiscard]] std::span<const ports::TensorSource> peers() const;
  /// True when a Recv that waits is asked for awaited(), and not tried again before it can go on.
  [[nodiscard]] bool is_told_of_arrivals() const;
  /// Number of the step, the same on every task that takes part in it.
  [[nodiscard]] uint64_t step_id() const;
  /// The closure that the step is, if that may be run again.
  [[nodiscard]] const resources::ClosureKey& closure() const;
  /// The worker and session of the step, for figures: see resources/pushed_by.h.
  [[nodiscard]] int pusher() const;
  /// What the lane that runs the step calls it: see Step::set_number().
  [[nodiscard]] uint64_t number_on_lane() const;

  /// Calls body(from, to) for ranges that together are [0, n), on as many threads as the step may
  /// use; at least `grain` (> 0) long but for the last. How [0, n) is cut depends on their number:
  /// what `body` writes must not. In between, the lane of the step serves others: see
  /// ports::Exchange::yield().
  template <class Body>
  void parallel(int64_t n, int64_t grain, const Body& body) {
    if (n < 2 * grain) return body(int64_t{0}, n);
    run_ranges(n, grain, body);
  }
  /// Calls body(0), ..., body(parts - 1), on as many threads as the step may use. In between, the
  /// lane of the step serves others.
  void run_parts(int64_t parts, absl::FunctionRef<void(int64_t)> body);
  /// Threads that the step may use, this one included.
  [[nodiscard]] int threads() const;

  /// The elements of input `i`; ends the kernel with kInvalidArgument when they are of another
  /// type.
  template <class T>
  [[nodiscard]] std::span<const T> in(int i) const {
    const tensor::Tensor& value = input(i);
    if (value.dtype() != tensor::kDTypeOf<T>) [[unlikely]]
      fail_dtype(i, tensor::kDTypeOf<T>);
    return value.template data<const T>();
  }
  /// Ends the kernel with the status of the step's stop signal once that is raised: for loops that
  /// may last. On the thread of the step only.
  void check_stop() const;

 private:
  [[noreturn]] void fail_dtype(int i, tensor::DType wanted) const;
  /// The step's text of wait_for().
  std::string& waits_for();

  void run_ranges(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

  /// Empty strings in memory that keeps the bytes of all string inputs: whatever a kernel moves
  /// there stays good.
  [[nodiscard]] tensor::Tensor strings(const tensor::Shape& shape) const;

  Step* step_;
  const BoundInstruction* instruction_;
};

/// Thrown where a kernel must end and has no status to return; the step catches it.
struct KernelFailure {
  Status status;
};

/// The executable form of one instruction. Made once when a program is bound, per lane, so it may
/// keep scratch memory.
/// Thread: core-local.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Inputs come from a verified program, but shapes and values come from users and peers: what
  /// does not fit is kInvalidArgument.
  virtual Status run(KernelContext& context) = 0;
  /// What a Recv that has waited in run() waits for: "tensor 'w:0' from DEVICE".
  [[nodiscard]] virtual std::string awaited(std::span<const ports::TensorSource> /*peers*/) const {
    return {};
  }
};

class BufferPool;
class Workers;

/// The lanes of a task, each of which has variables of its own. Thread: any, except what says
/// otherwise.
class VariableLanes : public resources::Lanes {
 public:
  [[nodiscard]] virtual int count() const = 0;
  /// Whether programs are on the lanes that are to have the variables that they make.
  [[nodiscard]] virtual bool are_planned() const = 0;
  /// Else: the lane for the next variable that is made.
  virtual int next() = 0;
  /// As post(); then step `step` of the lane (Step::set_number) looks again.
  virtual bool answer(int lane, uint64_t step, std::function<void()> fn) = 0;
  /// Memory of a lane, and what helps it; nullptr: nothing does. Thread: that lane.
  virtual BufferPool* pool(int lane) = 0;
  virtual Workers* workers(int lane) = 0;
};

/// What kernels may use of where they run; nullptr is what that place has not. Borrowed.
struct Environment {
  resources::Manager* resources = nullptr;         ///< Where steps may wait for each other.
  ports::HostFunctions* host_functions = nullptr;  ///< In the process of the program.
  ports::Datasets* datasets = nullptr;             ///< For iterators.
  std::shared_ptr<sys::Disk> disk = nullptr;       ///< Where checkpoints are.
  /// Has steps look again that wait for what a thread of a kernel does, where Manager::changed()
  /// does not. Thread: any.
  std::function<void()> wake = nullptr;
  VariableLanes* lanes = nullptr;  ///< Whose the variables are; nullptr: threads share them.
  int lane = 0;                    ///< That runs the program.
  /// What `resources` is in: for what other lanes do for the program, which may outlive it.
  std::shared_ptr<const void> keep = nullptr;
};

/// What a kernel is made from.
struct BindContext {
  const program::Program& program;
  const program::Instruction& instruction;
  const Environment& environment;
};

using KernelFactory = std::function<Result<std::unique_ptr<Kernel>>(const BindContext&)>;

/// Kernels by op name. One table: what a task may run, for whomever. An explicit object, filled by
/// register_kernels(). Thread: immutable once filled.
class KernelTable {
 public:
  /// Adds a factory; two of one op is a bug.
  void add(const std::string& op, KernelFactory factory);
  [[nodiscard]] const KernelFactory* find(std::string_view op) const;

  /// Every op that has a kernel, in the order of names.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  absl::flat_hash_map<std::string, KernelFactory> factories_;
};

/// Adds the kernels of every op of this release, which all check what they are given: programs
/// come from peers.
void register_kernels(KernelTable* table);

}  // namespace sidereal::exec
