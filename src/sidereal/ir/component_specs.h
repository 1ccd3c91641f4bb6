#pragma once

#include <vector>

#include "sidereal/ir/graph.h"

namespace sidereal::ir {

/// Dtypes and shapes of several values as attributes: "dtypes" of type strings, their names, and
/// "shapes" of type ints, for each value its rank (-1: unknown) and its extents (-1: unknown).
/// Without "shapes", no shape is known. kInvalidArgument for attributes that say anything else.
Result<std::vector<TensorSpec>> component_specs(const AttrMap& attrs);

/// The reverse: both attributes.
AttrMap component_attrs(const std::vector<TensorSpec>& specs);

}  // namespace sidereal::ir
