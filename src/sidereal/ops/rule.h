#pragma once

#include "sidereal/ops/internal.h"

/// Gradient rules in few words. For ops/*.cc only.
namespace sidereal::ops::internal {

/// What a rule needs by name: dy, the inputs x and y, the output z, and the nodes it adds.
/// Constants have the dtype of x. One node per statement where the order of arguments would decide
/// the order of nodes. Thread: core-local. Borrows the context.
class Rule {
 public:
  explicit Rule(GradContext& c) : c_(c), b_(c.builder) {}

  [[nodiscard]] Output dy() const { return c_.output_grads[0]; }
  [[nodiscard]] Output in(size_t i) const { return c_.node.inputs[i]; }
  [[nodiscard]] Output x() const { return in(0); }
  [[nodiscard]] Output y() const { return in(1); }
  [[nodiscard]] Output z() const { return {c_.node.id, 0}; }
  [[nodiscard]] DType dtype() const { return b_.spec(x()).dtype; }

  Output k(double value) { return scalar(b_, dtype(), value); }
  Output op(std::string_view name, const std::vector<Output>& inputs, ir::AttrMap attrs = {}) {
    return b_.add(name, inputs, std::move(attrs));
  }
  Output add(Output a, Output b) { return op("Add", {a, b}); }
  Output sub(Output a, Output b) { return op("Sub", {a, b}); }
  Output mul(Output a, Output b) { return op("Mul", {a, b}); }
  Output div(Output a, Output b) { return op("Div", {a, b}); }
  Output neg(Output a) { return op("Neg", {a}); }
  Output square(Output a) { return op("Square", {a}); }
  /// a * factor.
  Output times(Output a, double factor) { return op("Mul", {a, k(factor)}); }
  /// a + term.
  Output plus(Output a, double term) { return op("Add", {a, k(term)}); }
  /// value - a.
  Output from(double value, Output a) { return op("Sub", {k(value), a}); }

  /// Sets the gradient of one input.
  Status flow(size_t i, Output grad) {
    (*c_.input_grads)[i] = grad;
    return {};
  }
  Status flow(Output grad) { return flow(0, grad); }
  /// Gradients of a binary op, both still of the broadcast shape.
  Status flow_two(Output grad_x, Output grad_y) {
    (*c_.input_grads)[0] = sum_to(b_, grad_x, x());
    (*c_.input_grads)[1] = sum_to(b_, grad_y, y());
    return {};
  }

  ir::Builder& builder() { return b_; }

 private:
  GradContext& c_;
  ir::Builder& b_;
};

using GradientRule = Status (*)(GradContext&);

}  // namespace sidereal::ops::internal
