#include "sidereal/kernels/bfloat_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "sidereal/tensor/buffer.h"

namespace sidereal::kernels {
namespace {

using tensor::BFloat16;

std::vector<BFloat16> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<BFloat16> v(n);
  for (BFloat16& x : v) x = BFloat16(draw(rng));
  return v;
}

/// The product in double precision, before rounding.
std::vector<double> plain(const BfloatMatMul::Form& f, const std::vector<BFloat16>& a,
                          const std::vector<BFloat16>& b, const std::vector<float>& bias) {
  const MatMulDims& d = f.dims;
  std::vector<double> out;
  for (int64_t p = 0; p < f.batch; ++p) {
    const BFloat16* x = a.data() + (f.one_a ? 0 : p * d.m * d.k);
    const BFloat16* y = b.data() + (f.one_b ? 0 : p * d.k * d.n);
    for (int64_t i = 0; i < d.m; ++i) {
      for (int64_t j = 0; j < d.n; ++j) {
        double sum = f.has_bias ? bias[j] : 0.0;
        for (int64_t l = 0; l < d.k; ++l) {
          sum += static_cast<double>(x[d.trans_a ? l * d.m + i : i * d.k + l]) *
                 static_cast<double>(y[d.trans_b ? j * d.k + l : l * d.n + j]);
        }
        out.push_back(f.relu ? std::max(sum, 0.0) : sum);
      }
    }
  }
  return out;
}

void check(BfloatMatMul* product, const BfloatMatMul::Form& f) {
  const MatMulDims& d = f.dims;
  const auto a = random_values((f.one_a ? 1 : f.batch) * d.m * d.k, 1);
  const auto b = random_values((f.one_b ? 1 : f.batch) * d.k * d.n, 2);
  const auto halves = random_values(d.n, 3);
  const std::vector<float> bias(halves.begin(), halves.end());
  const std::vector<double> want = plain(f, a, b, bias);
  const auto scratch = tensor::Buffer::allocate(product->prepare(f));
  std::vector<float> wide(want.size());
  std::vector<BFloat16> narrow(want.size());
  void* out = f.wide_out ? static_cast<void*>(wide.data()) : narrow.data();
  product->run(a.data(), b.data(), bias.data(), out, scratch->data());
  for (size_t i = 0; i < want.size(); ++i) {
    const double got = f.wide_out ? wide[i] : static_cast<float>(narrow[i]);
    const double bound = f.wide_out ? 1e-5 : std::abs(want[i]) / 256 + 1e-5;
    ASSERT_NEAR(got, want[i], bound) << f.batch << " x " << d.m << "x" << d.k << "x" << d.n
                                     << " transposed " << d.trans_a << d.trans_b << " at " << i;
  }
}

TEST(BfloatMatMul, IsTheSumInFloatRoundedOnceInEveryForm) {
  if (!has_bfloat_units()) GTEST_SKIP() << "skipped: this processor has no bfloat16 units";
  const int64_t shapes[][3] = {{1, 1, 1},  {3, 4, 5},    {16, 32, 16}, {33, 17, 1},
                               {1, 40, 7}, {64, 70, 31}, {40, 1, 9},   {128, 13, 50}};
  BfloatMatMul product;
  for (const auto& s : shapes) {
    for (int bits = 0; bits < 32; ++bits) {
      check(&product, {.dims = {s[0], s[1], s[2], (bits & 1) != 0, (bits & 2) != 0},
                       .wide_out = (bits & 4) != 0,
                       .has_bias = (bits & 8) != 0,
                       .relu = (bits & 16) != 0});
    }
  }
}

TEST(BfloatMatMul, MultipliesStacksAndAStackByOneMatrix) {
  if (!has_bfloat_units()) GTEST_SKIP() << "skipped: this processor has no bfloat16 units";
  BfloatMatMul product;
  for (int bits = 0; bits < 16; ++bits) {
    check(&product, {.dims = {27, 16, 27, (bits & 1) != 0, (bits & 2) != 0},
                     .batch = 5,
                     .one_a = (bits & 12) == 4,
                     .one_b = (bits & 12) == 8,
                     .wide_out = (bits & 1) != 0});
  }
}

TEST(BfloatMatMul, GivesTheSameBitsAgain) {
  if (!has_bfloat_units()) GTEST_SKIP() << "skipped: this processor has no bfloat16 units";
  const BfloatMatMul::Form form{.dims = {50, 70, 40}, .wide_out = true};
  const auto a = random_values(50 * 70, 4);
  const auto b = random_values(70 * 40, 5);
  std::vector<float> first;
  for (int i = 0; i < 3; ++i) {
    BfloatMatMul product;
    const auto scratch = tensor::Buffer::allocate(product.prepare(form));
    std::vector<float> out(50 * 40);
    product.run(a.data(), b.data(), nullptr, out.data(), scratch->data());
    if (i == 0) first = out;
    EXPECT_EQ(out, first);
  }
}

}  // namespace
}  // namespace sidereal::kernels
