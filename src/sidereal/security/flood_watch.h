#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/sys/posix/connections.h"

/// Internal to security.
namespace sidereal::security {

using sys::posix::PeerName;

/// As gRPC writes it: "ipv4:127.0.0.1:41234", "ipv6:%5B::1%5D:41234".
PeerName parse_peer(std::string_view text);

/// What a server of this process has to do for one connection, by gRPC's own count (channelz).
struct ConnectionCalls {
  int64_t id = 0;
  PeerName peer;
  int64_t begun = 0;
  int64_t answered = 0;   ///< Those that ended well (with an error too), or, if that is more, what
                          ///< was said in answer: a busy server forgets calls late.
  int64_t under_way = 0;  ///< Begun and not yet forgotten, cancelled ones too: each takes memory.
};

/// What a peer has done lately: of some thousands of calls before, none counts any more.
class RecentCalls {
 public:
  /// What gRPC counts now.
  void see(const ConnectionCalls& now);
  /// Whether most of its calls were cancelled, or wait.
  [[nodiscard]] bool mostly_begins() const;

 private:
  int64_t begun_ = 0, answered_ = 0;          ///< Lately.
  int64_t all_begun_ = 0, all_answered_ = 0;  ///< When it was last seen.
};

/// Ends connections with more calls under way than a server can bear. HTTP/2 bounds the calls that
/// a peer has open, but not those that it begins and cancels at once (CVE-2023-44487, "rapid
/// reset"): gRPC reads them faster than it ends them, all before any code of a service runs, and
/// each holds 18 to 36 kB until then.
///
/// Thread: one at a time.
class FloodWatch {
 public:
  /// Watches the server that listens at `port`. A connection most of whose calls were not answered
  /// lately may have `one_max` of them under way, any other `all_max`. Where all together have more
  /// than `all_max`, those of the first kind end; without any, the one with most.
  FloodWatch(uint16_t port, int64_t one_max, int64_t all_max);

  /// Looks, and shuts down connections that are beyond the limits; their peers. Takes a few
  /// microseconds when most calls end well.
  std::set<PeerName> look();
  /// Whether the last look saw many new calls that did not end well: the next should be soon.
  [[nodiscard]] bool is_busy() const { return is_busy_; }
  /// Whether so much was under way that hosts that flooded should wait.
  [[nodiscard]] bool is_overloaded() const { return is_overloaded_; }

 private:
  /// Calls of all connections that have not ended well.
  [[nodiscard]] int64_t not_ended_well() const;
  [[nodiscard]] std::vector<ConnectionCalls> connections();
  /// Those of `all` to end.
  [[nodiscard]] std::vector<const ConnectionCalls*> floods(const std::vector<ConnectionCalls>& all);

  const uint16_t port_;
  const int64_t one_max_;
  const int64_t all_max_;
  int64_t server_ = 0;  ///< gRPC's number of our server; 0: not known yet.
  int64_t not_ended_well_ = 0;
  bool is_busy_ = false;
  bool is_overloaded_ = false;
  std::map<int64_t, RecentCalls> recent_;
  std::set<int64_t> ended_;  ///< Shut down, and not yet forgotten by gRPC.
};

}  // namespace sidereal::security
