#include "sidereal/kernels/prepared_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "sidereal/tensor/buffer.h"
#include "sidereal/tensor/half.h"

namespace sidereal::kernels {
namespace {

using tensor::BFloat16;
using tensor::DType;

template <class T>
std::vector<T> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<T> v(n);
  for (T& x : v) x = T(draw(rng));
  return v;
}

int64_t row_of_a(const PreparedMatMul::Form& f) {
  return f.a_row > 0 ? f.a_row : (f.dims.trans_a ? f.dims.m : f.dims.k);
}

/// The product in double precision, before rounding.
template <class T>
std::vector<double> plain(const PreparedMatMul::Form& f, const std::vector<T>& a,
                          const std::vector<T>& b, const std::vector<float>& bias) {
  const MatMulDims& d = f.dims;
  std::vector<double> out;
  for (int64_t p = 0; p < f.batch; ++p) {
    const T* x = a.data() + (f.one_a ? 0 : p * d.m * d.k);
    const T* y = b.data() + (f.one_b ? 0 : p * d.k * d.n);
    for (int64_t i = 0; i < d.m; ++i) {
      for (int64_t j = 0; j < d.n; ++j) {
        double sum = f.has_bias ? bias[j] : 0.0;
        for (int64_t l = 0; l < d.k; ++l) {
          sum += static_cast<double>(x[d.trans_a ? l * row_of_a(f) + i : i * row_of_a(f) + l]) *
                 static_cast<double>(y[d.trans_b ? j * d.k + l : l * d.n + j]);
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

template <class T>
void check_values(PreparedMatMul* product, const PreparedMatMul::Form& f) {
  const MatMulDims& d = f.dims;
  const auto a =
      random_values<T>((f.one_a ? 1 : f.batch) * row_of_a(f) * (d.trans_a ? d.k : d.m), 1);
  const auto b = random_values<T>((f.one_b ? 1 : f.batch) * d.k * d.n, 2);
  const auto bias = random_values<float>(d.n, 3);
  const std::vector<double> want = plain(f, a, b, bias);
  const auto scratch = tensor::Buffer::allocate(product->prepare(f));
  const bool is_wide = f.out == DType::kFloat32;
  std::vector<float> wide(want.size());
  std::vector<BFloat16> narrow(want.size());
  void* out = is_wide ? static_cast<void*>(wide.data()) : narrow.data();
  product->run(a.data(), b.data(), bias.data(), out, scratch->data());
  for (size_t i = 0; i < want.size(); ++i) {
    const double got = is_wide ? wide[i] : static_cast<float>(narrow[i]);
    const double bound = is_wide ? 2e-5 : std::abs(want[i]) / 256 + 1e-5;
    ASSERT_NEAR(got, want[i], bound) << f.batch << " x " << d.m << "x" << d.k << "x" << d.n
                                     << " transposed " << d.trans_a << d.trans_b << " at " << i;
  }
}

/// In float32 and, where the processor can, from bfloat16 to both.
void check(PreparedMatMul* product, PreparedMatMul::Form form) {
  check_values<float>(product, form);
  if (!has_bfloat_units()) return;
  form.in = DType::kBFloat16;
  check_values<BFloat16>(product, form);
  form.out = DType::kBFloat16;
  check_values<BFloat16>(product, form);
}

TEST(PreparedMatMul, IsTheSumInFloatRoundedOnceInEveryForm) {
  const int64_t shapes[][3] = {{1, 1, 1},  {3, 4, 5},    {16, 32, 16}, {33, 17, 1},
                               {1, 40, 7}, {64, 70, 31}, {40, 1, 9},   {128, 13, 50}};
  PreparedMatMul product;
  for (const auto& s : shapes) {
    for (int bits = 0; bits < 8; ++bits) {
      check(&product, {.dims = {s[0], s[1], s[2], (bits & 1) != 0, (bits & 2) != 0},
                       .has_bias = (bits & 4) != 0});
    }
  }
}

TEST(PreparedMatMul, MultipliesStacksAndAStackByOneMatrix) {
  PreparedMatMul product;
  for (int bits = 0; bits < 16; ++bits) {
    check(&product, {.dims = {27, 16, 27, (bits & 1) != 0, (bits & 2) != 0},
                     .batch = 5,
                     .one_a = (bits & 12) == 4,
                     .one_b = (bits & 12) == 8});
  }
}

TEST(PreparedMatMul, TakesAPartOfALargerMatrix) {
  PreparedMatMul product;
  for (int bits = 0; bits < 4; ++bits) {
    const bool trans_a = (bits & 1) != 0;
    check(&product, {.dims = {27, 16, 21, trans_a, (bits & 2) != 0}, .a_row = 40});
  }
  check(&product, {.dims = {27, 16, 21, true, false}});  // Another form.
}

TEST(PreparedMatMul, GivesTheSameBitsAgain) {
  const PreparedMatMul::Form form{.dims = {50, 70, 40}};
  const auto a = random_values<float>(50 * 70, 4);
  const auto b = random_values<float>(70 * 40, 5);
  std::vector<float> first;
  for (int i = 0; i < 3; ++i) {
    PreparedMatMul product;
    const auto scratch = tensor::Buffer::allocate(product.prepare(form));
    std::vector<float> out(50 * 40);
    product.run(a.data(), b.data(), nullptr, out.data(), scratch->data());
    if (i == 0) first = out;
    EXPECT_EQ(out, first);
  }
}

}  // namespace
}  // namespace sidereal::kernels
