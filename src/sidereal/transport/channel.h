#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/function.h"
#include "sidereal/base/status.h"
#include "sidereal/sys/address.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/endpoint.h"
#include "sidereal/wire/frame.h"

namespace sidereal::transport {

/// What an answer has beside its tensors.
struct Aside {
  std::string_view extra = {};  ///< bytes of the handler
  bool derived = false;         ///< the error follows from another one, elsewhere
};

/// Receives the outcome of one call. Thread: core-local.
class CallSink {
 public:
  virtual ~CallSink() = default;
  /// Where the payload of fetch number `position` goes: a tensor of exactly this dtype and shape,
  /// whatever the form it travels in. Never asked for strings: their memory comes with the bytes.
  /// An error fails the call with it. The tensor is written to until done() is called, no longer.
  /// Asked again when the connection was lost on the way (Resume).
  virtual Result<tensor::Tensor> allocate(int position, tensor::DType dtype,
                                          const tensor::Shape& shape) {
    (void)position;
    return allocate_tensor(dtype, shape);
  }
  /// Comes just before done() when there is something to say. Valid within the callback.
  virtual void on_aside(const Aside& aside) { (void)aside; }
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

/// For times: never.
inline constexpr int64_t kNoDeadline = INT64_MAX;

/// What a call asks for, beside its feeds.
struct CallOptions {
  uint64_t program = 0;  ///< content hash of the program to run
  uint64_t step = 0;
  uint64_t session = 0;                    ///< the caller's; opaque to the transport
  uint16_t kind = 0;                       ///< 0: run `program`; others are the caller's
  int64_t deadline_ns = 0;                 ///< lane time; 0: call_deadline_ms from now; kNoDeadline
  std::span<const uint32_t> slots = {};    ///< `feeds[i]` goes to slot `slots[i]`; empty: slot i
  std::span<const wire::Form> forms = {};  ///< in which feeds travel; empty: as they are
  std::string_view extra = {};             ///< bytes for the handler
  bool is_repeatable =
      false;  ///< with Resume: to run it twice does no harm; its answer is not kept
};

/// Who a client is over all its connections, so that its calls outlive them: what was sent and did
/// not arrive is sent again over the next one, what arrived is answered there, and no call is run
/// twice. Value type.
struct Resume {
  uint64_t client_high = 0;  ///< both 0: calls end with their connection
  uint64_t client_low = 0;

  /// A name that nobody else has.
  static Resume draw(sys::Random& random);
};

/// The connection of one lane to one lane of a peer, and the calls pending on it.
///
/// Errors of a broken or silent connection are kUnavailable and name the task and its address; a
/// call past its deadline is kDeadlineExceeded and names them too. When the lane stops, pending
/// calls end with kCancelled.
/// With Resume a lost connection ends no call at first: the channel connects again by itself for
/// resume_ms, and then everything goes on, deadlines included. Calls are accepted meanwhile. They
/// end with kUnavailable when that time has passed, or the peer says that it ends; with kAborted
/// when the peer was restarted, or has forgotten the client: then nobody knows whether they were
/// done. (What was not yet sent ends with kUnavailable when the peer was restarted: it was not
/// done.) Lifecycle: made and destroyed on the lane, or while it does not run; not from its own
/// callbacks. Destruction ends pending calls with kCancelled. Thread: core-local.
class Channel {
 public:
  /// `endpoint` is borrowed. `resume` is not used by any other channel.
  static std::unique_ptr<Channel> create(Endpoint* endpoint, Peer peer, const Resume& resume = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Connects and shakes hands, trying again with growing pauses until `deadline_ns` (lane time; 0:
  /// connect_deadline_ms from now; kNoDeadline); then calls `done` once. A host's name is looked up
  /// for every try, without holding up the lane; its addresses take turns. A try to which nobody
  /// says anything within keepalive_timeout_ms is over. A refused handshake ends
  /// the tries at once: kUnauthenticated for credentials. To be called again after a break, never
  /// while connected or connecting.
  void connect(int64_t deadline_ns, base::Function<void(const Status&)> done);
  /// Connects as connect() does, without end, and again after every break, until close(). `hear`
  /// gets ok whenever it is connected, and why when a connection broke (its calls have ended then;
  /// a connection that goes on by Resume is not mentioned) or was refused; never from within this
  /// call. In the place of connect().
  void keep_connected(base::Function<void(const Status&)> hear);
  /// Sends a call. An undefined tensor is a dead slot. The tensors are sent from where they are:
  /// nobody may write to them until done(), and after an error not until their buffers have no
  /// other holder: they may still be on their way. Without a deadline it ends with its answer, by
  /// cancel() or with the connection, whose peer shows that it lives.
  /// Returns the id for cancel(), and then `sink`, borrowed until done(), gets done() exactly once,
  /// never from within call(). Else kUnavailable when not connected, kResourceExhausted when more
  /// than send_buffer_bytes_max waits to be sent; then `sink` hears nothing, and on_room() tells
  /// when to try again. No allocation once warm.
  Result<uint64_t> call(const CallOptions& what, std::span<const tensor::Tensor> feeds,
                        CallSink* sink);
  /// Ends one call with kCancelled and tells the peer; a reply will be skipped. False when it has
  /// ended.
  bool cancel(uint64_t call_id);
  /// Says goodbye, ends pending calls (and a connect) with kCancelled and closes.
  void close();
  /// Tries no longer to go on after a lost connection (Resume): its calls end with `why`. Nothing
  /// happens while it is connected.
  void give_up(const Status& why);

  [[nodiscard]] bool connected() const;
  /// Connected, or about to be again (Resume).
  [[nodiscard]] bool accepts_calls() const;
  /// How often it went on after a lost connection (Resume).
  [[nodiscard]] int64_t resumed() const;
  /// Bytes received and sent so far, all connections of this channel together.
  [[nodiscard]] int64_t bytes_in() const;
  [[nodiscard]] int64_t bytes_out() const;
  /// Calls not ended yet.
  [[nodiscard]] int pending() const;
  [[nodiscard]] const Peer& peer() const;
  /// From the peer's handshake; 0 before the first.
  [[nodiscard]] uint64_t peer_incarnation() const;
  [[nodiscard]] uint32_t peer_lane_count() const;
  /// Called after call() has refused because too much waits to be sent, once half of it has left.
  void on_room(base::Function<void()> hook);
  /// Called once whenever an established connection breaks, after its calls have ended; with Resume
  /// only when it does not go on.
  void on_break(base::Function<void(const Status&)> hook);

 private:
  class Impl;
  explicit Channel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::transport
