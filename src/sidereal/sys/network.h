#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/sys/address.h"
#include "sidereal/sys/shared_memory.h"

/// The seam to the network. Nothing here blocks except Poller::wait(). `sys/posix` is the real
/// thing; a seeded simulation can stand behind the same interfaces.
namespace sidereal::sys {

/// Memory to read into or to write from.
struct IoSlice {
  std::byte* data = nullptr;
  size_t bytes = 0;
};
struct ConstIoSlice {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

/// What one transfer did.
struct IoCount {
  size_t bytes = 0;
  bool would_block = false;  ///< nothing moved now; wait for the poller
  bool end = false;          ///< reading only: the peer has finished sending
};

/// What to be told about.
struct Interest {
  bool readable = true;
  bool writable = false;

  friend bool operator==(const Interest&, const Interest&) = default;
};

/// What is ready. `token` is the number given to Poller::add().
struct Event {
  uint64_t token = 0;
  bool readable = false;
  bool writable = false;
  bool failed = false;  ///< error or hang-up; a read or connected() tells which

  [[nodiscard]] bool any() const { return readable || writable || failed; }
};

/// Readiness that lies in memory, so that a poller sees it without asking the system. A poller that
/// does not look for a while has the other side make handle() readable. Thread: the poller's.
class InMemory {
 public:
  virtual ~InMemory() = default;
  /// What handle() must be watched for when `wanted` of the pollable is.
  [[nodiscard]] virtual Interest handle_interest(Interest wanted) const = 0;
  /// The system reports `event` of handle(): leaves in it what concerns the pollable as it is.
  virtual void on_handle(Event* event) = 0;
  /// What is ready in memory, of `wanted`.
  virtual Event look(Interest wanted) = 0;
  /// The other side can make handle() readable at present. Else somebody must look now and then.
  [[nodiscard]] virtual bool can_be_woken(Interest wanted) const = 0;
  /// Nobody looks from now on. False, and it is as if not asked, when look() would find something.
  virtual bool close_eyes(Interest wanted) = 0;
  virtual void open_eyes() = 0;
};

/// Something a Poller can watch. Resource.
class Pollable {
 public:
  virtual ~Pollable() = default;
  /// A number that is unique among the open pollables of one Network.
  [[nodiscard]] virtual int handle() const = 0;
  /// Where all or some of its readiness lies in memory; else nullptr. Always the same.
  [[nodiscard]] virtual InMemory* in_memory() const { return nullptr; }
};

/// One connection: a reliable, ordered stream of bytes both ways. Closed when destroyed.
///
/// A stream may stand on another one and keep bytes back (TLS): holds_input() and holds_output()
/// tell what the poller does not know.
/// Thread: one at a time.
class Stream : public Pollable {
 public:
  /// True once connected, false while still connecting; else an error with the reason:
  /// kUnavailable; kUnauthenticated when the peer did not prove who it is, or says that this side
  /// did not; kDataLoss when it speaks something else.
  virtual Result<bool> connected() = 0;
  /// What to watch for before connected() is asked again.
  [[nodiscard]] virtual Interest connecting_interest() const {
    return {.readable = false, .writable = true};
  }
  /// Reads into the slices in order. A failed connection is kUnavailable with the reason.
  virtual Result<IoCount> readv(std::span<const IoSlice> into) = 0;
  /// Writes a prefix of the slices. A failed connection is kUnavailable with the reason.
  virtual Result<IoCount> writev(std::span<const ConstIoSlice> from) = 0;
  /// Bytes may have come that the poller does not tell of: readv() until it would block.
  [[nodiscard]] virtual bool holds_input() const { return false; }
  /// Bytes that writev() took have not left: writev(), of nothing if need be, when writable.
  [[nodiscard]] virtual bool holds_output() const { return false; }
  /// Both ends have the same address, so that the peer may be a process of this host.
  [[nodiscard]] virtual bool is_local() const { return false; }
};

/// A listening address. Thread: one at a time.
class Listener : public Pollable {
 public:
  /// The address with the port actually in use.
  [[nodiscard]] virtual const Address& address() const = 0;
  /// The next waiting connection, or nullptr when there is none now.
  virtual Result<std::unique_ptr<Stream>> accept() = 0;
};

/// Watches pollables (level-triggered: reported as long as it holds).
/// Thread: one, except wake(), which any thread may call.
class Poller {
 public:
  virtual ~Poller() = default;
  /// Starts watching. The pollable must be removed before it is destroyed.
  virtual Status add(const Pollable& what, uint64_t token, Interest interest) = 0;
  /// Changes what is watched for.
  virtual Status update(const Pollable& what, uint64_t token, Interest interest) = 0;
  virtual void remove(const Pollable& what) = 0;
  /// Fills `events` and returns how many. Waits at most `timeout_ns` (0: only looks; negative:
  /// until an event or wake()). Returns 0 on time-out and on wake().
  virtual size_t wait(std::span<Event> events, int64_t timeout_ns) = 0;
  /// Ends the current or the next wait() with a positive or negative timeout. Thread: any.
  virtual void wake() = 0;
};

/// Makes listeners, connections and pollers. Thread: any.
class Network {
 public:
  virtual ~Network() = default;
  virtual Result<std::unique_ptr<Poller>> create_poller() = 0;
  /// The address with its host as a number. May wait for the name service.
  virtual Result<Address> resolve(const Address& address) = 0;
  /// Whether connect() would wait for the name service.
  [[nodiscard]] virtual bool needs_look_up(const Address& address) const {
    (void)address;
    return false;
  }
  /// Asks the name service without waiting: `done` gets all addresses, hosts as numbers, IPv4
  /// first, or kNotFound; once, on another thread or before this returns; never after the network
  /// has gone. `done` must not wait.
  virtual void look_up(const Address& address,  // NOLINTNEXTLINE(performance-*): overriders keep it
                       std::function<void(const Result<std::vector<Address>>&)> done) {
    const Result<Address> found = resolve(address);
    if (!found.ok()) return done(found.status());
    done(std::vector<Address>{*found});
  }
  /// Listens. An address in use is kAlreadyExists naming the address and what to do.
  virtual Result<std::unique_ptr<Listener>> listen(const Address& address) = 0;
  /// Begins a connection: watch it for `writable`, then ask Stream::connected(). The host should
  /// be a number (see resolve()): a name may wait for the name service.
  virtual Result<std::unique_ptr<Stream>> connect(const Address& address) = 0;
  /// New memory to be shared with another process, with rings of `ring_bytes` (is_ring_size() of
  /// shared_ring.h). kFailedPrecondition where there is no such thing, kResourceExhausted.
  virtual Result<std::unique_ptr<SharedMemory>> share(uint64_t ring_bytes) {
    (void)ring_bytes;
    return base::failed_precondition("this network shares no memory");
  }
  /// The memory that a process of this host and user has offered. kFailedPrecondition with the
  /// reason when it is not to be had from here, kDataLoss when it is not what it should be.
  virtual Result<std::unique_ptr<SharedMemory>> find_shared(const SharedPlace& place) {
    (void)place;
    return base::failed_precondition("this network shares no memory");
  }
};

}  // namespace sidereal::sys
