#pragma once

#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/bfloat_matmul.h"
#include "sidereal/kernels/matmul.h"

/// Products of matrices: what MatMul and FusedMatMul share. Internal to exec.
namespace sidereal::exec {

/// How a product of stacks of matrices is laid out. Value type.
struct ProductPlan {
  kernels::MatMulDims dims;
  tensor::Shape batch;    ///< Of the output, in front of [m, n].
  tensor::Shape a_batch;  ///< Broadcast to `batch`, as b_batch.
  tensor::Shape b_batch;

  [[nodiscard]] tensor::Shape out_shape() const;
};

/// The product of `a` and `b`, transposed as told. kInvalidArgument when they do not fit.
Result<ProductPlan> plan_product(const tensor::Tensor& a, const tensor::Tensor& b, bool trans_a,
                                 bool trans_b);

/// A factory that checks that the output is of the dtype of input 0, or float32 where that is
/// bfloat16, then goes on with `factory`.
KernelFactory like_input_or_wide(KernelFactory factory);

/// What is done to a product before it is rounded.
struct Epilogue {
  const float* bias = nullptr;  ///< [n], or none.
  bool relu = false;
};

/// Products of bfloat16 tensors, summed in float32: by the processor's units for them where it has
/// them, else widened. Which of the two changes the order of the sums.
/// Thread: core-local.
class BfloatProduct {
 public:
  /// Sets output 0 of `c`, float32 or bfloat16, to the product of `a` and `b` and what follows it.
  Status run(KernelContext& c, const ProductPlan& plan, const tensor::Tensor& a,
             const tensor::Tensor& b, const Epilogue& then);

 private:
  void run_in_units(KernelContext& c, const ProductPlan& plan, const tensor::Tensor& a,
                    const tensor::Tensor& b, const Epilogue& then);
  static Status run_widened(KernelContext& c, const ProductPlan& plan, const tensor::Tensor& a,
                            const tensor::Tensor& b, const Epilogue& then);

  bool has_units_ = kernels::has_bfloat_units();
  kernels::BfloatMatMul units_;
};

/// out = op(a) op(b) for every matrix of a stack. Large float32 products are cut into parts, which
/// depend on their shapes only: so do the sums, however many threads there are.
template <class T>
void run_product(KernelContext& c, const ProductPlan& plan, const T* a, const T* b, T* out);

/// run_product() of one matrix each, then `bias` (or nullptr) and Relu on rows that are still near.
void run_layer(KernelContext& c, const kernels::MatMulDims& dims, const float* a, const float* b,
               const Epilogue& then, float* out);

}  // namespace sidereal::exec
