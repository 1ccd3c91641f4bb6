#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Makes one UniqueRoute of all Unique and Route nodes of an expanded graph that can run at one
/// time: those of all tables whose ids are there after equally many round trips to the ps. They
/// share one hash table and its memory. Calls stay as they are, and results the same to the last
/// bit. A Unique that is read by others than Routes, or a Route that is fetched or
/// ordered by control edges, is left alone.
Result<StepGraph> unite_routes(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
