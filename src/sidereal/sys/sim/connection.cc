#include "sidereal/sys/sim/connection.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::sys::sim {
namespace {

constexpr int kDialsMax = 6;
constexpr const char* kReset = "Connection reset by peer";
constexpr const char* kGone = "The process has ended";

}  // namespace

// ---- Poller ----------------------------------------------------------------------------------

Status SimPoller::add(const Pollable& what, uint64_t token, Interest interest) {
  const auto at = static_cast<size_t>(what.handle());
  if (watches_.size() <= at) watches_.resize(at + 1);
  watches_[at].open = true;
  return update(what, token, interest);
}

Status SimPoller::update(const Pollable& what, uint64_t token, Interest interest) {
  Watch& watch = watches_[static_cast<size_t>(what.handle())];
  watch.token = token;
  watch.interest = interest;
  mark(what.handle());
  return {};
}

void SimPoller::remove(const Pollable& what) {
  watches_[static_cast<size_t>(what.handle())].open = false;
}

void SimPoller::mark(int handle) {
  const auto at = static_cast<size_t>(handle);
  if (at >= watches_.size() || !watches_[at].open) return;
  if (!std::exchange(watches_[at].queued, true)) queue_.push_back(handle);
  node_->schedule(node_->world_->now());
}

size_t SimPoller::wait(std::span<Event> events, int64_t /*timeout_ns*/) {
  // The order in which a kernel reports what is ready is its own affair.
  if (queue_.size() > 1 && node_->world_->random().chance(0.5)) {
    const auto by = static_cast<int64_t>(node_->world_->random().below(queue_.size()));
    std::rotate(queue_.begin(), queue_.begin() + by, queue_.end());
  }
  size_t count = 0;
  for (size_t left = queue_.size(); left > 0 && count < events.size(); --left) {
    const int handle = queue_.front();
    queue_.pop_front();
    Watch& watch = watches_[static_cast<size_t>(handle)];
    watch.queued = false;
    if (!watch.open) continue;
    // What is watched may be a stream over the simulated one, such as TLS: the handle counts.
    Event event = node_->handles_[static_cast<size_t>(handle)]->ready(watch.interest);
    event.token = watch.token;
    event.readable = event.readable && watch.interest.readable;
    event.writable = event.writable && watch.interest.writable;
    if (!event.readable && !event.writable && !event.failed) continue;
    events[count++] = event;
    watch.queued = true;
    queue_.push_back(handle);
  }
  return count;
}

// ---- Streams and listeners -------------------------------------------------------------------

SimStream::SimStream(Node* node, std::shared_ptr<Connection> connection, int side)
    : node_(node),
      connection_(std::move(connection)),
      side_(side),
      handle_(node->take_handle(this)) {
  connection_->attach(side, node, handle_);
}

SimStream::~SimStream() {
  connection_->close(side_);
  node_->free_handle(handle_);
}

SimListener::SimListener(Node* node, Address address)
    : node_(node), address_(std::move(address)), handle_(node->take_handle(this)) {
  node->host_->listeners_[address_.port] = this;
}

SimListener::~SimListener() {
  shut();
  node_->free_handle(handle_);
}

void SimListener::shut() {
  if (!std::exchange(open_, false)) return;
  node_->host_->listeners_.erase(address_.port);
  for (const auto& connection : waiting_) connection->close(1);
  waiting_.clear();
}

bool SimListener::offer(std::shared_ptr<Connection> connection) {
  if (waiting_.size() >= node_->world_->options().backlog) return false;
  waiting_.push_back(std::move(connection));
  if (node_->poller_ != nullptr) node_->poller_->mark(handle_);
  return true;
}

Result<std::unique_ptr<Stream>> SimListener::accept() {
  if (waiting_.empty()) return std::unique_ptr<Stream>();
  const std::shared_ptr<Connection> connection = std::move(waiting_.front());
  waiting_.pop_front();
  return std::make_unique<SimStream>(node_, connection, 1);
}

// ---- Connection ------------------------------------------------------------------------------

Connection::Connection(World* world, Host* client, Host* server)
    : world_(world), id_(world->next_connection_++) {
  end(0).host = client;
  end(1).host = server;
  world_->connections_[id_] = this;
}

Connection::~Connection() { world_->connections_.erase(id_); }

