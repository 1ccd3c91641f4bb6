#pragma once

#include <map>
#include <string>
#include <vector>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/ir/builder.h"
#include "sidereal/train/model.h"

namespace sidereal::train {

/// Adds the nodes that update the variables of one model by their optimizers: VariableUpdateDense
/// and EmbeddingUpdate, with what these read. Internal to train.
/// Thread: core-local. Borrows the builder.
class Updates {
 public:
  explicit Updates(ir::Builder* builder) : b_(*builder) {}

  /// Adds the update of `variable`, whose optimizer is set, and its slots to it; the node's name.
  Result<std::string> add(const autodiff::VariableGradient& gradient, ModelVariable* variable);
  /// What else a step has to run: the nodes that count steps.
  [[nodiscard]] const std::vector<std::string>& counting() const { return counting_; }

 private:
  /// The number of the step, float64, from 1: for rules that use it. Else any.
  ir::Output step(bool is_used);
  /// What `learning_rate` is now.
  ir::Output rate(double learning_rate);

  ir::Builder& b_;
  ir::Output scale_;
  ir::Output step_;
  ir::Output first_step_;
  std::map<double, ir::Output> rates_;
  std::vector<std::string> counting_;
};

}  // namespace sidereal::train
