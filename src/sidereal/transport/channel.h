#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sidereal/base/function.h"
#include "sidereal/base/status.h"
#include "sidereal/sys/address.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/endpoint.h"

namespace sidereal::transport {

/// Receives the outcome of one call. Thread: core-local.
class CallSink {
 public:
  virtual ~CallSink() = default;
  /// Where the payload of fetch number `position` goes: a tensor of exactly this dtype and shape.
  /// An error fails the call with it. The tensor is written to until done() is called, no longer.
  virtual Result<tensor::Tensor> allocate(int position, tensor::DType dtype,
                                          const tensor::Shape& shape) {
    (void)position;
    return tensor::Tensor::empty(dtype, shape);
  }
  /// The call has ended. The fetches may be moved from; a dead one is undefined. May start new
  /// calls and may close() the channel; must not destroy it.
  virtual void done(const Status& status, std::span<tensor::Tensor> fetches) = 0;
};

/// Whom a channel talks to.
struct Peer {
  std::string task;      ///< such as "/job:ps/task:0"; the handshake checks it
  uint32_t lane = 0;     ///< lane of that task; the handshake checks it
  sys::Address address;  ///< of that lane
};

/// The connection of one lane to one lane of a peer, and the calls pending on it.
///
/// Errors of a broken or silent connection are kUnavailable and name the task and its address; a
/// call past its deadline is kDeadlineExceeded and names them too. When the lane stops, pending
/// calls end with kCancelled.
/// Lifecycle: made and destroyed on the lane, or while it does not run; not from its own callbacks.
/// Destruction ends pending calls with kCancelled.
/// Thread: core-local.
class Channel {
 public:
  /// `endpoint` is borrowed.
  static std::unique_ptr<Channel> create(Endpoint* endpoint, Peer peer);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Connects and shakes hands, trying again with growing pauses until `deadline_ns` (lane time; 0:
  /// connect_deadline_ms from now); then calls `done` once. A refused handshake ends the tries at
  /// once. To be called again after a break, never while connected or connecting.
  void connect(int64_t deadline_ns, base::Function<void(const Status&)> done);
  /// Sends a call. `feeds[i]` goes to the peer's slot `slots[i]` (empty: slot i); an undefined
  /// tensor is a dead slot. The tensors are sent from where they are: nobody may write to them
  /// until done(), and after an error not until their buffers have no other holder: they may still
  /// be on their way. `deadline_ns` is lane time; 0: call_deadline_ms from now.
  /// Returns the id for cancel(), and then `sink`, borrowed until done(), gets done() exactly once,
  /// never from within call(). Else kUnavailable when not connected, kResourceExhausted when more
  /// than send_buffer_bytes_max waits to be sent; then `sink` hears nothing. No allocation once
  /// warm.
  Result<uint64_t> call(uint64_t program, uint64_t step, std::span<const tensor::Tensor> feeds,
                        std::span<const uint32_t> slots, int64_t deadline_ns, CallSink* sink);
  /// Ends one call with kCancelled; its reply will be skipped. False when it has ended.
  bool cancel(uint64_t call_id);
  /// Says goodbye, ends pending calls (and a connect) with kCancelled and closes.
  void close();

  [[nodiscard]] bool connected() const;
  /// Bytes received and sent so far, all connections of this channel together.
  [[nodiscard]] int64_t bytes_in() const;
  [[nodiscard]] int64_t bytes_out() const;
  /// Calls not ended yet.
  [[nodiscard]] int pending() const;
  [[nodiscard]] const Peer& peer() const;
  /// From the peer's handshake; 0 before the first.
  [[nodiscard]] uint64_t peer_incarnation() const;
  [[nodiscard]] uint32_t peer_lane_count() const;
  /// Called once whenever an established connection breaks, after its calls have ended.
  void on_break(base::Function<void(const Status&)> hook);

 private:
  class Impl;
  explicit Channel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::transport
