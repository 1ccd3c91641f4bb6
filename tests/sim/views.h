#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/scenario.h"

/// Which start of a task counts, decided while everything goes wrong that may. Voters
/// (membership::Voter) and what asks them (membership::Lease) are real; processes, their clocks,
/// and the messages between them are simulated.
namespace sidereal::sim {

/// What one run is made of. Everything follows from the seed.
struct ViewsScenario {
  uint64_t seed = 0;
  int voters = 3;
  int tasks = 1;
  int starts = 2;  ///< Of a task that live at a time, at most.
  int64_t lease_ns = 0;
  int64_t promise_ns = 0;
  double drift = 0;        ///< That rates of clocks differ by from the true one, at most.
  int64_t calm_at_ns = 0;  ///< Faults until then.
  int64_t end_ns = 0;
  int64_t delay_ns = 0;  ///< Of a message, about,
  double lost = 0;       ///< of which this share is lost,
  double late = 0;       ///< and this share may come when what it says is long past.
  /// Mean times between two faults of one kind; 0: none of them.
  int64_t death_ns = 0;        ///< Of a start of a task; another one begins.
  int64_t second_ns = 0;       ///< Another start begins, though one lives.
  int64_t voter_death_ns = 0;  ///< It begins again, with what it has kept.
  int64_t stop_ns = 0;         ///< A process stands still.
  int64_t cut_ns = 0;          ///< Of what goes from one process to another.

  [[nodiscard]] std::string to_string() const;
};

ViewsScenario draw_views(uint64_t seed, const Wishes& wishes);

/// What came of a run.
struct ViewsReport {
  uint64_t hash = 0;
  uint64_t events = 0;
  int64_t held = 0;     ///< Leases, of starts that had none.
  int64_t deposed = 0;  ///< Starts.
  int64_t deaths = 0;
  int64_t voter_deaths = 0;
  int64_t cuts = 0;
  int64_t simulated_ns = 0;
  std::vector<std::string> complaints;  ///< what must not be; empty: the run is good

  [[nodiscard]] std::string to_string() const;
};

ViewsReport run_views(const ViewsScenario& scenario,
                      std::function<void(int64_t now_ns, std::string_view)> trace = {});

}  // namespace sidereal::sim
