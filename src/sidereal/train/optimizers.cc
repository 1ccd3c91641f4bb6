#include "sidereal/train/optimizers.h"

#include <cmath>

namespace sidereal::train {

OptimizerDef optimizer_of(std::string_view name, std::optional<double> learning_rate,
                          const Parameters& parameters) {
  OptimizerDef made{.kind = std::string(name), .parameters = parameters};
  if (learning_rate.has_value()) made.parameters["learning_rate"] = *learning_rate;
  return made;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const kernels::Rule* rule : kernels::all_rules()) names.emplace_back(rule->name);
  return names;
}

Result<OptimizerDef> make_optimizer(std::string_view name, std::optional<double> learning_rate,
                                    const Parameters& parameters) {
  OptimizerDef made = optimizer_of(name, learning_rate, parameters);
  SR_ASSIGN_OR_RETURN(const auto rule, kernels::UpdateRule::make(name, made.parameters));
  made.parameters["learning_rate"] = rule.learning_rate();
  return made;
}

Status check_optimizer(const OptimizerDef& optimizer) {
  const Clipping& clipping = optimizer.clipping;
  int given = 0;
  for (const double limit : {clipping.value, clipping.norm, clipping.global_norm}) {
    if (limit == 0) continue;
    if (!(limit > 0) || !std::isfinite(limit)) {
      return base::invalid_argument("gradients are clipped to {}; it must be more than 0", limit);
    }
    if (++given > 1) {
      return base::invalid_argument("gradients are clipped by value, norm or global norm: one");
    }
  }
  return kernels::UpdateRule::make(optimizer.kind, optimizer.parameters).status();
}

}  // namespace sidereal::train
