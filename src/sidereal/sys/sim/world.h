#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/base/function.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/network.h"
#include "sidereal/sys/sim/rng.h"

/// A network, clocks and processes that exist in one thread and follow from a seed: everything that
/// the seam of `sys` promises, with the faults that real machines have. For tests.
namespace sidereal::sys::sim {

class World;
class Node;
class Connection;
class SimListener;

/// How bytes travel. Times in nanoseconds.
struct WorldOptions {
  int64_t delay_ns_min = 50 * kMicrosecond;     ///< one way, between any two hosts
  int64_t delay_ns_around = 50 * kMicrosecond;  ///< on top: a mean; connections differ in order
  double loss = 0;                              ///< that a segment is lost and sent again
  int64_t retransmit_ns = 200 * kMillisecond;   ///< after which; then twice as long, and so on
  int64_t give_up_ns = 120 * kSecond;           ///< when a sender that nobody answers gives up
  int64_t host_bytes_per_s = 1'250'000'000;     ///< in and out of one host
  size_t buffer_bytes = 256 << 10;     ///< of one direction of a connection, both ends together
  double short_io = 0.05;              ///< that a read or write moves less than it could
  int64_t step_ns_min = kMicrosecond;  ///< what one step of a runner takes
  int64_t step_ns_max = 5 * kMicrosecond;
  size_t backlog = 1024;  ///< connections that wait to be accepted
};

/// What lives on a node, such as a lane. Borrowed by the node until it is killed.
class Runner {
 public:
  virtual ~Runner() = default;
  /// Does what there is to do now; true if there was anything.
  virtual bool step() = 0;
  /// When the next step is due without events, by the clock of the node; INT64_MIN: at once;
  /// INT64_MAX: never.
  virtual int64_t next_wake() = 0;
};

/// A machine, with an address of its own. Made by World::add_host().
class Host {
 public:
  [[nodiscard]] int index() const { return index_; }
  /// Its number, such as "127.1.0.7".
  [[nodiscard]] const std::string& address() const { return address_; }
  /// That it was sent and has sent, what is on its way included.
  [[nodiscard]] uint64_t bytes_moved() const { return bytes_moved_; }

 private:
  friend class World;
  friend class Node;
  friend class Connection;
  friend class SimListener;
  int index_ = 0;
  std::string address_;
  bool up_ = true;
  bool cut_ = false;  // from everybody else
  int64_t bytes_per_s_ = 0;
  int64_t out_free_ = 0;  // when the last byte so far has left, or come
  int64_t in_free_ = 0;
  uint64_t bytes_moved_ = 0;
  int next_port_ = 40'000;
  std::map<int, SimListener*> listeners_;
};

/// How a process ends.
enum class Death {
  kKilled,  ///< the host's kernel closes what it had open
  kSilent,  ///< the host is gone: nobody is told, until it is up again and they say something
};

/// How a connection ends by the network's doing.
enum class Break {
  kBoth,    ///< both ends learn, at different times
  kOne,     ///< one end learns; the other one when it sends something
  kSilent,  ///< nothing arrives any more, and nobody is told
};

/// A process with one thread: a network, a clock, random numbers, and what runs on it. Several may
/// be on one host. Owned by its World. Thread: the world's.
class Node final : public Network, public Clock {
 public:
  Node(World* world, Host* host, int index, Rng rng, int64_t clock_offset_ns);
  ~Node() override;

  /// `runner` takes steps from now on, until the node is killed.
  void drive(Runner* runner);
  /// The step that runs takes so much longer, as does now().
  void spend(int64_t ns) { spent_ += ns; }
  [[nodiscard]] Host* host() const { return host_; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] bool alive() const { return alive_; }
  /// What runs here draws from these.
  [[nodiscard]] Rng& random() { return rng_; }

  int64_t now() override;

  /// One for each node.
  Result<std::unique_ptr<Poller>> create_poller() override;
  Result<Address> resolve(const Address& address) override;
  Result<std::unique_ptr<Listener>> listen(const Address& address) override;
  Result<std::unique_ptr<Stream>> connect(const Address& address) override;

 private:
  friend class World;
  friend class Connection;
  friend class SimStream;
  friend class SimListener;
  friend class SimPoller;

