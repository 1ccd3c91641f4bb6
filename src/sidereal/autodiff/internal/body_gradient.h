#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ir/function.h"

namespace sidereal::autodiff {

/// True for dtypes that take gradients.
bool is_differentiable(ir::DType dtype);

/// By output: whether it depends, through real numbers, on an input j with from[j].
std::vector<bool> reached_outputs(const ir::Function& function, const std::vector<bool>& from);

/// A copy of a function's body with gradient nodes behind it, from which forward and reverse
/// functions are cut. Thread: core-local. Borrows the registry.
class BodyGradient {
 public:
  BodyGradient(ir::FunctionPtr function, const ir::OpRegistry* registry)
      : function_(std::move(function)), registry_(*registry) {}

  /// Adds the gradients by the inputs with wanted[i], given those of the outputs with given[i].
  Status run(const std::vector<bool>& wanted, const std::vector<bool>& given);

  /// The gradient of input `i` in graph(); invalid where none flows or none was wanted.
  [[nodiscard]] ir::Output input_grad(size_t i) const { return input_grads_[i]; }
  /// The Arg that stands for the gradient of output `i`; invalid where none was given.
  [[nodiscard]] ir::Output output_grad(size_t i) const { return output_grads_[i]; }
  /// The Arg of input `i`.
  [[nodiscard]] ir::Output input(size_t i) const { return forward_.inputs[i]; }
  /// Output `i` of the function.
  [[nodiscard]] ir::Output output(size_t i) const { return forward_.outputs[i]; }

  /// A value of zeros like input `i`.
  ir::Output zeros_like_input(size_t i);
  /// A further input of what will be cut: an Arg behind all others.
  Result<ir::Output> add_input(const ir::TensorSpec& spec);
  ir::Builder& builder() { return *builder_; }

  /// What of the forward function the values `of` are calculated from.
  struct Needs {
    std::vector<bool> inputs;         ///< By input of the function.
    std::vector<ir::Output> records;  ///< Values to be kept from the forward run.
  };
  /// Values that are dear to calculate, or that differ when calculated again, are records.
  [[nodiscard]] Needs needs_of(const std::vector<ir::Output>& of) const;

  /// The function (inputs) -> outputs over this graph, without side effects.
  [[nodiscard]] Result<ir::FunctionPtr> cut_reverse(const std::vector<ir::CutInput>& inputs,
                                                    const std::vector<ir::Output>& outputs) const;
  /// The output of the function that is `value` already, from output `first` on; -1: none.
  [[nodiscard]] int32_t find_output(ir::Output value, size_t first) const;
  /// The function itself, with `more` outputs behind its own.
  [[nodiscard]] Result<ir::FunctionPtr> cut_forward(const std::vector<ir::Output>& more) const;

  /// A value as an input of a function to be cut.
  [[nodiscard]] ir::CutInput cut_input(ir::Output value) const {
    return {value, graph_.spec(value)};
  }
  [[nodiscard]] const ir::Graph& graph() const { return graph_; }

 private:
  [[nodiscard]] bool is_record(const ir::Node& node) const;

  ir::FunctionPtr function_;
  const ir::OpRegistry& registry_;
  ir::Graph graph_;
  std::unique_ptr<ir::Builder> builder_;
  ir::Inlined forward_;
  int32_t forward_end_ = 0;
  std::vector<ir::Node> control_nodes_;  // Of the forward part, as they were before run().
  std::vector<ir::Output> input_grads_;
  std::vector<ir::Output> output_grads_;
};

}  // namespace sidereal::autodiff
