#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/exec/buffer_pool.h"
#include "sidereal/exec/kernel.h"
#include "sidereal/exec/needs.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/exec/trace.h"
#include "sidereal/exec/workers.h"
#include "sidereal/ports/ports.h"
#include "sidereal/program/program.h"

namespace sidereal::exec {

/// A program with its kernels, ready to run on one lane.
/// Thread: made anywhere, then core-local to its lane (kernels keep scratch).
class BoundProgram {
 public:
  /// Finds a kernel for every instruction. kUnimplemented names an op without one; kNotFound names
  /// a variable that is not on this lane; kFailedPrecondition what the place has not. What
  /// `environment` names must outlive the program.
  static Result<std::unique_ptr<BoundProgram>> bind(program::Program program,
                                                    const KernelTable& table,
                                                    const Environment& environment);

  [[nodiscard]] const program::Program& program() const { return program_; }
  [[nodiscard]] const BoundInstruction& instruction(size_t i) const { return instructions_[i]; }
  [[nodiscard]] size_t size() const { return instructions_.size(); }
  /// What a run looks at of a slot.
  struct Slot {
    int32_t buffer = -1;  ///< As program::SlotInfo::buffer.
    tensor::DType dtype = tensor::DType::kInvalid;
  };
  [[nodiscard]] const Slot& slot(int32_t i) const { return slots_[i]; }
  /// Index from which on there are only kCallWait instructions.
  [[nodiscard]] size_t tail() const { return tail_; }
  /// The number of the first call of this program or body among program::all_calls().
  [[nodiscard]] int first_call() const { return first_call_; }
  /// Who needs what, where the program parks what waits; else nullptr.
  [[nodiscard]] const Needs* needs() const { return needs_.get(); }
  /// Body `k` of the program, the same for the program and its bodies.
  [[nodiscard]] const BoundProgram* body(int32_t k) const { return whole_->bodies_[k].get(); }

 private:
  BoundProgram(program::Program program, const BoundProgram* whole)
      : program_(std::move(program)), whole_(whole == nullptr ? this : whole) {}

  /// Finds the kernels of this program or body.
  Status find_kernels(const KernelTable& table, const Environment& environment);
  /// Has the instructions of this program or body at hand. When it changes no more.
  void lay_out();

  program::Program program_;
  const BoundProgram* whole_;
  std::vector<std::unique_ptr<BoundProgram>> bodies_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<BoundInstruction> instructions_;
  std::vector<int32_t> slots_of_;  // All instructions, one behind the other.
  std::vector<Slot> slots_;
  std::unique_ptr<const Needs> needs_;
  size_t tail_ = 0;
  int first_call_ = 0;
};

/// One step in flight: slots, buffers and a program counter. Runs to completion on its lane; where
/// it must wait for a remote answer it returns, and goes on from there when asked again. In a
/// program that parks what waits (program::Program::parks), it goes on with all that does not need
/// what is parked, the first in the program first, before it returns.
///
/// Lifecycle: begin(), feed() each feed, advance() until done, fetch(). Then begin() again.
///            Must outlive its calls in flight: destroy only when calls_in_flight() is 0.
/// Thread:    core-local.
class Step {
 public:
  /// `exchange` may be nullptr for a program without calls.
  Step(const BoundProgram* bound, BufferPool* pool, ports::Exchange* exchange);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  enum class Progress { kDone, kBlocked };

  /// Makes advance() end with the status of `stop` once that is raised, before the next instruction
  /// of the step or of a body it runs. Borrowed; nullptr: never.
  void set_stop_signal(const StopSignal* stop);

  /// Writes down in `trace` what the steps after this do, as `track`; nullptr: nothing any more.
  /// A whole step is shown as `label`, or not at all when that is empty. Both are borrowed. Not to
  /// be called between begin() and the end of a step. Without a trace, a step costs one branch more
  /// per advance().
  void set_trace(Trace* trace, int32_t track = 0, std::string_view label = {});

