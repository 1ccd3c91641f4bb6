#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "sidereal/kernels/matmul.h"
#include "sidereal/tensor/half.h"

namespace sidereal::kernels {

/// True when this processor multiplies matrices of bfloat16 (AMX-BF16 or AVX512-BF16) and the
/// operating system lets it.
bool has_bfloat_units();

/// Products of bfloat16 matrices in hardware: act(op(a) op(b) + bias), summed in float32 and
/// rounded once. The sums of one shape on one processor are always in the same order. oneDNN's
/// primitive for one shape is kept until another shape comes.
/// Thread: core-local. Only where has_bfloat_units(). Always one OpenMP thread.
class BfloatMatMul {
 public:
  /// What one product is. Value type.
  struct Form {
    MatMulDims dims;        ///< Each of them at least 1.
    int64_t batch = 1;      ///< Products, one after the other in memory.
    bool one_a = false;     ///< All products have the first matrix a.
    bool one_b = false;     ///< All products have the first matrix b.
    bool wide_out = false;  ///< The result is float32, not bfloat16.
    bool has_bias = false;  ///< float32 [n] is added.
    bool relu = false;      ///< The activation; otherwise there is none.
    bool operator==(const Form&) const;
  };

  BfloatMatMul();
  ~BfloatMatMul();
  BfloatMatMul(const BfloatMatMul&) = delete;
  BfloatMatMul& operator=(const BfloatMatMul&) = delete;

  /// Gets ready for `form`.
  /// Returns: bytes of scratch memory that run() is to be given.
  size_t prepare(const Form& form);
  /// The product prepared last. `out` is of float or BFloat16, as the form says; it must not
  /// overlap an input. `bias` is not read without has_bias. `scratch`: aligned to 64 bytes.
  void run(const tensor::BFloat16* a, const tensor::BFloat16* b, const float* bias, void* out,
           void* scratch);

 private:
  struct Primitive;
  std::unique_ptr<Primitive> primitive_;
};

}  // namespace sidereal::kernels
