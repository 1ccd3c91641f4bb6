#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/exec/kernel.h"
#include "sidereal/ir/schema.h"
#include "sidereal/lane/lane.h"
#include "sidereal/sys/clock.h"
#include "sidereal/transport/endpoint.h"

namespace sidereal::control::v1 {
class JobEvent;
class RunJobRequest;
}  // namespace sidereal::control::v1

namespace sidereal::security {
class Credentials;
}  // namespace sidereal::security

namespace sidereal::app {

/// What a job uses of the worker it runs on. Pointers are borrowed.
struct WorkerParts {
  std::string task;                                          ///< Its name.
  std::vector<lane::Lane*> lanes;                            ///< One loop of steps runs on each.
  std::vector<transport::Endpoint*> endpoints;               ///< One per lane.
  std::shared_ptr<const security::Credentials> credentials;  ///< For control calls to ps tasks.
  const ir::OpRegistry* ops = nullptr;
  const exec::KernelTable* kernels = nullptr;
  sys::Random* random = nullptr;  ///< Names connections to ps tasks.
};

/// How a job talks to whoever asked for it.
struct JobObserver {
  /// True when nobody wants the job any more; asked several times a second.
  std::function<bool()> cancelled;
  /// Takes an event; false when it cannot be delivered, which cancels the job.
  std::function<bool(const control::v1::JobEvent&)> emit;
};

/// Runs one job from its description to its end: compiles the graph for the ps tasks it finds,
/// registers their programs, and runs steps over the worker's share of the data on every lane.
/// The description comes from a peer and may be wrong in any way. Errors name what was lost.
/// Thread: a control thread; waits.
Status run_job(const WorkerParts& parts, const control::v1::RunJobRequest& request,
               const JobObserver& observer);

}  // namespace sidereal::app
