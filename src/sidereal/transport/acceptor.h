#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/ids.h"
#include "sidereal/base/status.h"
#include "sidereal/sys/address.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/endpoint.h"
#include "sidereal/wire/frame.h"

namespace sidereal::transport {

struct ConnectionTag;
/// Names one accepted connection of one Acceptor, or one client over all its connections. Never
/// reused, so it may be kept after a close.
using ConnectionId = base::StrongId<ConnectionTag, uint64_t>;

/// An accepted connection as its handler sees it: of a client whose calls outlive its connections
/// (Resume in channel.h) all of them together. Valid within the callback; keep the id.
struct Connection {
  ConnectionId id;
  std::string task;          ///< the client's task, from its handshake
  uint64_t incarnation = 0;  ///< random per start of the client
};

/// A call as its handler sees it. Valid within the callback; keep the id.
struct Call {
  const wire::FrameHeader& header;         ///< `kind`, `session`, `program`, `step`: the caller's
  std::span<const wire::SlotEntry> slots;  ///< `slots[i].slot` is the number of feed i
  std::string_view extra;                  ///< the caller's bytes
};

/// Serves the calls that arrive at one Acceptor. Every call should be answered, at once or later,
/// by Acceptor::reply() or reply_error(), from within a callback or outside. Thread: core-local.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  /// Where the payload of feed number `position` goes: a tensor of exactly this dtype and shape,
  /// whatever the form it travels in. Never asked for strings: their memory comes with the bytes.
  /// An error is sent to the client and the payload is skipped; on_call() is then not called.
  virtual Result<tensor::Tensor> allocate(const Connection& from, const wire::FrameHeader& call,
                                          int position, tensor::DType dtype,
                                          const tensor::Shape& shape) {
    (void)from, (void)call, (void)position;
    return allocate_tensor(dtype, shape);
  }
  /// A whole call has arrived. The feeds may be moved from; a dead feed is an undefined tensor.
  /// Answer with the id `call.header.call_id`.
  virtual void on_call(const Connection& from, const Call& call,
                       std::span<tensor::Tensor> feeds) = 0;
  /// The client does not want the answer of a call any more: it was cancelled, or its deadline has
  /// passed. The call may have been answered already, or refused; an answer is sent in vain.
  virtual void on_cancel(const Connection& from, uint64_t call_id) { (void)from, (void)call_id; }
  /// The connection of a client that had shaken hands is gone: of one whose calls outlive its
  /// connections, once it has said goodbye, has not come back in time, was started anew or has
  /// taken too few of its answers. Replies to it are dropped.
  virtual void on_closed(const Connection& from, const Status& why) { (void)from, (void)why; }
};

/// What an answer has beside its tensors.
struct ReplyOptions {
  std::span<const uint32_t> slots = {};    ///< the client's slot numbers; empty: 0, 1, 2...
  std::span<const wire::Form> forms = {};  ///< in which tensors travel; empty: as they are
  std::string_view extra = {};             ///< bytes for the caller
};

class ServerConnection;

/// Accepts connections on one address for one lane and serves their calls inline.
///
/// Who connects has connect_deadline_ms to prove who he is and say Hello. LaneMetrics counts those
/// who do not, by what they did: garbage, certificate, idle, over_limit, gone.
/// A client is read no further while more than `send_buffer_bytes_max` of replies wait for it. A
/// peer that sends anything wrong loses its connection, and a counter tells.
/// Of clients whose calls outlive their connections it keeps every answer until they have it, up to
/// lane_answer_bytes_max for all of them; a call of theirs runs once, whatever connection it came
/// over, and is answered over the one that is there then.
/// Lifecycle: made on the lane or before it starts; destroyed on the lane or after it has stopped.
/// When the lane stops, clients are told goodbye and connections are closed.
/// Thread: core-local.
class Acceptor {
 public:
  /// Listens on `address`; port 0 takes a free one. `endpoint` and `handler` are borrowed. Off
  /// loopback only as security::check_listen() allows: else kFailedPrecondition. A port in use is
  /// kAlreadyExists.
  static Result<std::unique_ptr<Acceptor>> create(Endpoint* endpoint, const sys::Address& address,
                                                  CallHandler* handler);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// The address with the port in use. Immutable.
  [[nodiscard]] const sys::Address& address() const;
  /// Connections that have shaken hands.
  [[nodiscard]] int connection_count() const;
  /// Bytes of answers that are kept until their clients have them.
  [[nodiscard]] uint64_t answer_bytes() const;

  /// Sends the fetches of a call; an undefined tensor is a dead slot. The tensors are sent from
  /// where they are: nobody may write to them until their buffers have no other holder. Dropped
  /// when the connection is gone.
  void reply(ConnectionId to, uint64_t call_id, std::span<const tensor::Tensor> fetches,
             const ReplyOptions& options = {});
  /// Sends an error as the answer of a call. `derived`: it follows from another one, elsewhere. Of
  /// the text travels what wire::kErrorBytesMax allows.
  void reply_error(ConnectionId to, uint64_t call_id, const Status& error, bool derived = false);

 private:
  friend class ServerConnection;
  class Impl;
  explicit Acceptor(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::transport
