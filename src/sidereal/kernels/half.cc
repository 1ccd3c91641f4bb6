#include <algorithm>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/internal/broadcast.h"
#include "sidereal/kernels/internal/vec_math.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

/// The element-wise loops of the 16-bit floats: blocks are widened, computed in float, rounded
/// once.
namespace sidereal::kernels {

using tensor::BFloat16;
using tensor::Float16;

namespace {

/// Elements at a time: three blocks of floats stay in the first-level cache.
constexpr int64_t kBlock = 512;

/// Calls block(from, count) for 0 <= from < n.
template <class Block>
void by_blocks(int64_t n, Block block) {
  for (int64_t from = 0; from < n; from += kBlock) block(from, std::min(kBlock, n - from));
}

/// Widens `count` elements, or repeats one (stride 0).
template <class H>
void widen_operand(const H* in, int64_t stride, float* out, int64_t count) {
  if (stride == 0) {
    std::fill_n(out, count, static_cast<float>(*in));
  } else {
    widen(in, out, count);
  }
}

/// Calls row(x, y, out_offset, count) with blocks of both operands of a broadcast as floats.
template <class H, class Row>
void zip_blocks(const H* a, const tensor::Shape& a_shape, const H* b, const tensor::Shape& b_shape,
                Row row) {
  const internal::LoopPlan plan = internal::plan_loops(a_shape, b_shape);
  const internal::LoopPlan::Loop inner = plan.loops.back();
  internal::for_each_row(plan, [&](int64_t at_a, int64_t at_b, int64_t at_out) {
    by_blocks(inner.extent, [&](int64_t from, int64_t count) {
      float x[kBlock];
      float y[kBlock];
      widen_operand(a + at_a + from * inner.a_stride, inner.a_stride, x, count);
      widen_operand(b + at_b + from * inner.b_stride, inner.b_stride, y, count);
      row(x, y, at_out + from, count);
    });
  });
}

}  // namespace

void widen(const Float16* in, float* out, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(bits));
  }
#endif
  for (; i < n; ++i) out[i] = in[i];
}

void widen(const BFloat16* in, float* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = in[i];
}

void narrow(const float* in, Float16* out, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), bits);
  }
#endif
  for (; i < n; ++i) out[i] = Float16(in[i]);
}

void narrow(const float* in, BFloat16* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = BFloat16(in[i]);
}

namespace {

template <class H>
void half_unary(UnaryOp op, const H* in, H* out, int64_t n) {
  by_blocks(n, [&](int64_t from, int64_t count) {
    float x[kBlock];
    widen(in + from, x, count);
    unary(op, x, x, count);
    narrow(x, out + from, count);
  });
}

template <class H>
void half_binary(BinaryOp op, const H* a, const H* b, H* out, int64_t n) {
  by_blocks(n, [&](int64_t from, int64_t count) {
    float x[kBlock];
    float y[kBlock];
    widen(a + from, x, count);
    widen(b + from, y, count);
    binary(op, x, y, x, count);
    narrow(x, out + from, count);
  });
}

template <class H>
void half_binary_broadcast(BinaryOp op, const H* a, const tensor::Shape& a_shape, const H* b,
                           const tensor::Shape& b_shape, H* out) {
  zip_blocks(a, a_shape, b, b_shape, [&](float* x, const float* y, int64_t at, int64_t count) {
    binary(op, x, y, x, count);
    narrow(x, out + at, count);
  });
}

template <class H>
void half_compare_broadcast(CompareOp op, const H* a, const tensor::Shape& a_shape, const H* b,
                            const tensor::Shape& b_shape, bool* out) {
  zip_blocks(a, a_shape, b, b_shape, [&](float* x, const float* y, int64_t at, int64_t count) {
    const tensor::Shape shape{count};
    compare_broadcast(op, x, shape, y, shape, out + at);
  });
}

template <class H>
void half_classify(TestOp op, const H* in, bool* out, int64_t n) {
  by_blocks(n, [&](int64_t from, int64_t count) {
    float x[kBlock];
    widen(in + from, x, count);
    classify(op, x, out + from, count);
  });
}

}  // namespace

#define SR_SPECIALIZE(T)                                                                     \
  template <>                                                                                \
  void unary(UnaryOp op, const T* in, T* out, int64_t n) {                                   \
    half_unary(op, in, out, n);                                                              \
  }                                                                                          \
  template <>                                                                                \
  void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n) {                      \
    half_binary(op, a, b, out, n);                                                           \
  }                                                                                          \
  template <>                                                                                \
  void binary_broadcast(BinaryOp op, const T* a, const tensor::Shape& a_shape, const T* b,   \
                        const tensor::Shape& b_shape, T* out) {                              \
    half_binary_broadcast(op, a, a_shape, b, b_shape, out);                                  \
  }                                                                                          \
  template <>                                                                                \
  void compare_broadcast(CompareOp op, const T* a, const tensor::Shape& a_shape, const T* b, \
                         const tensor::Shape& b_shape, bool* out) {                          \
    half_compare_broadcast(op, a, a_shape, b, b_shape, out);                                 \
  }                                                                                          \
  template <>                                                                                \
  void classify(TestOp op, const T* in, bool* out, int64_t n) {                              \
    half_classify(op, in, out, n);                                                           \
  }

SR_SPECIALIZE(Float16)
SR_SPECIALIZE(BFloat16)
#undef SR_SPECIALIZE

}  // namespace sidereal::kernels