  int take_handle(const class Watched* what);
  void free_handle(int handle);
  /// Steps at `time_ns` or before.
  void schedule(int64_t time_ns);
  void take_step();

  World* const world_;
  Host* const host_;
  const int index_;
  Rng rng_;
  const int64_t clock_offset_ns_;
  bool alive_ = true;
  Runner* runner_ = nullptr;
  class SimPoller* poller_ = nullptr;
  std::vector<const Watched*> handles_;  // nullptr: free
  int64_t spent_ = 0;
  int64_t busy_until_ = 0;
  int64_t scheduled_at_ = INT64_MAX;
  uint64_t schedule_ = 0;  // which scheduled step counts
};

/// Time, and all that happens. The order of everything, and every number that is drawn, follows
/// from the seed and from what is asked of it.
/// Lifecycle: nodes and hosts live as long as it does; streams and pollers of nodes die before.
/// Thread: one.
class World {
 public:
  World(uint64_t seed, const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Host* add_host();
  Node* add_node(Host* host);

  [[nodiscard]] int64_t now() const { return now_; }
  [[nodiscard]] const WorldOptions& options() const { return options_; }
  [[nodiscard]] Rng& random() { return rng_; }
  /// Calls `fn` at that time.
  void at(int64_t time_ns, base::Function<void()> fn);
  void after(int64_t delay_ns, base::Function<void()> fn) { at(now_ + delay_ns, std::move(fn)); }
  /// Lets everything happen that is due before `time_ns`, which it is then.
  void run_until(int64_t time_ns);

  /// The process takes no step any more. Its objects are then destroyed by their owner. With
  /// kSilent the host is down until revive().
  void kill(Node* node, Death death);
  /// The host is up again.
  void revive(Host* host) { host->up_ = true; }
  /// The process stands still for a while.
  void stall(Node* node, int64_t ns);
  /// Nothing arrives at or leaves the host any more, until it heals.
  void cut(Host* host) { host->cut_ = true; }
  void heal(Host* host) { host->cut_ = false; }
  /// Nothing passes between the two.
  void cut(const Host* one, const Host* other) { pairs_[pair_of(one, other)] = true; }
  void heal(const Host* one, const Host* other) { pairs_.erase(pair_of(one, other)); }
  /// From now on in and out of the host; 0: as others.
  void set_rate(Host* host, int64_t bytes_per_s);
  /// Breaks one of the connections that are open, chosen at random. False when there is none.
  bool break_any(Break how);
  /// Connections that at least one end has open.
  [[nodiscard]] size_t connections() const { return connections_.size(); }

  /// Of everything that has happened so far.
  [[nodiscard]] uint64_t hash() const { return hash_; }
  [[nodiscard]] uint64_t events() const { return events_; }
  /// Gets a line for everything that happens; nullptr: nobody does.
  void set_trace(base::Function<void(int64_t now_ns, std::string_view what)> trace) {
    trace_ = std::move(trace);
  }
  /// Something happened, which goes into the hash and the trace.
  void note(std::string_view what, uint64_t a = 0, uint64_t b = 0);

 private:
  friend class Node;
  friend class Connection;
  friend class SimStream;
  friend class SimListener;
  friend class SimPoller;

  struct Due {
    int64_t time;
    uint64_t order;
    mutable base::Function<void()> fn;
    friend bool operator<(const Due& a, const Due& b) {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  static std::pair<int, int> pair_of(const Host* a, const Host* b) {
    return a->index_ < b->index_ ? std::pair(a->index_, b->index_)
                                 : std::pair(b->index_, a->index_);
  }
  [[nodiscard]] bool blocked(const Host* a, const Host* b) const;
  /// One way, for something small.
  int64_t delay();
  /// When so many bytes that leave now have arrived.
  int64_t arrival(Host* from, Host* to, size_t bytes);

  const WorldOptions options_;
  Rng rng_;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  uint64_t hash_ = 0;
  uint64_t events_ = 0;
  base::Function<void(int64_t, std::string_view)> trace_;
  std::priority_queue<Due> due_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::pair<int, int>, bool> pairs_;    // that are cut
  std::map<uint64_t, Connection*> connections_;  // by number
  uint64_t next_connection_ = 1;
};

}  // namespace sidereal::sys::sim
