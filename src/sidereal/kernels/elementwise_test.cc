#include "sidereal/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace sidereal::kernels {
namespace {

using tensor::Shape;

template <class T>
std::vector<T> random_values(int64_t n, uint64_t seed, double lo = -4, double hi = 4) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> draw(lo, hi);
  std::vector<T> v(n);
  for (T& x : v) x = static_cast<T>(draw(rng));
  return v;
}

double reference(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::kNeg:
      return -x;
    case UnaryOp::kExp:
      return std::exp(x);
    case UnaryOp::kLog:
      return std::log(x);
    case UnaryOp::kLog1p:
      return std::log1p(x);
    case UnaryOp::kSqrt:
      return std::sqrt(x);
    case UnaryOp::kRsqrt:
      return 1 / std::sqrt(x);
    case UnaryOp::kSquare:
      return x * x;
    case UnaryOp::kAbs:
      return std::fabs(x);
    case UnaryOp::kSign:
      return x > 0 ? 1 : (x < 0 ? -1 : 0);
    case UnaryOp::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryOp::kTanh:
      return std::tanh(x);
    case UnaryOp::kRelu:
      return std::max(x, 0.0);
    case UnaryOp::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    case UnaryOp::kReciprocal:
      return 1 / x;
    case UnaryOp::kFloor:
      return std::floor(x);
    case UnaryOp::kCeil:
      return std::ceil(x);
    case UnaryOp::kRound:
      return std::nearbyint(x);
    case UnaryOp::kTrunc:
      return std::trunc(x);
    case UnaryOp::kRelu6:
      return std::min(std::max(x, 0.0), 6.0);
    case UnaryOp::kElu:
      return x < 0 ? std::expm1(x) : x;
    case UnaryOp::kSilu:
      return x / (1 + std::exp(-x));
    case UnaryOp::kGelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    default:  // What the standard library has is compared with NumPy from Python.
      return std::numeric_limits<double>::quiet_NaN();
  }
}

double reference(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kMaximum:
      return std::max(a, b);
    case BinaryOp::kMinimum:
      return std::min(a, b);
    case BinaryOp::kFloorDiv:
      return std::floor(a / b);
    case BinaryOp::kSquaredDifference:
      return (a - b) * (a - b);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

constexpr BinaryOp kBinaryOps[] = {BinaryOp::kAdd, BinaryOp::kSub,     BinaryOp::kMul,
                                   BinaryOp::kDiv, BinaryOp::kMaximum, BinaryOp::kMinimum};

std::vector<UnaryOp> all_unary_ops() {
  std::vector<UnaryOp> ops;
  for (int i = 0; i < kUnaryOps; ++i) {
    const auto op = static_cast<UnaryOp>(i);
    if (!std::isnan(reference(op, 0.5))) ops.push_back(op);
  }
  return ops;
}

template <class T>
class Elementwise : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Reals);

TYPED_TEST(Elementwise, UnaryOpsAgreeWithTheStandardLibrary) {
  using T = TypeParam;
  for (const UnaryOp op : all_unary_ops()) {
    const bool positive = op == UnaryOp::kLog || op == UnaryOp::kSqrt || op == UnaryOp::kRsqrt;
    const double lo = positive ? 1e-6 : (op == UnaryOp::kLog1p ? -0.99 : -20.0);
    for (const int64_t n : {0, 1, 7, 16, 1000}) {
      const std::vector<T> in = random_values<T>(n, 3, lo, 20.0);
      std::vector<T> out(n);
      unary(op, in.data(), out.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        const double want = reference(op, static_cast<double>(in[i]));
        // Far below 0 the rounding of x / sqrt(2) shows in gelu.
        const double ulps = op == UnaryOp::kGelu ? 100 : 4;
        EXPECT_NEAR(static_cast<double>(out[i]), want,
                    ulps * std::numeric_limits<T>::epsilon() * std::max(1e-3, std::fabs(want)))
            << "op " << static_cast<int>(op) << " of " << in[i];
      }
    }
  }
}

