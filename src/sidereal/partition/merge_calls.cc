#include "sidereal/partition/internal/call_plan.h"

namespace sidereal::partition {

void merge_calls(CallRegion* region) { static_cast<void>(region); }

}  // namespace sidereal::partition
