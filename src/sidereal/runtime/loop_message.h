#pragma once

#include <vector>

#include "sidereal/runtime/loop.h"
#include "sidereal/runtime/session.pb.h"

/// Loops as messages. For the .cc files of runtime.
namespace sidereal::runtime {

/// But for the session and the values of constants.
void to_proto(const LoopOptions& options, session::v1::LoopHead* head);
/// The same back; constants have names and no values yet. kInvalidArgument for a number that stands
/// for nothing; the rest is for check_loop().
Result<LoopOptions> from_proto(const session::v1::LoopHead& head);

void to_proto(int lane, const LoopProgress& progress,
              const std::vector<std::vector<double>>& series, session::v1::LoopProgress* out);
/// Totals of a lane; `out` has a scalar for each fetch, more are left out.
void from_proto(const session::v1::LoopProgress& given, LoopProgress* out);

/// Adds up what lanes have told. `fetches` as many scalars come out.
LoopProgress total_of(const std::vector<LoopProgress>& lanes, size_t fetches);

}  // namespace sidereal::runtime
