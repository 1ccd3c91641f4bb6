#pragma once

#include <string>
#include <vector>

#include "sidereal/ir/builder.h"
#include "sidereal/train/optimizers.h"

/// Gradients made smaller before they are applied. Internal to train.
namespace sidereal::train {

/// A part of the gradient of a variable, in which each row is once. Value type.
struct GradientPart {
  ir::Output value;    ///< float32 or float64.
  std::string device;  ///< Where it is, and is made smaller; "": wherever.
};

/// Makes the gradients of a model smaller as `how` says; gradients[i] are the parts of that of one
/// variable. Norms are those of whole gradients.
void clip(ir::Builder& b, const Clipping& how, std::vector<std::vector<GradientPart>>* gradients);

}  // namespace sidereal::train
