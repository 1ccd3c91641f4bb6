#include "sidereal/kernels/matmul.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "sidereal/kernels/thread.h"

namespace sidereal::kernels {
namespace {

template <class T>
std::vector<T> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  std::vector<T> v(n);
  for (T& x : v) x = static_cast<T>(draw(rng));
  return v;
}

template <class T>
void naive(const std::vector<T>& a, const std::vector<T>& b, std::vector<T>& out,
           const MatMulDims& d, T beta) {
  for (int64_t i = 0; i < d.m; ++i) {
    for (int64_t j = 0; j < d.n; ++j) {
      double acc = 0;
      for (int64_t p = 0; p < d.k; ++p) {
        const T x = d.trans_a ? a[p * d.m + i] : a[i * d.k + p];
        const T y = d.trans_b ? b[j * d.k + p] : b[p * d.n + j];
        acc += static_cast<double>(x) * static_cast<double>(y);
      }
      const double before = beta == 0 ? 0.0 : static_cast<double>(beta) * out[i * d.n + j];
      out[i * d.n + j] = static_cast<T>(acc + before);
    }
  }
}

template <class T>
class MatMul : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(MatMul, Reals);

TYPED_TEST(MatMul, AgreesWithThreeLoopsInEveryForm) {
  using T = TypeParam;
  const int64_t shapes[][3] = {{1, 1, 1},  {3, 4, 5},    {16, 16, 16}, {33, 17, 1}, {1, 40, 7},
                               {40, 1, 9}, {64, 70, 31}, {0, 3, 4},    {3, 4, 0},   {3, 0, 4}};
  for (const auto& s : shapes) {
    for (int form = 0; form < 4; ++form) {
      for (const T beta : {T(0), T(1), T(0.5)}) {
        const MatMulDims dims{s[0], s[1], s[2], (form & 1) != 0, (form & 2) != 0};
        const std::vector<T> a = random_values<T>(dims.m * dims.k, 1);
        const std::vector<T> b = random_values<T>(dims.k * dims.n, 2);
        std::vector<T> out = random_values<T>(dims.m * dims.n, 3);
        std::vector<T> want = out;
        naive(a, b, want, dims, beta);
        mat_mul(a.data(), b.data(), out.data(), dims, beta);
        for (size_t i = 0; i < out.size(); ++i) {
          EXPECT_NEAR(out[i], want[i], 2e-5)
              << dims.m << "x" << dims.k << "x" << dims.n << " form " << form << " beta " << beta;
        }
      }
    }
  }
}

TYPED_TEST(MatMul, WithBetaZeroTheOldContentIsNotRead) {
  using T = TypeParam;
  const std::vector<T> a(6, T(1));
  std::vector<T> out(4, std::numeric_limits<T>::quiet_NaN());
  mat_mul(a.data(), a.data(), out.data(), {2, 3, 2});
  EXPECT_EQ(out, std::vector<T>(4, T(3)));
}

TYPED_TEST(MatMul, GivesTheSameBitsAgain) {
  using T = TypeParam;
  prepare_thread();
  const std::vector<T> a = random_values<T>(128 * 100, 1);
  const std::vector<T> b = random_values<T>(100 * 64, 2);
  std::vector<T> first(128 * 64);
  mat_mul(a.data(), b.data(), first.data(), {128, 100, 64});
  for (int i = 0; i < 3; ++i) {
    std::vector<T> again(first.size());
    mat_mul(a.data(), b.data(), again.data(), {128, 100, 64});
    EXPECT_EQ(again, first);
  }
}

}  // namespace
}  // namespace sidereal::kernels
