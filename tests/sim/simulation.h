#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/lives.h"
#include "tests/sim/scenario.h"

/// Workers and parameter servers that talk through the real objects of lane and transport over a
/// simulated network, while everything goes wrong that may.
namespace sidereal::sim {

/// What came of a run.
struct Report {
  uint64_t hash = 0;  ///< of everything that happened
  uint64_t events = 0;
  int64_t applied = 0;  ///< pushes
  int64_t acknowledged = 0;
  int64_t kept = 0;  ///< Of these: found in a standby when their ps had ended.
  Outcomes outcomes;
  int faults = 0;
  int64_t slowest = 0;  ///< pushes of one worker while all was calm: the fewest and the most
  int64_t fastest = 0;
  Memory memory;
  std::vector<std::string> complaints;  ///< what must not be; empty: the run is good

  [[nodiscard]] std::string to_string() const;
};

/// Runs a scenario. `trace` gets a line for everything that happens; may be empty.
Report run(const Scenario& scenario,
           std::function<void(int64_t now_ns, std::string_view)> trace = {});

}  // namespace sidereal::sim