bool Connection::blocked() const { return dead_ || world_->blocked(end(0).host, end(1).host); }

void Connection::attach(int side, Node* node, int handle) {
  End& own = end(side);
  own.node = node;
  own.handle = handle;
}

void Connection::mark(int side) {
  const End& own = end(side);
  if (own.node != nullptr && own.node->poller_ != nullptr) own.node->poller_->mark(own.handle);
}

void Connection::dial(int port, int attempt) {
  world_->after(world_->delay(), [self = shared_from_this(), this, port, attempt] {
    if (end(0).closed || !end(0).error.empty()) return;
    const auto listener = end(1).host->listeners_.find(port);
    const bool heard = !blocked() && !world_->rng_.chance(world_->options_.loss);
    if (heard && listener == end(1).host->listeners_.end()) {
      return world_->after(world_->delay(), [self, this] { fail(0, "Connection refused"); });
    }
    if (heard && listener->second->offer(self)) {
      end(1).connected = true;
      return world_->after(world_->delay(), [self, this] {
        end(0).connected = true;
        mark(0);
      });
    }
    if (attempt == kDialsMax) return fail(0, "Connection timed out");
    world_->after(kSecond << attempt, [self, this, port, attempt] { dial(port, attempt + 1); });
  });
}

Result<bool> Connection::connected(int side) const {
  const End& own = end(side);
  if (!own.error.empty()) return base::unavailable("{}", own.error);
  return own.connected;
}

Event Connection::ready(int side) const {
  const End& own = end(side);
  const size_t most = world_->options_.buffer_bytes;
  const bool has_room = own.full ? own.unread <= most / 3 * 2 : own.unread < most;
  return {.readable = own.waiting() > 0 || own.in_end || !own.error.empty(),
          .writable = own.connected && has_room,
          .failed = !own.error.empty()};
}

size_t Connection::take_in(End* to, std::span<const IoSlice> into, size_t most) {
  size_t done = 0;
  for (const IoSlice& slice : into) {
    const size_t n = std::min(slice.bytes, most - done);
    std::copy_n(to->in.begin() + static_cast<std::ptrdiff_t>(to->in_at + done), n, slice.data);
    done += n;
  }
  to->in_at += done;
  if (to->waiting() == 0) {
    to->in = {};
    to->in_at = 0;
  }
  return done;
}

Result<IoCount> Connection::read(int side, std::span<const IoSlice> into) {
  End& own = end(side);
  if (own.closed) return base::unavailable("{}", kGone);
  if (own.waiting() > 0) {
    size_t most = own.waiting();
    if (world_->rng_.chance(world_->options_.short_io)) most = 1 + world_->rng_.below(most);
    const size_t bytes = take_in(&own, into, most);
    world_->note("read", id_ * 2 + static_cast<uint64_t>(side), bytes);
    // The writer learns of the room a little later.
    End& writer = end(1 - side);
    writer.acks += bytes;
    if (writer.acks == bytes) {
      world_->after(world_->delay(),
                    [self = shared_from_this(), this, side] { acknowledge(side); });
    }
    mark(side);
    return IoCount{.bytes = bytes};
  }
  if (own.in_end) return IoCount{.end = true};
  if (!own.error.empty()) return base::unavailable("{}", own.error);
  return IoCount{.would_block = true};
}

/// What end `side` has read frees room at the other end.
void Connection::acknowledge(int side) {
  End& writer = end(1 - side);
  if (writer.closed || !writer.error.empty() || dead_) return;
  if (blocked()) {
    return world_->after(world_->options_.retransmit_ns,
                         [self = shared_from_this(), this, side] { acknowledge(side); });
  }
  writer.unread -= std::exchange(writer.acks, 0);
  mark(1 - side);
}

