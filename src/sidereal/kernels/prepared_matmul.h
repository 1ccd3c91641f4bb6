#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "sidereal/kernels/matmul.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::kernels {

/// True when this processor multiplies matrices of bfloat16 (AMX-BF16 or AVX512-BF16) and the
/// operating system lets it.
bool has_bfloat_units();

/// Products of stacks of float32 or bfloat16 matrices: op(a) op(b) + bias, summed in float32 and
/// rounded once. Activations are not left to oneDNN: its Relu makes 0 of NaN. The sums of one form
/// on one processor are always in the same order. oneDNN's primitive for one form is kept until
/// another form comes. Thread: core-local. bfloat16 only where has_bfloat_units(). Always one
/// OpenMP thread.
class PreparedMatMul {
 public:
  /// What one product is. Value type.
  struct Form {
    MatMulDims dims;     ///< Each of them at least 1.
    int64_t batch = 1;   ///< Products, one after the other in memory.
    bool one_a = false;  ///< All products have the first matrix a.
    bool one_b = false;  ///< All products have the first matrix b.
    /// Elements from one stored row of a to the next, where it is a part of a larger matrix;
    /// 0: its rows follow one another.
    int64_t a_row = 0;
    tensor::DType in = tensor::DType::kFloat32;   ///< Of a and b; float32 or bfloat16.
    tensor::DType out = tensor::DType::kFloat32;  ///< float32, or as `in`.
    bool has_bias = false;                        ///< float32 [n] is added.
    bool operator==(const Form&) const = default;
  };

  PreparedMatMul();
  ~PreparedMatMul();
  PreparedMatMul(const PreparedMatMul&) = delete;
  PreparedMatMul& operator=(const PreparedMatMul&) = delete;

  /// Gets ready for `form`.
  /// Returns: bytes of scratch memory that run() is to be given.
  size_t prepare(const Form& form);
  /// The product prepared last. `out` must not overlap an input. `bias` is not read without
  /// has_bias. `scratch`: aligned to 64 bytes.
  void run(const void* a, const void* b, const float* bias, void* out, void* scratch);

 private:
  struct Primitive;
  std::unique_ptr<Primitive> primitive_;
};

}  // namespace sidereal::kernels
