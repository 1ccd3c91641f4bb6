#include <algorithm>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/internal/broadcast.h"
#include "sidereal/kernels/internal/vec_math.h"

#if defined(__F16C__) || defined(__AVX512BW__)
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
  int64_t i = 0;
#ifdef __AVX512BW__
  // tensor::internal::to_bfloat_bits(), 16 at a time. Not the instruction for it: that flushes
  // denormals.
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i half = _mm512_set1_epi32(0x7FFF);
  const __m512i quiet = _mm512_set1_epi32(0x40);
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(in + i);
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i grown =
        _mm512_add_epi32(_mm512_add_epi32(bits, half), _mm512_and_si512(high, one));
    const __m512i rounded = _mm512_srli_epi32(grown, 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i chosen = _mm512_mask_or_epi32(rounded, nan, high, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtepi32_epi16(chosen));
  }
#endif
  SR_INDEPENDENT
  for (int64_t j = i; j < n; ++j) out[j] = BFloat16(in[j]);
}

void relu(const BFloat16* x, BFloat16* out, int64_t n) {
  // As integers, the numbers from -0 to -infinity are 0x8000 to 0xFF80.
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const bool is_negative = static_cast<uint16_t>(x[i].bits - 0x8000U) <= 0x7F80U;
    out[i].bits = is_negative ? uint16_t{0} : x[i].bits;
  }
}

void relu_grad(const BFloat16* grad, const BFloat16* x, BFloat16* out, int64_t n) {
  // As integers, the numbers above 0 are 1 to 0x7F80, infinity.
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const bool passes = static_cast<uint16_t>(x[i].bits - 1U) < 0x7F80U;
    out[i].bits = passes ? grad[i].bits : uint16_t{0};
  }
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
