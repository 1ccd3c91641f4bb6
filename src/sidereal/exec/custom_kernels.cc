#include <cstring>

#include "sidereal/exec/kernel_util.h"

namespace sidereal::exec {
namespace {

using tensor::Tensor;

/// The first inputs, as many as there are outputs. What else comes in is for the gradient.
Status with_gradient(KernelContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Tensor value = c.input(i);
    if (value.dtype() != c.output_dtype(i)) {
      return base::invalid_argument("value {} is {}", i, value.to_string());
    }
    const Tensor& out = c.output(i, value.shape());
    if (value.nbytes() > 0) std::memcpy(out.raw(), value.raw(), value.nbytes());
  }
  return {};
}

Result<std::unique_ptr<Kernel>> bind_with_gradient(const BindContext& bind) {
  if (bind.instruction.outputs.size() > bind.instruction.inputs.size()) {
    return base::invalid_argument("{} outputs of {} inputs", bind.instruction.outputs.size(),
                                  bind.instruction.inputs.size());
  }
  return make_kernel(with_gradient);
}

}  // namespace

void register_custom_kernels(KernelTable* table) { table->add("WithGradient", bind_with_gradient); }

}  // namespace sidereal::exec
