#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/attr.h"
#include "sidereal/kernels/optimizer_rules.h"

namespace sidereal::ops {

/// The optimizer that the attributes of an op name: `kind` is the rule, and the parameters have
/// their names. Others have their standard values. kInvalidArgument as UpdateRule::make() says, or
/// for attributes of other types.
Result<kernels::UpdateRule> update_rule_of(const ir::AttrMap& attrs);

}  // namespace sidereal::ops
