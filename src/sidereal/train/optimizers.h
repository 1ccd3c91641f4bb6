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

/// What gradients are made smaller to before they are applied; 0: not. Value type.
struct Clipping {
  double value = 0;        ///< Most that a number of a gradient is, up and down.
  double norm = 0;         ///< Most that the norm of the gradient of a variable is.
  double global_norm = 0;  ///< Most that the norm of all gradients together is.
  [[nodiscard]] bool any() const { return value != 0 || norm != 0 || global_norm != 0; }
  friend bool operator==(const Clipping&, const Clipping&) = default;
};

/// By which rule a variable is trained: a name of the table, and what differs from its standard
/// values. Value type.
struct OptimizerDef {
  std::string kind;
  Parameters parameters = {};
  Clipping clipping = {};  ///< One of the three at most.
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

/// Ok when kind, parameters and clipping are known and in range.
Status check_optimizer(const OptimizerDef& optimizer);

}  // namespace sidereal::train
