#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "tests/sim/scenario.h"

/// What steps of tasks run: graphs over variables of the parameter servers, cut and compiled.
namespace sidereal::sim {

/// What a step is for.
enum class Work : uint8_t {
  kPull,   ///< Gets rows of each place.
  kPush,   ///< Adds to rows of each place.
  kTrain,  ///< Gets rows, and adds to them what depends on that.
  kRead,   ///< Gets all weights of each place.
  kWrite,  ///< Gives all weights of each place the value they have.
};
inline constexpr size_t kWorks = 5;

/// A program, and the devices that its Sends and Recvs name.
struct PlannedProgram {
  std::string bytes;
  int lane = 0;  ///< -1: that of the session
  std::vector<std::string> peers = {};
};

/// A place is a variable on a lane of a ps: number ps * lanes + lane.
struct StepPlan {
  Work work = Work::kPull;
  std::vector<size_t> places;
  PlannedProgram own;              ///< Of the worker.
  std::vector<std::string> feeds;  ///< Of it: "ids_2", "updates_2" or "weights_2", of place 2.
  bool fetches = true;             ///< What it gets of each place, in their order; else nothing.
  struct Remote {
    int ps = 0;
    PlannedProgram program;
  };
  /// What is registered elsewhere; where steps are cut into parts, each is a part.
  std::vector<Remote> remotes;
};

/// Elements of the weights of a place, all of which have this value.
inline constexpr float kWeight = 7;
int64_t weights(const Scenario& scenario);

/// What a lane of a ps runs at its begin and at its end.
struct StatePrograms {
  std::string begin;  ///< Fed with the rows, the weights, and a [1] that is 0.
  std::string end;    ///< Fetches the rows.
};

/// Those of all workers: for each kind of work in turn, one that begins at each place. The worker
/// is kPlanWorker wherever its name stands in a list of peers.
inline constexpr const char* kPlanWorker = "/job:worker/replica:0/task:0/device:CPU:0";
Result<std::vector<StepPlan>> make_plans(const Scenario& scenario);
/// Those of a ps, by lane.
Result<std::vector<StatePrograms>> make_state_programs(const Scenario& scenario, int ps);

}  // namespace sidereal::sim