Result<IoCount> Connection::write(int side, std::span<const ConstIoSlice> from) {
  End& own = end(side);
  if (own.closed) return base::unavailable("{}", kGone);
  if (!own.error.empty()) return base::unavailable("{}", own.error);
  const size_t most = world_->options_.buffer_bytes;
  if (!own.connected || own.unread >= most) {
    own.full = own.connected;
    return IoCount{.would_block = true};
  }
  own.full = false;
  size_t wanted = 0;
  for (const ConstIoSlice& slice : from) wanted += slice.bytes;
  size_t bytes = std::min(wanted, most - own.unread);
  if (bytes == 0) return IoCount{};
  if (world_->rng_.chance(world_->options_.short_io)) bytes = 1 + world_->rng_.below(bytes);
  Segment segment{.arrival = 0, .bytes = {}, .is_end = false};
  segment.bytes.reserve(bytes);
  for (const ConstIoSlice& slice : from) {
    const size_t n = std::min(slice.bytes, bytes - segment.bytes.size());
    segment.bytes.insert(segment.bytes.end(), slice.data, slice.data + n);
  }
  world_->note("write", id_ * 2 + static_cast<uint64_t>(side), bytes);
  own.unread += bytes;
  push(side, std::move(segment));
  return IoCount{.bytes = bytes};
}

void Connection::push(int side, Segment segment) {
  End& own = end(side);
  segment.arrival = std::max(
      own.last_arrival, world_->arrival(own.host, end(1 - side).host, segment.bytes.size() + 66));
  own.last_arrival = segment.arrival;
  own.flight.push_back(std::move(segment));
  move(side);
}

/// Has the first segment that end `side` sent arrive when it does.
void Connection::move(int side) {
  End& own = end(side);
  if (own.moving || own.flight.empty()) return;
  own.moving = true;
  world_->at(own.flight.front().arrival, [self = shared_from_this(), this, side] {
    end(side).moving = false;
    arrive(side);
  });
}

void Connection::arrive(int side) {
  End& from = end(side);
  End& to = end(1 - side);
  if (from.flight.empty()) return;
  const WorldOptions& options = world_->options_;
  if (blocked() || world_->rng_.chance(options.loss)) {
    if (from.stuck_since < 0) from.stuck_since = world_->now_;
    if (world_->now_ - from.stuck_since > options.give_up_ns) {
      return fail(side, "Connection timed out");
    }
    from.retransmit_ns = std::max(options.retransmit_ns, 2 * from.retransmit_ns);
    from.flight.front().arrival = world_->now_ + std::min(from.retransmit_ns, 30 * kSecond);
    return move(side);
  }
  from.stuck_since = -1;
  from.retransmit_ns = 0;
  if (to.closed || !to.error.empty()) {
    from.flight.clear();
    return reset_other(1 - side);
  }
  while (!from.flight.empty() && from.flight.front().arrival <= world_->now_) {
    const Segment& segment = from.flight.front();
    to.in.insert(to.in.end(), segment.bytes.begin(), segment.bytes.end());
    to.in_end |= segment.is_end;
    from.flight.pop_front();
  }
  to.connected = true;
  mark(1 - side);
  move(side);
}

void Connection::fail(int side, const std::string& why) {
  End& own = end(side);
  if (own.closed || !own.error.empty()) return;
  world_->note(why, id_ * 2 + static_cast<uint64_t>(side));
  own.error = why;
  own.flight.clear();
  mark(side);
}

void Connection::reset_other(int side) {
  world_->after(world_->delay(), [self = shared_from_this(), this, side] {
    if (!blocked()) fail(1 - side, kReset);
  });
}

void Connection::close(int side) {
  End& own = end(side);
  own.node = nullptr;
  if (std::exchange(own.closed, true)) return;
  if (!own.error.empty()) return;
  // As kernels do it: what was not read tells the other side that it was not wanted.
  if (own.waiting() > 0) {
    own.in = {};
    own.in_at = 0;
    return reset_other(side);
  }
  if (own.connected || side == 1) {
    push(side, {.arrival = 0, .bytes = {}, .is_end = true});
  }
}

void Connection::lose(int side, Death death) {
  End& own = end(side);
  if (death == Death::kKilled) {
    close(side);
  } else {
    own.node = nullptr;
    own.closed = true;
    own.flight.clear();
  }
}

void Connection::break_off(Break how, int side) {
  const auto later = [this](int which) {
    world_->after(world_->rng_.around(100 * kMillisecond),
                  [self = shared_from_this(), this, which] { fail(which, kReset); });
  };
  switch (how) {
    case Break::kBoth:
      dead_ = true;
      later(0);
      return later(1);
    case Break::kOne:
      return fail(side, kReset);
    case Break::kSilent:
      dead_ = true;
  }
}

}  // namespace sidereal::sys::sim