TYPED_TEST(Elementwise, UnaryWorksInPlaceAndDoesNotDependOnTheOffset) {
  using T = TypeParam;
  for (const UnaryOp op : all_unary_ops()) {
    const std::vector<T> in = random_values<T>(257, 5, 0.01, 3);
    std::vector<T> out(in.size());
    unary(op, in.data(), out.data(), static_cast<int64_t>(in.size()));
    std::vector<T> in_place = in;
    unary(op, in_place.data(), in_place.data(), static_cast<int64_t>(in.size()));
    EXPECT_EQ(in_place, out);
    for (size_t i = 0; i < in.size(); ++i) {
      T alone = 0;
      unary(op, &in[i], &alone, 1);
      EXPECT_EQ(alone, out[i]) << "op " << static_cast<int>(op) << " element " << i;
    }
  }
}

TYPED_TEST(Elementwise, ExtremesAreThoseOfTheStandardLibrary) {
  using T = TypeParam;
  constexpr T kInf = std::numeric_limits<T>::infinity();
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  for (const UnaryOp op : {UnaryOp::kExp, UnaryOp::kLog, UnaryOp::kLog1p, UnaryOp::kSigmoid,
                           UnaryOp::kTanh, UnaryOp::kSoftplus, UnaryOp::kRelu}) {
    for (const T x : {T(0), T(-1), kInf, -kInf, kNan, T(800), T(-800), T(1e-30), T(-1e-30)}) {
      T out = 0;
      unary(op, &x, &out, 1);
      const T want = static_cast<T>(reference(op, static_cast<double>(x)));
      if (op == UnaryOp::kRelu && x != x) continue;
      if (want != want) {
        EXPECT_NE(out, out) << "op " << static_cast<int>(op) << " of " << x;
      } else if (std::isinf(want)) {
        EXPECT_EQ(out, want) << "op " << static_cast<int>(op) << " of " << x;
      } else {
        EXPECT_NEAR(out, want, std::fabs(want) * 1e-6)
            << "op " << static_cast<int>(op) << " of " << x;
      }
    }
  }
}

// The element of a broadcast operand at the output index `at` (row-major).
template <class T>
T element(const std::vector<T>& v, const Shape& shape, const Shape& out, int64_t at) {
  int64_t index = 0;
  int64_t stride = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    const int64_t coordinate = at % out.dim(i);
    at /= out.dim(i);
    const int own = i - (out.rank() - shape.rank());
    if (own < 0) continue;
    if (shape.dim(own) != 1) index += coordinate * stride;
    stride *= shape.dim(own);
  }
  return v[index];
}

const std::pair<Shape, Shape> kShapePairs[] = {{{3, 5}, {3, 5}},
                                               {{}, {4}},
                                               {{4}, {}},
                                               {{33, 17}, {17}},
                                               {{33, 17}, {33, 1}},
                                               {{33, 1}, {33, 17}},
                                               {{17}, {33, 17}},
                                               {{1, 17}, {33, 1}},
                                               {{2, 3, 4}, {3, 1}},
                                               {{2, 1, 4, 1}, {3, 1, 5}},
                                               {{1}, {1, 1}},
                                               {{0, 3}, {3}},
                                               {{0}, {1}},
                                               {{2, 3, 4}, {2, 1, 4}},
                                               {{5, 1, 1}, {5, 6, 7}},
                                               {{}, {}}};

TYPED_TEST(Elementwise, BinaryOpsBroadcastAsNumPyDoes) {
  using T = TypeParam;
  for (const auto& [a_shape, b_shape] : kShapePairs) {
    Shape shape;
    ASSERT_TRUE(broadcast_shape(a_shape, b_shape, &shape));
    const std::vector<T> a = random_values<T>(a_shape.num_elements(), 1);
    const std::vector<T> b = random_values<T>(b_shape.num_elements(), 2);
    std::vector<T> out(shape.num_elements());
    for (const BinaryOp op : kBinaryOps) {
      binary_broadcast(op, a.data(), a_shape, b.data(), b_shape, out.data());
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        const T x = element(a, a_shape, shape, i);
        const T y = element(b, b_shape, shape, i);
        EXPECT_EQ(out[i], static_cast<T>(reference(op, x, y)) + T(0))
            << a_shape.to_string() << " " << b_shape.to_string();
      }
    }
    std::vector<uint8_t> less(shape.num_elements());
    compare_broadcast(CompareOp::kLess, a.data(), a_shape, b.data(), b_shape,
                      reinterpret_cast<bool*>(less.data()));
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      EXPECT_EQ(less[i] != 0, element(a, a_shape, shape, i) < element(b, b_shape, shape, i));
    }
  }
}

