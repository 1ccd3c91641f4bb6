#include <algorithm>
#include <cmath>

#include "sidereal/reference/value.h"

namespace sidereal::reference::internal {
namespace {

using Binary = double (*)(double, double);
using Unary = double (*)(double);

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape out;
  const int rank = std::max(a.rank(), b.rank());
  for (int i = rank; i >= 1; --i) {
    const int64_t x = i > a.rank() ? 1 : a.dim(-i);
    const int64_t y = i > b.rank() ? 1 : b.dim(-i);
    if (x != y && x != 1 && y != 1) {
      return base::invalid_argument("{} and {} do not broadcast", a.to_string(), b.to_string());
    }
    out.append(x == 1 ? y : x);
  }
  return out;
}

template <Binary kFunction>
Status binary(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Shape shape, broadcast(c.in(0).shape, c.in(1).shape));
  Value& out = c.add_output(c.in(0).dtype, shape);
  const auto& x = c.in(0).real;
  const auto& y = c.in(1).real;
  for_each_element(shape, broadcast_strides(c.in(0).shape, shape),
                   [&](int64_t i, int64_t j) { out.real[i] = x[j]; });
  for_each_element(shape, broadcast_strides(c.in(1).shape, shape),
                   [&](int64_t i, int64_t j) { out.real[i] = kFunction(out.real[i], y[j]); });
  return {};
}

template <Unary kFunction>
Status unary(const Call& c) {
  Value& out = c.add_output(c.in(0).dtype, c.in(0).shape);
  std::transform(c.in(0).real.begin(), c.in(0).real.end(), out.real.begin(), kFunction);
  return {};
}

double f_add(double x, double y) { return x + y; }
double f_sub(double x, double y) { return x - y; }
double f_mul(double x, double y) { return x * y; }
double f_div(double x, double y) { return x / y; }
double f_max(double x, double y) { return x >= y ? x : y; }
double f_min(double x, double y) { return x <= y ? x : y; }
double f_relu_grad(double dy, double y) { return y > 0 ? dy : 0; }
double f_sigmoid_grad(double dy, double y) { return dy * y * (1 - y); }
double f_tanh_grad(double dy, double y) { return dy * (1 - y * y); }

double f_neg(double x) { return -x; }
double f_exp(double x) { return std::exp(x); }
double f_log(double x) { return std::log(x); }
double f_log1p(double x) { return std::log1p(x); }
double f_sqrt(double x) { return std::sqrt(x); }
double f_square(double x) { return x * x; }
double f_abs(double x) { return std::abs(x); }
double f_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
double f_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double f_tanh(double x) { return std::tanh(x); }
double f_relu(double x) { return x > 0 ? x : 0; }
double f_softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double f_one(double /*x*/) { return 1; }
double f_zero(double /*x*/) { return 0; }

Status add_n(const Call& c) {
  Value& out = c.add_output(c.in(0).dtype, c.in(0).shape);
  for (const Value* x : c.inputs) {
    for (int64_t i = 0; i < out.size(); ++i) out.real[i] += x->real[i];
  }
  return {};
}

Status sum_to_shape_of(const Call& c) {
  const Value& g = c.in(0);
  Value& out = c.add_output(g.dtype, c.in(1).shape);
  for_each_element(g.shape, broadcast_strides(out.shape, g.shape),
                   [&](int64_t i, int64_t j) { out.real[j] += g.real[i]; });
  return {};
}

Status cast(const Call& c) {
  SR_ASSIGN_OR_RETURN(const DType dtype, ir::get_attr<DType>(c.node.attrs, "dtype"));
  Value& out = c.add_output(dtype, c.in(0).shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const double x = c.in(0).is_real() ? c.in(0).real[i] : static_cast<double>(c.in(0).integer[i]);
    if (out.is_real()) {
      out.real[i] = x;
    } else {
      out.integer[i] = dtype == DType::kBool ? x != 0 : static_cast<int64_t>(x);
    }
  }
  return {};
}

Status cross_entropy(const Call& c) {
  Value& out = c.add_output(c.in(0).dtype, c.in(0).shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const double x = c.in(0).real[i];
    out.real[i] = f_softplus(x) - x * c.in(1).real[i];
  }
  return {};
}

Status cross_entropy_grad(const Call& c) {
  Value& out = c.add_output(c.in(0).dtype, c.in(0).shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.real[i] = c.in(0).real[i] * (f_sigmoid(c.in(1).real[i]) - c.in(2).real[i]);
  }
  return {};
}

/// Mixes a counter into a number in [0, 1) (the finalizer of SplitMix64).
double uniform(uint64_t seed, uint64_t step, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15U + step * 0xd1b54a32d192ed03U + index + 1;
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1p-53;
}

Status dropout(const Call& c) {
  Value& out = c.add_output(c.in(0).dtype, c.in(0).shape);
  out.real = c.in(0).real;
  if (!ir::attr_or<bool>(c.node.attrs, "training", false)) return {};
  SR_ASSIGN_OR_RETURN(const double rate, ir::get_attr<double>(c.node.attrs, "rate"));
  SR_ASSIGN_OR_RETURN(const int64_t seed, ir::get_attr<int64_t>(c.node.attrs, "seed"));
  for (int64_t i = 0; i < out.size(); ++i) {
    const bool drop = uniform(seed, c.request.step, i) < rate;
    out.real[i] = drop ? 0 : out.real[i] / (1 - rate);
  }
  return {};
}

}  // namespace

void add_elementwise(Functions* functions) {
  functions->insert({{"Add", binary<f_add>},
                     {"Sub", binary<f_sub>},
                     {"Mul", binary<f_mul>},
                     {"Div", binary<f_div>},
                     {"Maximum", binary<f_max>},
                     {"Minimum", binary<f_min>},
                     {"ReluGrad", binary<f_relu_grad>},
                     {"SigmoidGrad", binary<f_sigmoid_grad>},
                     {"TanhGrad", binary<f_tanh_grad>},
                     {"Neg", unary<f_neg>},
                     {"Exp", unary<f_exp>},
                     {"Log", unary<f_log>},
                     {"Log1p", unary<f_log1p>},
                     {"Sqrt", unary<f_sqrt>},
                     {"Square", unary<f_square>},
                     {"Abs", unary<f_abs>},
                     {"Sign", unary<f_sign>},
                     {"Sigmoid", unary<f_sigmoid>},
                     {"Tanh", unary<f_tanh>},
                     {"Relu", unary<f_relu>},
                     {"Softplus", unary<f_softplus>},
                     {"OnesLike", unary<f_one>},
                     {"ZerosLike", unary<f_zero>},
                     {"AddN", add_n},
                     {"SumToShapeOf", sum_to_shape_of},
                     {"Cast", cast},
                     {"SigmoidCrossEntropyWithLogits", cross_entropy},
                     {"SigmoidCrossEntropyGrad", cross_entropy_grad},
                     {"Dropout", dropout}});
}

}  // namespace sidereal::reference::internal
