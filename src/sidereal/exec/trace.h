#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/program/program.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::exec {

/// What a trace tells of a value: never its elements.
struct TraceValue {
  tensor::DType dtype = tensor::DType::kInvalid;
  tensor::Shape shape;
  uint64_t bytes = 0;
};

/// One thing a step did. Times are nanoseconds of the trace's clock.
struct TraceEvent {
  enum class Kind : uint8_t {
    kOp = 0,       ///< An instruction that runs a kernel.
    kControl = 1,  ///< A call, branch or loop, around what its bodies did.
    kSend = 2,     ///< The start of a remote call; inputs are what is sent.
    kWait = 3,     ///< Until an answer was there; outputs are what came.
    kStep = 4,     ///< A whole step, from begin() to its end.
  };
  Kind kind = Kind::kOp;
  int32_t track = 0;  ///< Which of the steps that may be in flight together.
  uint64_t step = 0;  ///< Number of the step; of the outermost one where they nest.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t sent_ns = 0;      ///< kWait: when the call started.
  int64_t answered_ns = 0;  ///< kWait: when its answer had come.
  int32_t call = -1;        ///< kSend, kWait: index of the call in its program.
  std::string device;       ///< kSend, kWait: where the call goes.
  std::string op;           ///< kStep: what the owner calls it.
  std::string name;         ///< Of the node.
  std::vector<TraceValue> inputs;
  std::vector<TraceValue> outputs;
};

/// What steps did, written to memory that is taken once: recording takes no memory and no lock.
/// When it is full, later events are counted and left out.
/// Thread: core-local.
class Trace {
 public:
  /// Nanoseconds since some fixed moment.
  using Clock = std::function<int64_t()>;

  /// `bytes` is taken at once; an event takes about 150.
  Trace(size_t bytes, Clock clock);

  [[nodiscard]] int64_t now() const { return clock_(); }
  /// Writes an event down; for Step. Values are those of `slots`; of a call, `device` is where it
  /// goes.
  void record(const TraceEvent& times, const program::Instruction& instruction,
              const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs,
              const std::vector<tensor::Tensor>& slots, std::string_view device = {});
  /// Writes down that a whole step has run.
  void record_step(const TraceEvent& times, std::string_view label);

  /// Everything written down, in the order in which it ended.
  [[nodiscard]] std::vector<TraceEvent> events() const;
  [[nodiscard]] size_t size() const { return count_; }
  /// Events that found no room.
  [[nodiscard]] uint64_t dropped() const { return dropped_; }
  /// Forgets all events; the memory stays.
  void clear();

 private:
  struct Header;

  bool reserve(size_t bytes);
  void append(const void* from, size_t bytes);
  void append_values(const std::vector<int32_t>& which, const std::vector<tensor::Tensor>& slots);

  std::vector<char> memory_;
  Clock clock_;
  size_t used_ = 0;
  size_t count_ = 0;
  uint64_t dropped_ = 0;
};

/// How events are shown.
struct ChromeOptions {
  int32_t process = 1;       ///< Groups tracks; one per lane of a task.
  std::string process_name;  ///< "" leaves the name out.
  int64_t offset_ns = 0;     ///< Added to all times, so that clocks of several tasks agree.
};

/// The events as elements of "traceEvents" in Chrome's trace format, separated by ",\n": complete
/// events of one track nest; calls are spans beside them, from being sent to being answered.
/// Categories are "op", "control", "send", "wait", "call" and "step". "" without events.
std::string to_chrome(const std::vector<TraceEvent>& events, const ChromeOptions& options);

/// A whole file of Chrome's trace format around such elements; empty ones are left out.
std::string chrome_file(const std::vector<std::string>& elements);

}  // namespace sidereal::exec
