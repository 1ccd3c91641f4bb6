#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sidereal/base/ids.h"
#include "sidereal/base/status.h"
#include "sidereal/sys/address.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/endpoint.h"
#include "sidereal/wire/frame.h"

namespace sidereal::transport {

struct ConnectionTag;
/// Names one accepted connection of one Acceptor. Never reused, so it may be kept after a close.
using ConnectionId = base::StrongId<ConnectionTag, uint64_t>;

/// An accepted connection as its handler sees it. Valid within the callback; keep the id.
struct Connection {
  ConnectionId id;
  std::string task;          ///< the client's task, from its handshake
  uint64_t incarnation = 0;  ///< random per start of the client
};

/// Serves the calls that arrive at one Acceptor. Every call should be answered, at once or later,
/// by Acceptor::reply() or reply_error(), from within a callback or outside. Thread: core-local.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  /// Where the payload of feed number `position` goes: a tensor of exactly this dtype and shape.
  /// An error is sent to the client and the payload is skipped; on_call() is then not called.
  virtual Result<tensor::Tensor> allocate(const Connection& from, const wire::FrameHeader& call,
                                          int position, tensor::DType dtype,
                                          const tensor::Shape& shape) {
    (void)from, (void)call, (void)position;
    return tensor::Tensor::empty(dtype, shape);
  }
  /// A whole call has arrived. `slots[i]` is the slot number of `feeds[i]`; the feeds may be moved
  /// from; a dead feed is an undefined tensor. Answer with the id `call.call_id`.
  virtual void on_call(const Connection& from, const wire::FrameHeader& call,
                       std::span<const wire::SlotEntry> slots, std::span<tensor::Tensor> feeds) = 0;
  /// The connection of a client that had shaken hands is gone. Replies to it are dropped.
  virtual void on_closed(const Connection& from, const Status& why) { (void)from, (void)why; }
};

class ServerConnection;

/// Accepts connections on one address for one lane and serves their calls inline.
///
/// A client is read no further while more than `send_buffer_bytes_max` of replies wait for it. A
/// peer that sends anything wrong loses its connection, and a counter tells.
/// Lifecycle: made on the lane or before it starts; destroyed on the lane or after it has stopped.
/// When the lane stops, clients are told goodbye and connections are closed.
/// Thread: core-local.
class Acceptor {
 public:
  /// Listens on `address`; port 0 takes a free one. `endpoint` and `handler` are borrowed. Only
  /// loopback addresses are served, as peers cannot be authenticated yet: any other is
  /// kFailedPrecondition. A port in use is kAlreadyExists.
  static Result<std::unique_ptr<Acceptor>> create(Endpoint* endpoint, const sys::Address& address,
                                                  CallHandler* handler);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// The address with the port in use. Immutable.
  [[nodiscard]] const sys::Address& address() const;
  /// Connections that have shaken hands.
  [[nodiscard]] int connection_count() const;

  /// Sends the fetches of a call; an undefined tensor is a dead slot. `slots` are the client's slot
  /// numbers, or empty for 0, 1, 2... The tensors are sent from where they are: nobody may write
  /// to them until their buffers have no other holder. Dropped when the connection is gone.
  void reply(ConnectionId to, uint64_t call_id, std::span<const tensor::Tensor> fetches,
             std::span<const uint32_t> slots = {});
  /// Sends an error as the answer of a call.
  void reply_error(ConnectionId to, uint64_t call_id, const Status& error);

 private:
  friend class ServerConnection;
  class Impl;
  explicit Acceptor(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::transport
