#include "sidereal/exec/one_op.h"

#include <memory>
#include <utility>

#include "sidereal/exec/executor.h"

namespace sidereal::exec {

program::Program one_op_program(const ir::Node& node, const std::vector<ir::TensorSpec>& inputs) {
  program::Program out;
  program::Instruction instruction;
  instruction.op = node.op;
  instruction.name = node.name;
  instruction.attrs = node.attrs;
  for (const ir::TensorSpec& input : inputs) {
    const auto slot = static_cast<int32_t>(out.slots.size());
    out.slots.push_back({input.dtype, input.shape, -1});
    out.feeds.push_back(slot);
    out.feed_names.emplace_back();
    instruction.inputs.push_back(slot);
  }
  for (const ir::TensorSpec& output : node.outputs) {
    const auto slot = static_cast<int32_t>(out.slots.size());
    out.slots.push_back({output.dtype, output.shape, -1});
    out.fetches.push_back(slot);
    out.fetch_names.emplace_back();
    instruction.outputs.push_back(slot);
  }
  out.instructions.push_back(std::move(instruction));
  return out;
}

Result<std::vector<tensor::Tensor>> run_one_op(const ir::Node& node,
                                               const std::vector<tensor::Tensor>& inputs,
                                               const KernelTable& kernels) {
  std::vector<ir::TensorSpec> specs;
  for (const tensor::Tensor& input : inputs) specs.push_back({input.dtype(), input.shape()});
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<BoundProgram> bound,
                      BoundProgram::bind(one_op_program(node, specs), kernels, {}));
  BufferPool pool(0);
  Step step(bound.get(), &pool, nullptr);
  step.begin(0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(step.feed(static_cast<int>(i), inputs[i]));
  }
  SR_RETURN_IF_ERROR(step.advance().status());
  std::vector<tensor::Tensor> out;
  for (size_t i = 0; i < node.outputs.size(); ++i) out.push_back(step.fetch(static_cast<int>(i)));
  return out;
}

}  // namespace sidereal::exec