  /// Threads that help with kernels, of bodies too; nullptr: none. Borrowed. Results do not depend
  /// on them.
  void set_workers(Workers* workers);

  /// What Send and Recv go through, of bodies too; nullptr: none, then they fail. Borrowed.
  /// `tells`: arrived() is called for all that comes, so that a Recv that waits is not tried again
  /// before.
  void set_rendezvous(ports::Rendezvous* rendezvous, bool tells = false);
  /// The devices that its Recv instructions, in bodies too, name by number. Borrowed until the step
  /// has ended.
  void set_peers(std::span<const ports::TensorSource> peers) { peers_ = peers; }

  /// The worker and session of the step, for figures: see resources/pushed_by.h.
  void set_pusher(int pusher) { pusher_ = pusher; }

  /// What the lane calls the step: who answers it from another lane says this number.
  void set_number(uint64_t number) { number_ = number; }

  /// Forgets the step before and starts one with number `step_id`, which is that of `closure` if
  /// it may be run again.
  void begin(uint64_t step_id, const resources::ClosureKey& closure = {});
  /// Sets feed `i`. kInvalidArgument names the feed and both shapes when the value cannot be it.
  Status feed(int i, tensor::Tensor value);
  /// As feed(), of memory that the caller lends: an op that updates it (KernelContext::updated) may
  /// write to it when the caller, who must not read it before the step is done, is its only other
  /// holder. After an error it may have been updated already.
  Status lend(int i, tensor::Tensor value);
  /// Runs until the end or until an answer is missing. An error ends the step; its text names the
  /// node and the op.
  Result<Progress> advance();
  /// Has what is parked look again, in an advance() that goes on: something has come.
  void look_again() {
    if (parking_ != nullptr) parking_->has_news = parking_->may_begin_calls = true;
  }
  /// The same for what waits for the tensor group of `key`, which is here.
  void arrived(const ports::RendezvousKey& key);
  /// As advance(), but stops where the step would first wait, whether or not the answer is there:
  /// it sends what can be sent without one and, for a program that calls, does nothing that depends
  /// on how fast peers are.
  Result<Progress> advance_to_wait();
  /// Runs a program that is one kernel which never waits, instead of advance(): the error is the
  /// kernel's own, without the name of its node.
  Status run_only();
  /// Fetch `i` of a step that is done.
  [[nodiscard]] const tensor::Tensor& fetch(int i) const;

  /// Lets go of every value of the step that is not in memory of its plan. To be called when the
  /// fetches have been taken, so that nothing is held until the next begin().
  void end();

  [[nodiscard]] uint64_t id() const { return step_id_; }
  /// Instructions done so far; moves when advance() got something done, but in bodies.
  [[nodiscard]] size_t position() const { return parking_ == nullptr ? pc_ : parking_->done; }
  /// True when nothing is left but answers to wait for: all calls of the step have been started.
  [[nodiscard]] bool at_tail() const {
    return parking_ == nullptr ? pc_ >= bound_->tail() : parking_->to_start == 0;
  }
  /// Of bodies too.
  [[nodiscard]] int calls_in_flight() const { return calls_in_flight_; }
  /// What a blocked step waits for other than answers: "queue 'q' (0 elements)"; "" for answers.
  [[nodiscard]] std::string waits_for() const;
  /// True when a blocked step waits for tensors or answers alone, not for what steps share.
  [[nodiscard]] bool waits_for_messages() const;

 private:
  friend class KernelContext;
  class PendingCall;
  class Control;

