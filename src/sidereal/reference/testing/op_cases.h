#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sidereal/ir/builder.h"

/// One small example per op (or way of using it), from which the tests check gradients, shapes and
/// text for every op of the registry.
namespace sidereal::reference {

/// A real input of a case: values drawn uniformly from [low, high], at least `gap` away from 0 and
/// from the same element of the other inputs, so that no kink lies within a difference step.
struct CaseInput {
  ir::Shape shape;
  double low = -2;
  double high = 2;
  bool takes_gradient = true;  ///< False: no gradient must flow to it.
};

/// How to make a node of `op` from float64 inputs.
struct OpCase {
  std::string op;
  std::string what;  ///< Tells cases of one op apart.
  std::vector<CaseInput> inputs;
  std::function<ir::Output(ir::Builder&, const std::vector<ir::Output>&)> build;
};

/// Cases of the ops that are differentiated by their inputs.
std::vector<OpCase> gradient_cases();

/// Adds at least one node of every op that gradient_cases() does not cover.
void build_other_ops(ir::Builder& b);

}  // namespace sidereal::reference
