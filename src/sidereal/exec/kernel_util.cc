#include "sidereal/exec/kernel_util.h"

#include <algorithm>
#include <utility>

#include "sidereal/exec/array_util.h"
#include "sidereal/exec/string_util.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/kernels/elementwise.h"

namespace sidereal::exec {

using base::invalid_argument;

const tensor::Tensor& GivenValue::get() {
  if (std::exchange(is_own_, true)) return value_;
  const tensor::Tensor made = value_;
  auto view = tensor::Buffer::wrap(made.raw(), made.nbytes(), [made] {});
  view->keep_all_of(*made.buffer());
  value_ = tensor::Tensor(made.dtype(), made.shape(), std::move(view));
  return value_;
}

Status check_arity(const BindContext& bind, int min, int max, int outputs) {
  const int inputs = static_cast<int>(bind.instruction.inputs.size());
  const int made = static_cast<int>(bind.instruction.outputs.size());
  if (inputs < min || (max >= 0 && inputs > max) || (outputs >= 0 && made != outputs)) {
    return invalid_argument("{} inputs and {} outputs do not fit the op", inputs, made);
  }
  return {};
}

bool is_read(const BindContext& bind, int o) {
  const int32_t slot = bind.instruction.outputs[o];
  const auto has = [slot](const std::vector<int32_t>& slots) {
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
  };
  const auto& all = bind.program.instructions;
  const auto& calls = bind.program.calls;
  return has(bind.program.fetches) ||
         std::any_of(all.begin(), all.end(), [&](const auto& one) { return has(one.inputs); }) ||
         std::any_of(calls.begin(), calls.end(), [&](const auto& one) { return has(one.feeds); });
}

Status check_slot(const BindContext& bind, int32_t slot, tensor::DType dtype,
                  std::string_view what) {
  const tensor::DType said = bind.program.slots[slot].dtype;
  if (said == dtype) return {};
  return invalid_argument("{} is {}, but {} is needed", what, tensor::name_of(said),
                          tensor::name_of(dtype));
}

Result<std::vector<ir::TensorSpec>> output_components(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(auto specs, ir::component_specs(bind.instruction.attrs));
  const std::vector<int32_t>& outputs = bind.instruction.outputs;
  if (specs.size() != outputs.size()) {
    return invalid_argument("{} dtypes for {} outputs", specs.size(), outputs.size());
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    SR_RETURN_IF_ERROR(check_slot(bind, outputs[i], specs[i].dtype, "an output"));
  }
  return specs;
}

KernelFactory with_outputs(std::vector<tensor::DType> dtypes, KernelFactory factory) {
  return [dtypes = std::move(dtypes), factory = std::move(factory)](
             const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    const std::vector<int32_t>& outputs = bind.instruction.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      SR_RETURN_IF_ERROR(check_slot(bind, outputs[i], dtypes[std::min(i, dtypes.size() - 1)],
                                    fmt::format("output {}", i)));
    }
    return factory(bind);
  };
}

KernelFactory like_input(KernelFactory factory) {
  return
      [factory = std::move(factory)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        for (const int32_t slot : bind.instruction.outputs) {
          SR_RETURN_IF_ERROR(check_slot(
              bind, slot, bind.program.slots[bind.instruction.inputs[0]].dtype, "the output"));
        }
        return factory(bind);
      };
}

namespace {
bool is_half(tensor::DType dtype) {
  return dtype == tensor::DType::kFloat16 || dtype == tensor::DType::kBFloat16;
}

}  // namespace

tensor::Tensor widened(KernelContext& context, const tensor::Tensor& x) {
  if (!is_half(x.dtype())) return x;
  tensor::Tensor wide = context.temporary(tensor::DType::kFloat32, x.shape());
  kernels::cast(x.dtype(), x.raw(), wide.dtype(), wide.raw(), x.num_elements());
  return wide;
}

WideOutput::WideOutput(KernelContext& context, int i, const tensor::Shape& shape)
    : context_(context), index_(i), rounded_(is_half(context.output_dtype(i))) {
  wide_ = rounded_ ? context.temporary(tensor::DType::kFloat32, shape) : context.output(i, shape);
}

Status WideOutput::store() {
  if (!rounded_) return {};
  const tensor::Tensor& out = context_.output(index_, wide_.shape());
  kernels::cast(wide_.dtype(), wide_.raw(), out.dtype(), out.raw(), wide_.num_elements());
  return {};
}

Status check_dtype(const KernelContext& context, int i, tensor::DType dtype) {
  if (context.input(i).dtype() == dtype) return {};
  return invalid_argument("input {} is {}, but {} is needed", i,
                          tensor::name_of(context.input(i).dtype()), tensor::name_of(dtype));
}

Status check_one_dtype(const KernelContext& context, int first, int last) {
  const tensor::DType dtype = context.input(first).dtype();
  if (last < 0) last += context.num_inputs();
  for (int i = first + 1; i <= last; ++i) {
    if (context.input(i).dtype() == dtype) continue;
    return invalid_argument("inputs are of dtypes {} and {}; cast them to one dtype",
                            tensor::name_of(dtype), tensor::name_of(context.input(i).dtype()));
  }
  return {};
}

Status check_same(const KernelContext& context, int a, int b) {
  const tensor::Tensor& x = context.input(a);
  const tensor::Tensor& y = context.input(b);
  if (x.dtype() == y.dtype() && x.shape() == y.shape()) return {};
  return invalid_argument("inputs {} and {} must be alike", a, b);
}

Status check_rank(const KernelContext& context, int i, int rank) {
  if (context.input(i).shape().rank() == rank) return {};
  return invalid_argument("input {} must have {} dimensions", i, rank);
}

Result<uint64_t> stream_of(const KernelContext& context, int i) {
  if (context.num_inputs() <= i) return context.step_id();
  SR_RETURN_IF_ERROR(check_dtype(context, i, tensor::DType::kInt64));
  if (context.input(i).num_elements() != 1) {
    return invalid_argument("input {}, the stream, must be a scalar", i);
  }
  return static_cast<uint64_t>(context.in<int64_t>(i)[0]);
}

KernelFactory with_arity(int min, int max, int outputs, KernelFactory factory) {
  return [=, factory =
                 std::move(factory)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    SR_RETURN_IF_ERROR(check_arity(bind, min, max, outputs));
    return factory(bind);
  };
}

void register_kernels(KernelTable* table) {
  register_elementwise_kernels(table);
  register_reduce_kernels(table);
  register_math_kernels(table);
  register_shape_kernels(table);
  register_nn_kernels(table);
  register_softmax_kernels(table);
  register_random_kernels(table);
  register_check_kernels(table);
  register_string_kernels(table);
  register_fused_kernels(table);
  register_concat_product_kernels(table);
  register_array_kernels(table);
  register_sharding_kernels(table);
  register_custom_kernels(table);
  register_resource_kernels(table);
  register_host_kernels(table);
  register_iterator_kernels(table);
  register_checkpoint_kernels(table);
  register_passing_kernels(table);
  register_update_kernels(table);
  register_variable_kernels(table);
}

}  // namespace sidereal::exec
