#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/executor.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"
#include "sidereal/resources/variable.h"

namespace sidereal::exec {

using ir::AttrMap;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Runs single ops on the variables of one manager. For tests.
class VariableOps : public testing::Test {
 protected:
  VariableOps() {
    ops::register_all(&registry_);
    register_kernels(&kernels_);
  }

  /// The first output of `op`, undefined when it has none.
  Result<Tensor> run(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs = {}) {
    SR_ASSIGN_OR_RETURN(const auto all, run_all(op, inputs, std::move(attrs)));
    return all.empty() ? Tensor() : all[0];
  }
  Result<std::vector<Tensor>> run_all(const std::string& op, const std::vector<Tensor>& inputs,
                                      AttrMap attrs = {}) {
    ir::Graph graph;
    ir::Node node;
    std::vector<ir::TensorSpec> specs;
    for (const Tensor& input : inputs) {
      specs.push_back({input.dtype(), input.shape()});
      ir::Node source;
      source.op = "Placeholder";
      source.name = "x" + std::to_string(specs.size());
      source.outputs = {specs.back()};
      node.inputs.push_back({graph.append(std::move(source)), 0});
    }
    node.op = op;
    node.name = "node";
    node.attrs = std::move(attrs);
    SR_RETURN_IF_ERROR(ir::infer_node(graph, *registry_.find(op), &node));
    Environment environment;
    environment.resources = &manager_;
    SR_ASSIGN_OR_RETURN(const auto bound,
                        BoundProgram::bind(one_op_program(node, specs), kernels_, environment));
    BufferPool pool(size_t{1} << 20);
    Step step(bound.get(), &pool, nullptr);
    step.begin(1);
    for (size_t i = 0; i < inputs.size(); ++i) {
      SR_RETURN_IF_ERROR(step.feed(static_cast<int>(i), inputs[i]));
    }
    const auto progress = step.advance();
    std::vector<Tensor> out;
    if (progress.ok()) {
      for (size_t i = 0; i < bound->program().fetches.size(); ++i) {
        out.push_back(step.fetch(static_cast<int>(i)));
      }
    }
    step.end();
    SR_RETURN_IF_ERROR(progress.status());
    return out;
  }

  Result<Tensor> make(const std::string& name, DType dtype, const Shape& shape,
                      const std::string& container = "") {
    return run(
        "Variable", {},
        {{"shared_name", name}, {"container", container}, {"dtype", dtype}, {"shape", shape}});
  }
  Result<Tensor> read(const Tensor& handle, const Shape& shape = Shape{2}) {
    return run("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", shape}});
  }

  static std::vector<float> values(const Tensor& t) {
    const auto data = t.data<const float>();
    return {data.begin(), data.end()};
  }
  static Tensor floats(std::vector<float> values) {
    return Tensor::of<float>(Shape{static_cast<int64_t>(values.size())}, values);
  }

  ir::OpRegistry registry_;
  KernelTable kernels_;
  resources::Manager manager_;
};

}  // namespace sidereal::exec
