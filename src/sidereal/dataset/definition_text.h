#pragma once

#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/ir/schema.h"

namespace sidereal::dataset {

/// The ops of graphs that are definitions of datasets, each with one output that stands for a
/// dataset. To be added to a registry of all other ops, which functions are made of.
void register_dataset_ops(ir::OpRegistry* registry);

/// `dataset` as the text of a graph, the same for equal ones, for other processes; `registry` has
/// the dataset ops too. kFailedPrecondition, with the reason, for one that cannot leave this
/// process.
Result<std::string> to_text(const Dataset& dataset, const ir::OpRegistry& registry);

/// The reverse. Text from anyone: kInvalidArgument says what is
/// wrong with it; sizes are bounded.
Result<DatasetPtr> from_text(std::string_view text, const ir::OpRegistry& registry);

}  // namespace sidereal::dataset
