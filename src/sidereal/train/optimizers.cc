#include "sidereal/train/optimizers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sidereal/base/strings.h"

namespace sidereal::train {

namespace {

// What values a parameter may take.
struct Parameter {
  std::string_view name;
  double min;
  double max;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kBelowOne = 1 - 1e-12;
constexpr std::array<Parameter, 11> kParameters = {{{"learning_rate", 0, kInfinity},
                                                    {"weight_decay", 0, kInfinity},
                                                    {"momentum", 0, kBelowOne},
                                                    {"nesterov", 0, 1},
                                                    {"beta1", 0, kBelowOne},
                                                    {"beta2", 0, kBelowOne},
                                                    {"epsilon", 0, kInfinity},
                                                    {"initial_accumulator", 0, kInfinity},
                                                    {"l1", 0, kInfinity},
                                                    {"l2", 0, kInfinity},
                                                    {"lr_power", -kInfinity, 0}}};

std::vector<std::string> parameters_of(std::string_view kind) {
  std::vector<std::string> names = {"learning_rate", "weight_decay"};
  const auto also = [&names](std::initializer_list<const char*> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  if (kind == "momentum") also({"momentum", "nesterov"});
  if (kind == "adagrad") also({"initial_accumulator", "epsilon"});
  if (kind == "adam") also({"beta1", "beta2", "epsilon"});
  if (kind == "ftrl") also({"initial_accumulator", "l1", "l2", "lr_power"});
  return names;
}

Result<ir::OptimizerDef> defaults_of(std::string_view name) {
  if (name == "sgd") return sgd();
  if (name == "momentum") return momentum();
  if (name == "adagrad") return adagrad();
  if (name == "adam") return adam();
  if (name == "ftrl") return ftrl();
  return base::invalid_argument("no optimizer '{}'; the optimizers are: {}", name,
                                base::join(optimizer_names(), ", "));
}

}  // namespace

ir::OptimizerDef sgd(double learning_rate) { return {"sgd", {{"learning_rate", learning_rate}}}; }

ir::OptimizerDef momentum(double learning_rate, double momentum, bool nesterov) {
  return {"momentum",
          {{"learning_rate", learning_rate},
           {"momentum", momentum},
           {"nesterov", nesterov ? 1.0 : 0.0}}};
}

ir::OptimizerDef adagrad(double learning_rate, double initial_accumulator) {
  return {"adagrad",
          {{"learning_rate", learning_rate}, {"initial_accumulator", initial_accumulator}}};
}

ir::OptimizerDef adam(double learning_rate, double beta1, double beta2, double epsilon) {
  return {
      "adam",
      {{"learning_rate", learning_rate}, {"beta1", beta1}, {"beta2", beta2}, {"epsilon", epsilon}}};
}

ir::OptimizerDef ftrl(double learning_rate, double l1, double l2) {
  return {"ftrl", {{"learning_rate", learning_rate}, {"l1", l1}, {"l2", l2}}};
}

std::vector<std::string> optimizer_names() {
  return {"sgd", "momentum", "adagrad", "adam", "ftrl"};
}

Result<ir::OptimizerDef> make_optimizer(
    std::string_view name, std::optional<double> learning_rate,
    const std::map<std::string, double, std::less<>>& parameters) {
  SR_ASSIGN_OR_RETURN(ir::OptimizerDef optimizer, defaults_of(name));
  for (const auto& [key, value] : parameters) optimizer.parameters[key] = value;
  if (learning_rate.has_value()) optimizer.parameters["learning_rate"] = *learning_rate;
  SR_RETURN_IF_ERROR(check_optimizer(optimizer));
  return optimizer;
}

Status check_optimizer(const ir::OptimizerDef& optimizer) {
  SR_RETURN_IF_ERROR(defaults_of(optimizer.kind).status());
  const std::vector<std::string> known = parameters_of(optimizer.kind);
  for (const auto& parameter : optimizer.parameters) {
    const std::string& key = parameter.first;
    const double value = parameter.second;
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return base::invalid_argument("optimizer {} has no parameter '{}'; its parameters are: {}",
                                    optimizer.kind, key, base::join(known, ", "));
    }
    const auto* range = std::find_if(kParameters.begin(), kParameters.end(),
                                     [&key](const Parameter& p) { return p.name == key; });
    if (!std::isfinite(value) || value < range->min || value > range->max) {
      return base::invalid_argument("optimizer {}: {} is {}; it must be {}", optimizer.kind, key,
                                    value,
                                    range->max == kBelowOne ? "in [0, 1)"
                                    : range->max == 1       ? "0 or 1"
                                    : range->max == 0       ? "0 or less"
                                                            : "0 or more");
    }
  }
  return {};
}

}  // namespace sidereal::train
