#pragma once

#include <vector>

#include "sidereal/service/session.pb.h"
#include "sidereal/task/loop.h"

/// Loops as messages. For the .cc files of service.
namespace sidereal::service {

/// But for the session and the values of constants.
void to_proto(const task::LoopOptions& options, session::v1::LoopHead* head);
/// The same back; constants have names and no values yet. kInvalidArgument for a number that stands
/// for nothing; the rest is for check_loop().
Result<task::LoopOptions> from_proto(const session::v1::LoopHead& head);

void to_proto(int lane, const task::LoopProgress& progress,
              const std::vector<std::vector<double>>& series, session::v1::LoopProgress* out);
/// kDataLoss where progress is of a lane or a pass that no task has in a loop of these options.
Status check_progress(const session::v1::LoopProgress& given, const task::LoopOptions& options);
/// Totals of a lane; `out` has a scalar for each fetch, more are left out. Passes that have ended
/// come behind those that it has.
void from_proto(const session::v1::LoopProgress& given, task::LoopProgress* out);

/// Adds up what lanes have told. `fetches` as many scalars come out.
task::LoopProgress total_of(const std::vector<task::LoopProgress>& lanes, size_t fetches);

}  // namespace sidereal::service