TYPED_TEST(Elementwise, SameShapeBinaryWorksInPlace) {
  using T = TypeParam;
  for (const int64_t n : {0, 1, 31, 100}) {
    const std::vector<T> a = random_values<T>(n, 1);
    const std::vector<T> b = random_values<T>(n, 2);
    for (const BinaryOp op : kBinaryOps) {
      std::vector<T> out(n);
      binary(op, a.data(), b.data(), out.data(), n);
      std::vector<T> left = a;
      binary(op, left.data(), b.data(), left.data(), n);
      std::vector<T> right = b;
      binary(op, a.data(), right.data(), right.data(), n);
      EXPECT_EQ(left, out);
      EXPECT_EQ(right, out);
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(out[i], static_cast<T>(reference(op, a[i], b[i])));
    }
  }
}

TYPED_TEST(Elementwise, ReduceToShapeIsTheAdjointOfBroadcasting) {
  using T = TypeParam;
  for (const auto& [a_shape, b_shape] : kShapePairs) {
    Shape shape;
    ASSERT_TRUE(broadcast_shape(a_shape, b_shape, &shape));
    const std::vector<T> grad = random_values<T>(shape.num_elements(), 9);
    std::vector<T> out(a_shape.num_elements(), T(99));
    reduce_to_shape(grad.data(), shape, a_shape, out.data());
    std::vector<double> want(a_shape.num_elements(), 0.0);
    std::vector<int64_t> index(a_shape.num_elements());
    for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int64_t>(i);
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      want[element(index, a_shape, shape, i)] += grad[i];
    }
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(out[i], want[i], 1e-4);

    std::vector<T> wide(shape.num_elements());
    const std::vector<T> a = random_values<T>(a_shape.num_elements(), 4);
    broadcast_to(a.data(), a_shape, shape, wide.data());
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      EXPECT_EQ(wide[i], element(a, a_shape, shape, i));
    }
  }
}

TYPED_TEST(Elementwise, GradientHelpersFollowTheirFormulas) {
  using T = TypeParam;
  const int64_t n = 77;
  const std::vector<T> g = random_values<T>(n, 1);
  std::vector<T> y = random_values<T>(n, 2, -1, 1);
  y[3] = 0;
  std::vector<T> out(n);
  relu_grad(g.data(), y.data(), out.data(), n);
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(out[i], y[i] > 0 ? g[i] : T(0));
  sigmoid_grad(g.data(), y.data(), out.data(), n);
  for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(out[i], g[i] * y[i] * (1 - y[i]), 1e-6);
  tanh_grad(g.data(), y.data(), out.data(), n);
  for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(out[i], g[i] * (1 - y[i] * y[i]), 1e-6);
  scale(T(2), g.data(), out.data(), n);
  axpy(T(-2), g.data(), out.data(), n);
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(out[i], T(0));
}

TEST(ElementwiseIntegers, ArithmeticWrapsAndDivisionByZeroIsZero) {
  const std::vector<int64_t> a = {7, 7, std::numeric_limits<int64_t>::min(), 5};
  const std::vector<int64_t> b = {2, 0, -1, -1};
  std::vector<int64_t> out(4);
  binary(BinaryOp::kDiv, a.data(), b.data(), out.data(), 4);
  EXPECT_EQ(out, (std::vector<int64_t>{3, 0, std::numeric_limits<int64_t>::min(), -5}));
  binary(BinaryOp::kAdd, a.data(), b.data(), out.data(), 4);
  EXPECT_EQ(out[2], std::numeric_limits<int64_t>::max());
}

TEST(BroadcastShape, RefusesShapesThatDoNotFit) {
  Shape out;
  EXPECT_FALSE(broadcast_shape({2, 3}, {2}, &out));
  EXPECT_FALSE(broadcast_shape({0}, {2}, &out));
  EXPECT_TRUE(broadcast_shape({4, 1}, {3}, &out));
  EXPECT_EQ(out, (Shape{4, 3}));
}

