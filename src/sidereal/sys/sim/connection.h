#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/sys/sim/world.h"

/// What streams, listeners and pollers of a simulated network are made of. Internal to sys/sim.
namespace sidereal::sys::sim {

/// Watches pollables of one node.
class SimPoller final : public Poller {
 public:
  explicit SimPoller(Node* node) : node_(node) { node->poller_ = this; }
  ~SimPoller() override { node_->poller_ = nullptr; }

  Status add(const Pollable& what, uint64_t token, Interest interest) override;
  Status update(const Pollable& what, uint64_t token, Interest interest) override;
  void remove(const Pollable& what) override;
  size_t wait(std::span<Event> events, int64_t timeout_ns) override;
  void wake() override { node_->schedule(node_->world_->now()); }

  /// Something may have changed there.
  void mark(int handle);

 private:
  struct Watch {
    bool open = false;
    uint64_t token = 0;
    Interest interest;
    bool queued = false;
  };

  Node* const node_;
  std::vector<Watch> watches_;  // by handle
  std::deque<int> queue_;       // handles that may be ready
};

/// What a poller asks.
class Watched {
 public:
  virtual ~Watched() = default;
  [[nodiscard]] virtual Event ready(Interest interest) const = 0;
};

/// One connection between two ends: 0 is the client's, 1 the server's.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(World* world, Host* client, Host* server);
  ~Connection();

  void dial(int port, int attempt);
  /// What an end does.
  Result<IoCount> read(int side, std::span<const IoSlice> into);
  Result<IoCount> write(int side, std::span<const ConstIoSlice> from);
  void close(int side);
  [[nodiscard]] Event ready(int side) const;
  [[nodiscard]] Result<bool> connected(int side) const;

  /// What the world does.
  void attach(int side, Node* node, int handle);
  void break_off(Break how, int side);
  void lose(int side, Death death);

  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] Node* node(int side) const { return end(side).node; }

 private:
  struct Segment {
    int64_t arrival;
    std::vector<std::byte> bytes;
    bool is_end;
  };
  struct End {
    Host* host = nullptr;
    Node* node = nullptr;  // while somebody has it
    int handle = -1;
    bool closed = false;  // by its owner, or by the death of the owner
    bool connected = false;
    std::string error;
    // Receiving.
    std::vector<std::byte> in;  // what was not read begins at in_at
    size_t in_at = 0;
    bool in_end = false;
    // Sending.
    std::deque<Segment> flight;
    size_t unread = 0;  // bytes taken from the writer that it does not know to be read
    size_t acks = 0;    // bytes read by the peer that the writer is about to learn of
    bool full = false;
    bool moving = false;  // an arrival is scheduled
    int64_t last_arrival = 0;
    int64_t retransmit_ns = 0;
    int64_t stuck_since = -1;

    [[nodiscard]] size_t waiting() const { return in.size() - in_at; }
  };
  [[nodiscard]] End& end(int side) { return ends_[static_cast<size_t>(side)]; }
  [[nodiscard]] const End& end(int side) const { return ends_[static_cast<size_t>(side)]; }
  [[nodiscard]] bool blocked() const;
  void mark(int side);
  void push(int side, Segment segment);
  void move(int side);
  void arrive(int side);
  void acknowledge(int side);
  void fail(int side, const std::string& why);
  /// Tells the other end that this one wants nothing any more.
  void reset_other(int side);
  static size_t take_in(End* to, std::span<const IoSlice> into, size_t most);

  World* const world_;
  const uint64_t id_;
  std::array<End, 2> ends_;
  bool dead_ = false;  // nothing arrives any more
};

/// An end that a node has open.
class SimStream final : public Stream, public Watched {
 public:
  SimStream(Node* node, std::shared_ptr<Connection> connection, int side);
  ~SimStream() override;

  [[nodiscard]] int handle() const override { return handle_; }
  Result<bool> connected() override { return connection_->connected(side_); }
  Result<IoCount> readv(std::span<const IoSlice> into) override {
    return connection_->read(side_, into);
  }
  Result<IoCount> writev(std::span<const ConstIoSlice> from) override {
    return connection_->write(side_, from);
  }
  [[nodiscard]] Event ready(Interest /*interest*/) const override {
    return connection_->ready(side_);
  }

 private:
  Node* const node_;
  const std::shared_ptr<Connection> connection_;
  const int side_;
  const int handle_;
};

class SimListener final : public Listener, public Watched {
 public:
  SimListener(Node* node, Address address);
  ~SimListener() override;

  [[nodiscard]] int handle() const override { return handle_; }
  [[nodiscard]] const Address& address() const override { return address_; }
  Result<std::unique_ptr<Stream>> accept() override;
  [[nodiscard]] Event ready(Interest /*interest*/) const override {
    return {.readable = !waiting_.empty()};
  }

  /// False when too many wait.
  bool offer(std::shared_ptr<Connection> connection);
  /// Its process is gone.
  void shut();
  [[nodiscard]] const Node* node() const { return node_; }

 private:
  Node* const node_;
  const Address address_;
  const int handle_;
  bool open_ = true;
  std::deque<std::shared_ptr<Connection>> waiting_;
};

}  // namespace sidereal::sys::sim
