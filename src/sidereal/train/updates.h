#pragma once

#include <map>
#include <string>
#include <vector>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/ir/builder.h"
#include "sidereal/train/model.h"

namespace sidereal::train {

/// Steps before this one, int64; the variable that counts them is made at first.
ir::Output count_steps(ir::Builder& b, StepCount* steps);

/// The same gradients, clipped; those of a table with each of its rows once.
std::vector<autodiff::VariableGradient> clipped(
    ir::Builder& b, const Clipping& how, const std::vector<autodiff::VariableGradient>& gradients);

/// Adds the nodes that update the variables of one model by their optimizers: VariableUpdateDense
/// and EmbeddingUpdate, with what these read. Internal to train.
/// Thread: core-local. Borrows the builder and the count of steps.
class Updates {
 public:
  /// `rate`, if valid, is the learning rate of all updates.
  Updates(ir::Builder* builder, StepCount* steps, ir::Output rate)
      : b_(*builder), steps_(*steps), rate_(rate) {}

  /// Adds the update of `variable`, whose optimizer is set, and its slots to it; the node's name.
  Result<std::string> add(const autodiff::VariableGradient& gradient, ModelVariable* variable);
  /// After the last one: counts steps, where their number is used.
  void finish();
  /// What else a step has to run: the nodes that count steps.
  [[nodiscard]] const std::vector<std::string>& counting() const { return counting_; }

 private:
  /// The number of the step, float64, from 1: for rules that use it. Else any.
  ir::Output step(bool is_used);
  /// What `learning_rate` is now.
  ir::Output rate(double learning_rate);

  ir::Builder& b_;
  StepCount& steps_;
  const ir::Output rate_;
  ir::Output scale_;
  ir::Output step_;
  ir::Output first_step_;
  std::map<double, ir::Output> rates_;
  std::vector<std::string> counting_;
};

}  // namespace sidereal::train
