#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/kernels/optimizer_rules.h"

/// Optimizers by name, as kernels/optimizer_rules.h has them with their parameters.
namespace sidereal::train {

using Parameters = kernels::UpdateRule::Parameters;

/// By which rule a variable is trained: a name of the table, and what differs from its standard
/// values. Value type.
struct OptimizerDef {
  std::string kind;
  Parameters parameters = {};
  friend bool operator==(const OptimizerDef&, const OptimizerDef&) = default;
};

/// The optimizer of that name; what is not given has its standard value. It is checked when a model
/// is compiled with it.
OptimizerDef optimizer_of(std::string_view name, std::optional<double> learning_rate = {},
                          const Parameters& parameters = {});

/// The names of all.
std::vector<std::string> optimizer_names();

/// The optimizer of that name with its standard learning rate, changed by `learning_rate` and
/// `parameters`. kInvalidArgument, listing what there is, for an unknown name or parameter, or
/// naming the parameter that is out of range.
Result<OptimizerDef> make_optimizer(std::string_view name, std::optional<double> learning_rate = {},
                                    const Parameters& parameters = {});

/// Ok when kind and parameters are known and in range.
Status check_optimizer(const OptimizerDef& optimizer);

}  // namespace sidereal::train
