#pragma once

#include <array>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/matmul.h"
#include "sidereal/kernels/prepared_matmul.h"

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
  bool relu = false;            ///< Where there is a bias.
};

/// Products of stacks of matrices for one instruction. Large ones are cut into parts, which depend
/// on their shapes only: so do the sums, however many threads there are. bfloat16 is summed in
/// float32, by the processor's units for it where it has them, else widened; which of the two
/// changes the order of the sums.
/// Thread: core-local; parts run on the threads that the step may use.
class Product {
 public:
  /// Sets output 0 of `c` to the product of `a` and `b`, both float32 or bfloat16, and what follows
  /// it. From bfloat16 the output may be float32.
  Status run(KernelContext& c, const ProductPlan& plan, const tensor::Tensor& a,
             const tensor::Tensor& b, const Epilogue& then);
  /// The same of arrays of float32, to `out`.
  void run(KernelContext& c, const ProductPlan& plan, const float* a, const float* b,
           const Epilogue& then, float* out);

 private:
  static constexpr int64_t kPartsMax = 8;
  using Form = kernels::PreparedMatMul::Form;
  /// How a product is cut. Cutting costs: every part of rows packs b again, and parts of the inner
  /// extent have to be added up.
  struct Cut {
    enum class Along { kRows, kInner, kStack };
    int64_t parts = 1;
    Along along = Along::kRows;
  };

  static Cut cut_of(const Form& form);
  Status run_bfloat(KernelContext& c, const ProductPlan& plan, const tensor::Tensor& a,
                    const tensor::Tensor& b, const Epilogue& then);
  Status run_widened(KernelContext& c, const ProductPlan& plan, const tensor::Tensor& a,
                     const tensor::Tensor& b, const Epilogue& then);
  /// One matrix, or a stack that oneDNN takes as a whole.
  void run_prepared(KernelContext& c, const Form& form, const void* a, const void* b,
                    const Epilogue& then, void* out);
  void run_layer(KernelContext& c, const Form& form, const float* a, const float* b,
                 const Epilogue& then, float* out);

  bool has_units_ = kernels::has_bfloat_units();
  std::array<kernels::PreparedMatMul, kPartsMax> parts_;
};

/// out = op(a) op(b) for every matrix of a stack, in other dtypes than float32 and bfloat16.
template <class T>
void run_product(KernelContext& c, const ProductPlan& plan, const T* a, const T* b, T* out);

}  // namespace sidereal::exec
