#pragma once

#include <string>
#include <vector>

#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

/// What the tests of this module share.
namespace sidereal::passes {

enum class ShowDtypes { kNo, kYes };

/// What a pass made, which is verified: its nodes behind the placeholders and constants, as
/// "name = Op inputs; code", with kYes as "name b16 = ..." or "name f32 = ...".
std::vector<std::string> lines_of(const Result<StepGraph>& step, const ir::OpRegistry& registry,
                                  ShowDtypes show = ShowDtypes::kNo);

}  // namespace sidereal::passes
