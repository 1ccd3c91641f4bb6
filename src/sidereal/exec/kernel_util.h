#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/exec/kernel.h"

/// Helpers for writing kernels in a few lines. Internal to exec.
namespace sidereal::exec {

/// A kernel that is a function of the context.
template <class F>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(F f) : f_(std::move(f)) {}
  Status run(KernelContext& context) override { return f_(context); }

 private:
  F f_;
};

template <class F>
Result<std::unique_ptr<Kernel>> make_kernel(F f) {
  return std::unique_ptr<Kernel>(std::make_unique<FunctionKernel<F>>(std::move(f)));
}

/// A factory of kernels without attributes: `f(context)` runs the op.
template <class F>
KernelFactory stateless(F f) {
  return [f](const BindContext&) { return make_kernel(f); };
}

/// Calls f.template operator()<T>() with T = float or double as `dtype` says.
template <class F>
Status with_real(tensor::DType dtype, F f) {
  switch (dtype) {
    case tensor::DType::kFloat32:
      return f.template operator()<float>();
    case tensor::DType::kFloat64:
      return f.template operator()<double>();
    default:
      return base::invalid_argument("dtype {} is not supported; cast to float32 or float64",
                                    tensor::name_of(dtype));
  }
}

/// kInvalidArgument unless the instruction has between `min` and `max` inputs (max -1: any) and
/// `outputs` outputs (-1: any). Programs come from peers, so every factory asks.
Status check_arity(const BindContext& bind, int min, int max, int outputs);

/// kInvalidArgument unless the program says that slot `slot`, called `what` in the error, has
/// dtype `dtype`. What a slot holds always has the slot's dtype, if every kernel keeps to it: so
/// every factory asks for its outputs.
Status check_slot(const BindContext& bind, int32_t slot, tensor::DType dtype,
                  std::string_view what);

/// A factory that checks that the outputs have the dtypes `dtypes`, then goes on with `factory`.
/// The last one stands for all that follow.
KernelFactory with_outputs(std::vector<tensor::DType> dtypes, KernelFactory factory);

/// A factory that checks that the outputs have the dtype of input 0, then goes on with `factory`.
KernelFactory like_input(KernelFactory factory);

/// kInvalidArgument unless input `i` has dtype `dtype`.
Status check_dtype(const KernelContext& context, int i, tensor::DType dtype);

/// kInvalidArgument unless inputs `a` and `b` have the same dtype and shape.
Status check_same(const KernelContext& context, int a, int b);

/// kInvalidArgument unless input `i` has `rank` dimensions.
Status check_rank(const KernelContext& context, int i, int rank);

/// A factory that checks the number of inputs and outputs, then goes on with `factory`.
KernelFactory with_arity(int min, int max, int outputs, KernelFactory factory);

void register_math_kernels(KernelTable* table);
void register_shape_kernels(KernelTable* table);
void register_nn_kernels(KernelTable* table);
void register_state_kernels(KernelTable* table);
void register_sharding_kernels(KernelTable* table);

}  // namespace sidereal::exec
