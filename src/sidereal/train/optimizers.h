#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"

/// Optimizers by name. Parameters are those of the update rule on the parameter server
/// (store::UpdateRule): learning_rate, weight_decay (L2), momentum, nesterov (0 or 1), beta1,
/// beta2, epsilon, initial_accumulator, l1, l2, lr_power.
namespace sidereal::train {

/// w -= lr * g. As tf.keras.optimizers.SGD.
ir::OptimizerDef sgd(double learning_rate = 0.01);
/// SGD with momentum. As tf.keras.optimizers.SGD(momentum=, nesterov=).
ir::OptimizerDef momentum(double learning_rate = 0.01, double momentum = 0.9,
                          bool nesterov = false);
/// Duchi et al., 2011. As tf.keras.optimizers.Adagrad, but for the learning rate.
ir::OptimizerDef adagrad(double learning_rate = 0.05, double initial_accumulator = 0.1);
/// Kingma and Ba, 2015. As tf.keras.optimizers.Adam.
ir::OptimizerDef adam(double learning_rate = 0.001, double beta1 = 0.9, double beta2 = 0.999,
                      double epsilon = 1e-8);
/// McMahan et al., 2013. As tf.keras.optimizers.Ftrl, but for the learning rate.
ir::OptimizerDef ftrl(double learning_rate = 0.05, double l1 = 0, double l2 = 0);

/// "sgd", "momentum", "adagrad", "adam", "ftrl".
std::vector<std::string> optimizer_names();

/// The optimizer of that name with its defaults, changed by `learning_rate` and `parameters`.
/// kInvalidArgument, listing what there is, for an unknown name or parameter.
Result<ir::OptimizerDef> make_optimizer(
    std::string_view name, std::optional<double> learning_rate = {},
    const std::map<std::string, double, std::less<>>& parameters = {});

/// Ok when kind and parameters are known and in range.
Status check_optimizer(const ir::OptimizerDef& optimizer);

}  // namespace sidereal::train
