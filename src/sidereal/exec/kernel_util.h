#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/exec/kernel.h"
#include "sidereal/tensor/dispatch.h"

/// Helpers for writing kernels in a few lines. Internal to exec.
namespace sidereal::exec {

/// Elements of element-wise work below which another thread does not pay.
inline constexpr int64_t kGrain = int64_t{1} << 15;
/// The same in bytes that are only moved.
inline constexpr int64_t kGrainBytes = int64_t{1} << 18;

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

/// A value that a kernel gives in every step. Who holds what get() shows is counted by the thread
/// that runs the kernel, whoever made it.
class GivenValue {
 public:
  explicit GivenValue(tensor::Tensor value) : value_(std::move(value)) {}
  const tensor::Tensor& get();

 private:
  tensor::Tensor value_;
  bool is_own_ = false;  ///< The buffer of value_ was made by the thread that runs the kernel.
};

/// A factory of kernels without attributes: `f(context)` runs the op.
template <class F>
KernelFactory stateless(F f) {
  return [f](const BindContext&) { return make_kernel(f); };
}

/// Calls f.template operator()<T>() with the type a float dtype is computed in: float for float32
/// and the 16-bit floats, double for float64. Goes with widened() and WideOutput.
template <class F>
Status with_compute(tensor::DType dtype, F f) {
  return tensor::with_dtype<tensor::FloatTypes>(
      dtype, [&]<class T>() -> Status { return f.template operator()<tensor::ComputeType<T>>(); });
}

/// Calls f.template operator()<U>() with the unsigned integer of the width of `dtype`, or with
/// std::string_view for strings: for kernels that only move elements.
template <class F>
Status with_width(tensor::DType dtype, F f) {
  if (dtype == tensor::DType::kString) return f.template operator()<std::string_view>();
  switch (tensor::size_of(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return base::invalid_argument("elements of {} cannot be moved", tensor::name_of(dtype));
  }
}

/// `x` itself, or a float32 copy of a tensor of 16-bit floats.
tensor::Tensor widened(KernelContext& context, const tensor::Tensor& x);

/// Output `i` as memory of the type it is computed in: the output itself, or, for the 16-bit
/// floats, a float32 tensor that store() rounds into it.
class WideOutput {
 public:
  WideOutput(KernelContext& context, int i, const tensor::Shape& shape);
  template <class T>
  [[nodiscard]] T* data() const {
    return wide_.template data<T>().data();
  }
  /// To be called when all is computed.
  Status store();

 private:
  KernelContext& context_;
  int index_;
  bool rounded_;
  tensor::Tensor wide_;
};

/// kInvalidArgument unless the instruction has between `min` and `max` inputs (max -1: any) and
/// `outputs` outputs (-1: any). Programs come from peers, so every factory asks.
Status check_arity(const BindContext& bind, int min, int max, int outputs);

/// Whether anything of the program reads output `o` of the instruction.
bool is_read(const BindContext& bind, int o);

/// kInvalidArgument unless the program says that slot `slot`, called `what` in the error, has
/// dtype `dtype`. What a slot holds always has the slot's dtype, if every kernel keeps to it: so
/// every factory asks for its outputs.
Status check_slot(const BindContext& bind, int32_t slot, tensor::DType dtype,
                  std::string_view what);

/// What the attributes "dtypes" and "shapes" say of the outputs, which must have these dtypes.
Result<std::vector<ir::TensorSpec>> output_components(const BindContext& bind);

/// A factory that checks that the outputs have the dtypes `dtypes`, then goes on with `factory`.
/// The last one stands for all that follow.
KernelFactory with_outputs(std::vector<tensor::DType> dtypes, KernelFactory factory);

/// A factory that checks that the outputs have the dtype of input 0, then goes on with `factory`.
KernelFactory like_input(KernelFactory factory);

/// kInvalidArgument unless input `i` has dtype `dtype`.
Status check_dtype(const KernelContext& context, int i, tensor::DType dtype);

/// kInvalidArgument unless all inputs from `first` to `last` (negative: counted from the end) have
/// the dtype of input `first`.
Status check_one_dtype(const KernelContext& context, int first = 0, int last = -1);

/// kInvalidArgument unless inputs `a` and `b` have the same dtype and shape.
Status check_same(const KernelContext& context, int a, int b);

/// kInvalidArgument unless input `i` has `rank` dimensions.
Status check_rank(const KernelContext& context, int i, int rank);

/// What tells the runs of a random op apart: the int64 scalar input `i` if there is one, else the
/// number of the step.
Result<uint64_t> stream_of(const KernelContext& context, int i);

/// A factory that checks the number of inputs and outputs, then goes on with `factory`.
KernelFactory with_arity(int min, int max, int outputs, KernelFactory factory);

void register_elementwise_kernels(KernelTable* table);
void register_reduce_kernels(KernelTable* table);
void register_math_kernels(KernelTable* table);
void register_shape_kernels(KernelTable* table);
void register_nn_kernels(KernelTable* table);
void register_softmax_kernels(KernelTable* table);
void register_random_kernels(KernelTable* table);
void register_check_kernels(KernelTable* table);
void register_fused_kernels(KernelTable* table);
void register_concat_product_kernels(KernelTable* table);
void register_sharding_kernels(KernelTable* table);
void register_custom_kernels(KernelTable* table);
void register_resource_kernels(KernelTable* table);
void register_host_kernels(KernelTable* table);
void register_iterator_kernels(KernelTable* table);
void register_checkpoint_kernels(KernelTable* table);
void register_passing_kernels(KernelTable* table);
void register_update_kernels(KernelTable* table);
void register_variable_kernels(KernelTable* table);

}  // namespace sidereal::exec
