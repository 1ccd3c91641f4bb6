#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sidereal/exec/executor.h"
#include "sidereal/program/control.h"

namespace sidereal::exec {

/// The rows of one y of a loop, one under another in memory that is kept from step to step.
/// Thread: core-local.
class Stack {
 public:
  explicit Stack(BufferPool* pool) : pool_(pool) {}

  /// Forgets all rows. Memory that somebody still holds is theirs.
  void begin();
  /// Puts `row` at `at`, of `rows` in all (-1: not known; then `at` counts up from 0). Rows have
  /// one shape: kUnimplemented for another.
  Status put(int64_t at, int64_t rows, const tensor::Tensor& row);
  /// The rows as one tensor. Without any, the shape is `info`'s with 0 for what is unknown.
  [[nodiscard]] tensor::Tensor take(int64_t rows, const program::SlotInfo& info) const;

 private:
  void reserve(size_t bytes, size_t used);

  BufferPool* pool_;
  tensor::Buffer::Ptr buffer_;
  tensor::DType dtype_ = tensor::DType::kInvalid;
  tensor::Shape row_;
};

/// One control instruction of one step: a nested step per body, and where it stands. Runs bodies as
/// often as it says, in loops that do not grow the stack; blocks where a body blocks.
/// Thread: core-local.
class Step::Control {
 public:
  /// `instruction` was validated with the program of `parent`.
  Control(Step* parent, const program::Instruction* instruction);

  /// Goes on until the instruction is done and its outputs are set, or a body blocks.
  Result<Progress> advance(bool stop_at_wait);
  /// Drops what a step that ended early left.
  void reset();
  void set_root(Step* root);
  void set_stop_signal(const StopSignal* stop);
  /// Of the body that blocks.
  [[nodiscard]] std::string waits_for() const;
  /// True when the body that blocks waits for a tensor or an answer.
  [[nodiscard]] bool waits_for_message() const;
  void set_trace(Trace* trace, int32_t track);
  void set_workers(Workers* workers);
  void set_rendezvous(ports::Rendezvous* rendezvous);

 private:
  enum class Phase : uint8_t { kIdle, kCondition, kBody };

  Status start();
  void begin(Step* body);
  Status start_body();
  Status finish();
  /// False when the loop is over.
  Result<bool> next_iteration();
  Result<bool> read_flag(const tensor::Tensor& value) const;
  Status feed_body(Step* body);
  Status take_body(Step* body);
  Status find_rows();
  [[nodiscard]] int64_t row() const;
  [[nodiscard]] Status in_context(const Status& status) const;
  void set_output(size_t i, tensor::Tensor value);
  [[nodiscard]] const tensor::Tensor& input(size_t i) const;
  /// The body that runs, or its condition.
  [[nodiscard]] Step* running() const {
    return steps_[phase_ == Phase::kCondition ? 0 : taken_].get();
  }
  [[nodiscard]] bool is_loop() const;

  Step* parent_;
  const program::Instruction& instruction_;
  program::ControlSpec spec_;
  std::vector<std::unique_ptr<Step>> steps_;  // By body of the instruction.
  Phase phase_ = Phase::kIdle;
  size_t taken_ = 0;  // Body that runs, when it is not a condition.
  int64_t iteration_ = 0;
  int64_t rows_ = -1;  // Scan: how many iterations there are.
  std::vector<tensor::Tensor> variables_;
  std::vector<tensor::Shape> row_shapes_;  // Scan: by sequence.
  std::vector<Stack> stacks_;              // By y.
};

}  // namespace sidereal::exec