TEST(Cast, TruncatesSaturatesAndTakesNanToZero) {
  const std::vector<float> in = {1.9F, -1.9F, 3e9F, -3e9F, std::nanf(""), 0.0F};
  std::vector<int32_t> out(in.size());
  ASSERT_TRUE(cast(tensor::DType::kFloat32, in.data(), tensor::DType::kInt32, out.data(),
                   static_cast<int64_t>(in.size())));
  EXPECT_EQ(out, (std::vector<int32_t>{1, -1, std::numeric_limits<int32_t>::max(),
                                       std::numeric_limits<int32_t>::min(), 0, 0}));
  bool truth[6];
  ASSERT_TRUE(cast(tensor::DType::kFloat32, in.data(), tensor::DType::kBool, truth, 6));
  EXPECT_TRUE(truth[0]);
  EXPECT_FALSE(truth[5]);
  EXPECT_FALSE(cast(tensor::DType::kInvalid, in.data(), tensor::DType::kInt32, out.data(), 1));
}

TEST(Integers, FloorDivisionAndRemainderHaveTheSignsOfPython) {
  const std::vector<int32_t> a = {7, -7, 7, -7, std::numeric_limits<int32_t>::min(), 6};
  const std::vector<int32_t> b = {3, 3, -3, -3, -1, -3};
  std::vector<int32_t> out(a.size());
  const auto n = static_cast<int64_t>(a.size());
  binary(BinaryOp::kFloorDiv, a.data(), b.data(), out.data(), n);
  EXPECT_EQ(out, (std::vector<int32_t>{2, -3, -3, 2, std::numeric_limits<int32_t>::min(), -2}));
  binary(BinaryOp::kFloorMod, a.data(), b.data(), out.data(), n);
  EXPECT_EQ(out, (std::vector<int32_t>{1, 2, -2, -1, 0, 0}));
  binary(BinaryOp::kDiv, a.data(), b.data(), out.data(), n);
  EXPECT_EQ(out, (std::vector<int32_t>{2, -2, -2, 2, std::numeric_limits<int32_t>::min(), -2}));
}

TEST(Integers, WrapAroundInEveryWidth) {
  const uint16_t big = 65535;
  uint16_t out16 = 0;
  binary(BinaryOp::kMul, &big, &big, &out16, 1);
  EXPECT_EQ(out16, 1);
  const int8_t low = -128;
  int8_t out8 = 0;
  unary(UnaryOp::kNeg, &low, &out8, 1);
  EXPECT_EQ(out8, -128);
  const uint32_t a = 10;
  const uint32_t b = 0xFFFFFFFF;
  uint32_t out32 = 1;
  binary(BinaryOp::kDiv, &a, &b, &out32, 1);
  EXPECT_EQ(out32, 0u);
}

TEST(Halves, AreComputedInFloatAndRoundedOnce) {
  constexpr int64_t kN = 1300;  // More than one block.
  const std::vector<float> values = random_values<float>(kN, 9);
  std::vector<tensor::Float16> a(kN);
  std::vector<tensor::BFloat16> b(kN);
  narrow(values.data(), a.data(), kN);
  narrow(values.data(), b.data(), kN);
  std::vector<tensor::Float16> out_a(kN);
  std::vector<tensor::BFloat16> out_b(kN);
  unary(UnaryOp::kExp, a.data(), out_a.data(), kN);
  binary_broadcast(BinaryOp::kMul, b.data(), {kN}, b.data() + 3, {1}, out_b.data());
  for (int64_t i = 0; i < kN; ++i) {
    float exp = 0;
    const float x = a[i];
    unary(UnaryOp::kExp, &x, &exp, 1);
    EXPECT_EQ(out_a[i].bits, tensor::Float16(exp).bits) << i;
    EXPECT_EQ(a[i].bits, tensor::Float16(values[i]).bits) << i;
    EXPECT_EQ(out_b[i].bits, tensor::BFloat16(b[i] * b[3]).bits) << i;
  }
}

TEST(Select, BroadcastsAllThree) {
  const bool condition[] = {true, false};
  const uint32_t a[] = {1, 2, 3};
  const uint32_t b[] = {9};
  uint32_t out[6] = {};
  select_broadcast(condition, {2, 1}, a, {3}, b, {}, {2, 3}, out);
  EXPECT_EQ(std::vector<uint32_t>(out, out + 6), (std::vector<uint32_t>{1, 2, 3, 9, 9, 9}));
}

}  // namespace
}  // namespace sidereal::kernels
