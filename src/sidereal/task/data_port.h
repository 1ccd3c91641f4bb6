#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/config/options.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/sys/address.h"
#include "sidereal/task/task.h"
#include "sidereal/transport/endpoint.h"

/// What tasks say to one another on their data ports: calls between lanes (docs/formats/wire.md)
/// instead of those of the Worker service.
namespace sidereal::task {

/// What a call on a data port asks for: wire::FrameHeader::kind. The numbers stand on the wire.
enum class DataCall : uint16_t {
  kRun = 0,         ///< Run a program: feeds in, fetches out.
  kTensors = 1,     ///< Tensors of a step, when they are there.
  kEndStep = 2,     ///< The whole step has ended.
  kCancelStep = 3,  ///< End this task's part soon; the answer of its kRun says what it waited for.
};

/// What goes with kRun beside the feeds.
struct RunExtra {
  int32_t trace = 0;        ///< ProgramCall::trace
  bool whole = false;       ///< ProgramCall::whole
  int lane = 0;             ///< ProgramCall::lane, up to 255; only with `whole`.
  uint64_t number = 0;      ///< ProgramCall::number
  ClosureKey closure = {};  ///< ProgramCall::closure
};

std::string encode_run(const RunExtra& extra);
Result<RunExtra> decode_run(std::string_view bytes);

/// What kTensors asks for.
struct TensorsExtra {
  uint64_t incarnation = 0;  ///< Of the task that is meant; 0: any.
  std::vector<ports::RendezvousKey> keys;
};

std::string encode_tensors(const TensorsExtra& extra);
/// The same, of one key.
std::array<char, 24> encode_tensors(uint64_t incarnation, const ports::RendezvousKey& key);
/// Uses the memory of `out` again.
Status decode_tensors(std::string_view bytes, TensorsExtra* out);

/// The data port of one lane of a task: takes calls of other tasks' lanes, on that lane. What is
/// for another lane of the task, because the caller knows this port only, is passed on to it.
///
/// Lifecycle: created before the task starts, destroyed after it has stopped.
/// Thread:    the lane, except what says otherwise.
class DataPort {
 public:
  /// Listens at `address`. `task` and the lane's `endpoint` are borrowed. Errors: those of
  /// transport::Acceptor::create().
  static Result<std::unique_ptr<DataPort>> create(Task* task, int lane,
                                                  transport::Endpoint* endpoint,
                                                  const sys::Address& address);
  ~DataPort();
  DataPort(const DataPort&) = delete;
  DataPort& operator=(const DataPort&) = delete;

  /// The port in use. Immutable.
  [[nodiscard]] int port() const;
  /// Takes no parts of steps any more. Thread: any.
  void drain();
  /// Calls that it passed on and refused. Thread: any.
  [[nodiscard]] const metrics::Figures& figures() const;

 private:
  class Impl;
  explicit DataPort(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::task
