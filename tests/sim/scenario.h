#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "sidereal/config/options.h"
#include "sidereal/sys/sim/world.h"

namespace sidereal::sim {

/// What parameter servers and workers are made of.
enum class Kind : uint8_t {
  kLanes,        ///< Lanes with channels and acceptors, which call one another.
  kTasks,        ///< Tasks with data ports and data channels, which run programs.
  kCoordinator,  ///< A scheduler of closures alone, whose workers are events (coordinator.h).
  kMoves,        ///< Tasks that variables go between (moves.h).
  kViews,        ///< Voters, and starts of tasks that want to count (views.h).
};
/// "lanes", "tasks", "coordinator", "moves" or "views".
std::string_view name_of(Kind kind);

/// How a step of tasks is cut.
enum class Cut : uint8_t {
  kCalls,  ///< The worker calls, level by level.
  kLite,   ///< The same, merged; it waits for no push, and prefetches pulls.
  kParts,  ///< Each task runs a part, and they ask one another for tensors.
};

/// What one run is made of. Everything follows from the seed, but for what is asked for.
struct Scenario {
  uint64_t seed = 0;
  int workers = 0;
  int ps = 0;
  int lanes = 1;           ///< of each ps; they share its host, and die together
  int64_t calm_at_ns = 0;  ///< faults until then
  int64_t end_ns = 0;
  sys::sim::WorldOptions world;
  config::Options options;
  // Workers.
  bool resume = false;      ///< calls outlive their connections
  bool repeatable = false;  ///< pulls may be run again
  int tracks = 1;           ///< of a worker: each pulls and pushes, one step at a time
  int spread = 1;           ///< lanes that a step calls at once, at most
  int64_t think_ns = 0;
  int64_t deadline_ns_min = 0;
  int64_t deadline_ns_max = 0;
  int64_t bytes_small = 0;  ///< of most pulls and pushes, at most
  int64_t bytes_large = 0;  ///< of a few
  double large = 0;         ///< share of those
  double late = 0;          ///< share of calls that are answered later
  double cancelled = 0;     ///< share of calls that are cancelled on the way
  double refused = 0;       ///< share of calls that are answered with an error
  /// Mean time between two faults of one kind, of all hosts together; 0: none of them.
  int64_t break_ns = 0;
  int64_t cut_ns = 0;
  int64_t ps_death_ns = 0;
  int64_t worker_death_ns = 0;
  int64_t stall_ns = 0;
  int64_t slow_ns = 0;
  bool secret = false;  ///< The cluster has one: connections are TLS, of the key derived from it.
  Kind kind = Kind::kLanes;
  // Of tasks. There is no `resume`, `repeatable` and `late`: data channels know for themselves.
  Cut cut = Cut::kCalls;
  bool mapped = false;   ///< Of a task only the first lane's port is known, which passes calls on.
  int64_t width = 1;     ///< Numbers in a row of a variable.
  bool standby = false;  ///< Each ps has a synchronous one.
  int64_t standby_timeout_ns = 0;  ///< That lanes wait for it.
  int64_t standby_delay_ns = 0;    ///< Of what goes to it, or comes back, about.
  int64_t standby_break_ns = 0;    ///< Mean time between two faults of what it reads a lane by.

  [[nodiscard]] std::string to_string() const;
};

/// What is asked for beside the seed; 0 or nothing: drawn.
struct Wishes {
  int workers = 0;
  double seconds = 0;  ///< of virtual time
  std::optional<Kind> kind = {};
  std::optional<bool> secret = {};
  std::optional<bool> standby = {};

  /// As arguments of ./dev sim, each with a blank before it.
  [[nodiscard]] std::string to_string() const;
};

Scenario draw(uint64_t seed, const Wishes& wishes);

/// A number whose size is drawn, not only its value: between `low` and `high`.
int64_t sized(sys::sim::Rng& rng, int64_t low, int64_t high);
/// A mean time between faults of a kind, which are not there at all, 0, with probability `none`.
int64_t pause(sys::sim::Rng& rng, double none, int64_t low, int64_t high);
/// Calls `fault` again and again, about `mean_ns` apart, until `until_ns`; 0: never.
void each(sys::sim::World* world, sys::sim::Rng* rng, int64_t until_ns, int64_t mean_ns,
          std::function<void()> fault);

}  // namespace sidereal::sim
