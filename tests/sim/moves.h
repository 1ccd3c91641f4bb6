#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/sys/sim/world.h"
#include "tests/sim/scenario.h"

/// Variables that go from one parameter server to another while they are pushed to, each server
/// with a synchronous standby on the next one, while everything goes wrong that may. Tasks, their
/// change logs, replicas, what a follower makes of what comes (task::TaskCopy) and what becomes of
/// variables that arrive (task::VariableIntake) are real. What waits for threads and gRPC has
/// stand-ins that do the same with messages that are late: streams (late_copy.h), a task's side of
/// a move (move_in.h), and the training program, which plans, drains and commits (mover.h).
namespace sidereal::sim {

/// What one run is made of. Everything follows from the seed.
struct MovesScenario {
  uint64_t seed = 0;
  int ps = 2;
  int lanes = 1;
  int variables = 2;       ///< Every second one is a slot of the one before, and goes with it.
  int64_t rows = 0;        ///< Of each; row 0 is nobody's.
  int clients = 1;         ///< That push, one closure at a time each.
  int64_t calm_at_ns = 0;  ///< Faults until then.
  int64_t end_ns = 0;
  int64_t delay_ns = 0;     ///< Of a message, about.
  int64_t think_ns = 0;     ///< Between two pushes of a client, about;
  int64_t deadline_ns = 0;  ///< of one try of it,
  double lost = 0;          ///< of which this share is lost on the way, or its answer,
  double twice = 0;         ///< and this share is sent twice.
  int64_t rest_ns = 0;      ///< Between two moves, about.
  int64_t take_ns = 0;      ///< That a task has to take what is left.
  double cancelled = 0;     ///< Share of looks of a mover at a move that end it.
  int64_t notice_ns = 0;    ///< About, until a task knows that a mover has gone.
  double accident = 0;      ///< That one of a move's tasks dies as it comes to its next stage.
  int64_t standby_timeout_ns = 0;
  /// Mean times between two faults of one kind; 0: none of them.
  int64_t break_ns = 0;  ///< Of one stream.
  int64_t ps_death_ns = 0;
  int64_t mover_death_ns = 0;
  int64_t stall_ns = 0;

  [[nodiscard]] std::string to_string() const;
};

MovesScenario draw_moves(uint64_t seed, const Wishes& wishes);

/// What came of a run.
struct MovesReport {
  uint64_t hash = 0;
  uint64_t events = 0;
  int64_t pushes = 0;      ///< That were answered.
  int64_t tries = 0;       ///< Of pushes.
  int64_t moves = 0;       ///< That were committed;
  int64_t calm_moves = 0;  ///< of these, after the last fault.
  int64_t given_up = 0;    ///< Moves.
  int64_t ps_deaths = 0;   ///< From which a server came back with what its standby had.
  int64_t mover_deaths = 0;
  int64_t simulated_ns = 0;
  std::vector<std::string> complaints;  ///< what must not be; empty: the run is good

  [[nodiscard]] std::string to_string() const;
};

MovesReport run_moves(const MovesScenario& scenario,
                      std::function<void(int64_t now_ns, std::string_view)> trace = {});

}  // namespace sidereal::sim
