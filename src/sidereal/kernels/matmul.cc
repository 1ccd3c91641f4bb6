#include "sidereal/kernels/matmul.h"

#include <dnnl.h>

#include <Eigen/Core>
#include <cstring>

#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/one_omp_thread.h"

namespace sidereal::kernels {
namespace {

template <class T>
void scale_only(T* out, int64_t n, T beta) {
  if (beta == T(0)) {
    std::memset(out, 0, n * sizeof(T));
  } else if (beta != T(1)) {
    for (int64_t i = 0; i < n; ++i) out[i] *= beta;
  }
}

void multiply(const float* a, const float* b, float* out, const MatMulDims& d, float beta) {
  const internal::OneOmpThread one;
  const dnnl_status_t status =
      dnnl_sgemm(d.trans_a ? 'T' : 'N', d.trans_b ? 'T' : 'N', d.m, d.n, d.k, 1.0F, a,
                 d.trans_a ? d.m : d.k, b, d.trans_b ? d.k : d.n, beta, out, d.n);
  SR_CHECK(status == dnnl_success, "dnnl_sgemm of [{}, {}] x [{}, {}] gave {}", d.m, d.k, d.k, d.n,
           static_cast<int>(status));
}

void multiply(const double* a, const double* b, double* out, const MatMulDims& d, double beta) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using In = Eigen::Map<const Matrix>;
  Eigen::Map<Matrix> c(out, d.m, d.n);
  scale_only(out, d.m * d.n, beta);
  const In left(a, d.trans_a ? d.k : d.m, d.trans_a ? d.m : d.k);
  const In right(b, d.trans_b ? d.n : d.k, d.trans_b ? d.k : d.n);
  if (d.trans_a && d.trans_b) {
    c.noalias() += left.transpose() * right.transpose();
  } else if (d.trans_a) {
    c.noalias() += left.transpose() * right;
  } else if (d.trans_b) {
    c.noalias() += left * right.transpose();
  } else {
    c.noalias() += left * right;
  }
}

template <class T>
void multiply_integers(const T* a, const T* b, T* out, const MatMulDims& d, T beta) {
  using U = std::make_unsigned_t<T>;
  scale_only(out, d.m * d.n, beta);
  for (int64_t i = 0; i < d.m; ++i) {
    for (int64_t l = 0; l < d.k; ++l) {
      const auto x = static_cast<U>(d.trans_a ? a[l * d.m + i] : a[i * d.k + l]);
      const T* row = d.trans_b ? b + l : b + l * d.n;
      const int64_t step = d.trans_b ? d.k : 1;
      for (int64_t j = 0; j < d.n; ++j) {
        T& to = out[i * d.n + j];
        to = static_cast<T>(static_cast<U>(to) + x * static_cast<U>(row[j * step]));
      }
    }
  }
}

void multiply(const int32_t* a, const int32_t* b, int32_t* out, const MatMulDims& d, int32_t beta) {
  multiply_integers(a, b, out, d, beta);
}
void multiply(const int64_t* a, const int64_t* b, int64_t* out, const MatMulDims& d, int64_t beta) {
  multiply_integers(a, b, out, d, beta);
}

}  // namespace

template <class T>
void mat_mul(const T* a, const T* b, T* out, const MatMulDims& dims, std::type_identity_t<T> beta) {
  SR_CHECK(dims.m >= 0 && dims.k >= 0 && dims.n >= 0, "mat_mul of [{}, {}] x [{}, {}]", dims.m,
           dims.k, dims.k, dims.n);
  if (dims.m == 0 || dims.n == 0) return;
  if (dims.k == 0) {
    scale_only(out, dims.m * dims.n, beta);
    return;
  }
  multiply(a, b, out, dims, beta);
}

void mat_mul_part(const float* a, const float* b, float* out, const MatMulDims& dims,
                  const MatMulPart& part) {
  const int64_t size = part.last - part.first;
  const int64_t limit = part.is_inner ? dims.k : dims.m;
  SR_CHECK(part.first >= 0 && size > 0 && part.last <= limit, "part [{}, {}) of {}", part.first,
           part.last, limit);
  if (dims.n == 0 || dims.m == 0) return;
  const int64_t lda = dims.trans_a ? dims.m : dims.k;
  const int64_t ldb = dims.trans_b ? dims.k : dims.n;
  const int64_t row = part.is_inner ? 0 : part.first;
  const int64_t inner = part.is_inner ? part.first : 0;
  const int64_t m = part.is_inner ? dims.m : size;
  const int64_t k = part.is_inner ? size : dims.k;
  a += dims.trans_a ? inner * lda + row : row * lda + inner;
  b += dims.trans_b ? inner : inner * ldb;
  const internal::OneOmpThread one;
  const dnnl_status_t status =
      dnnl_sgemm(dims.trans_a ? 'T' : 'N', dims.trans_b ? 'T' : 'N', m, dims.n, k, 1.0F, a, lda, b,
                 ldb, 0.0F, out + row * dims.n, dims.n);
  SR_CHECK(status == dnnl_success, "dnnl_sgemm of [{}, {}] x [{}, {}] gave {}", m, k, k, dims.n,
           static_cast<int>(status));
}

template void mat_mul(const float*, const float*, float*, const MatMulDims&, float);
template void mat_mul(const double*, const double*, double*, const MatMulDims&, double);
template void mat_mul(const int32_t*, const int32_t*, int32_t*, const MatMulDims&, int32_t);
template void mat_mul(const int64_t*, const int64_t*, int64_t*, const MatMulDims&, int64_t);

}  // namespace sidereal::kernels