  /// For bodies of loops, whose results are held while the next iteration makes others: two
  /// buffers take turns.
  void take_turns() { spares_.resize(buffers_.size()); }
  /// The step of which this is a part, when it is one of a body.
  void set_root(Step* root);
  /// True when the slot shows the memory that the plan has for it.
  [[nodiscard]] bool is_planned(int32_t slot) const;
  void renew_held_buffers();
  Result<Progress> run(bool stop_at_wait) {
    if (parking_ != nullptr) [[unlikely]]
      return trace_ == nullptr ? run_parking<false>(stop_at_wait) : run_parking<true>(stop_at_wait);
    return trace_ == nullptr ? run_all<false>(stop_at_wait) : run_all<true>(stop_at_wait);
  }
  template <bool traced>
  Result<Progress> run_all(bool stop_at_wait);
  template <bool traced>
  Result<Progress> run_parking(bool stop_at_wait);
  Result<Progress> run_one(size_t index, bool stop_at_wait);
  void begin_parking();
  void note_step();
  void park(size_t index);
  void make_ready(int32_t index);
  [[nodiscard]] std::string shown_wait() const;
  void take_up_parked();
  void go_on_after(size_t index);
  void serve();
  void begin_calls();
  [[nodiscard]] bool waits_for_message(size_t index) const;
  [[nodiscard]] int holders_to_expect(const BoundInstruction& instruction, int32_t output,
                                      const tensor::Buffer* buffer) const;
  void note(const program::Instruction& instruction);
  Status run_instruction(size_t index);
  Status start_call(int32_t number);

  /// Where a step of a program that parks stands.
  struct Parking {
    static constexpr int32_t kRan = -1;
    std::vector<int32_t> missing;  ///< By instruction: how many have still to run before it; kRan.
    std::vector<int32_t> uses;     ///< By slot: how many have still to use it.
    /// Below `next`, those that can run, as a heap: the first one first.
    std::vector<int32_t> ready;
    std::vector<int32_t> parked;
    /// Of a Recv of the step itself whose rendezvous tells.
    enum class Message : uint8_t { kNone, kAwaited, kHere };
    std::vector<Message> messages;  ///< By instruction.
    std::vector<int64_t> began_ns;  ///< By instruction, of a traced step; -1: not yet.
    size_t next = 0;                ///< From here on nothing was tried.
    size_t done = 0;
    bool has_news = false;  ///< What is parked or awaited is to look again.
    bool may_begin_calls = false;
    size_t to_start = 0;  ///< Of those that are no kCallWait.
    // The wait that is told of: rather one for what steps share than one for a message.
    int32_t shown = -1;  ///< The instruction; -1: none yet.
    bool shows_message = false;
    std::string text;
  };

  const BoundProgram* bound_;
  std::unique_ptr<Parking> parking_;  // nullptr: the program parks nothing.
  BufferPool* pool_;
  ports::Exchange* exchange_;
  uint64_t step_id_ = 0;
  resources::ClosureKey closure_;
  uint64_t number_ = 0;  // Of the outermost step.
  size_t pc_ = 0;
  int calls_in_flight_ = 0;
  Step* root_ = this;  // The step that this one, of a body, is run by; it counts the calls of all.
  std::vector<tensor::Tensor> slots_;
  std::vector<uint8_t> lent_;  // By slot; empty when nothing is.
  std::vector<tensor::Buffer::Ptr> buffers_;
  std::vector<long> holders_;                // By buffer; scratch of begin().
  std::vector<tensor::Buffer::Ptr> spares_;  // By buffer; empty unless they take turns.
  std::vector<std::unique_ptr<PendingCall>> pending_;
  std::vector<tensor::Tensor> call_feeds_;
  std::string waits_for_;
  absl::flat_hash_map<const program::Instruction*, std::shared_ptr<void>> waiting_;
  const StopSignal* stop_ = nullptr;
  Workers* workers_ = nullptr;
  ports::Rendezvous* rendezvous_ = nullptr;
  bool rendezvous_tells_ = false;
  std::span<const ports::TensorSource> peers_;  // Of the outermost step.
  int pusher_ = 0;                              // Of the outermost step.
  Trace* trace_ = nullptr;
  int32_t track_ = 0;
  std::string_view label_;
  uint64_t traced_step_ = 0;  // Number of the outermost step.
  int64_t step_began_ns_ = 0;
  int64_t began_ns_ = -1;                           // The instruction at pc_; -1: it has not begun.
  std::vector<std::unique_ptr<Control>> controls_;  // By instruction; empty without any.
};

}  // namespace sidereal::exec
