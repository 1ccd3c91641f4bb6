#include "sidereal/kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/constant.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

// Rows ahead of the work whose memory is asked for, into the second level cache, to be read: that
// is 1.7 times faster here than into the first level or to be written, because more misses may be
// outstanding (measured: 40 -> 67 million rows of 128 bytes per second).
constexpr int64_t kAheadRows = 32;

// Each rule changes one weight and its slots; kSlots says which slots it uses. They are small value
// types, so that a loop keeps their constants in registers.
struct Sgd {
  static constexpr int kSlots = 0;
  explicit Sgd(const RuleStep& r) : lr(r.learning_rate) {}
  void operator()(float g, float& w, float&, float&) const { w -= lr * g; }
  float lr;
};

template <bool kNesterov>
struct Momentum {
  static constexpr int kSlots = 1;
  explicit Momentum(const RuleStep& r) : lr(r.learning_rate), momentum(r.momentum) {}
  void operator()(float g, float& w, float& m, float&) const {
    m = momentum * m + g;
    w -= lr * (kNesterov ? g + momentum * m : m);
  }
  float lr;
  float momentum;
};

struct Adagrad {
  static constexpr int kSlots = 1;
  explicit Adagrad(const RuleStep& r) : lr(r.learning_rate), epsilon(r.epsilon) {}
  void operator()(float g, float& w, float& a, float&) const {
    a += g * g;
    w -= lr * g / (std::sqrt(a) + epsilon);
  }
  float lr;
  float epsilon;
};

struct Adam {
  static constexpr int kSlots = 2;
  explicit Adam(const RuleStep& r)
      : lr(r.learning_rate * r.correction1),
        correction2(r.correction2),
        beta1(r.beta1),
        beta2(r.beta2),
        epsilon(r.epsilon) {}
  void operator()(float g, float& w, float& m, float& v) const {
    m = beta1 * m + (1.0F - beta1) * g;
    v = beta2 * v + (1.0F - beta2) * g * g;
    w -= lr * m / (std::sqrt(v) * correction2 + epsilon);
  }
  float lr;
  float correction2;
  float beta1;
  float beta2;
  float epsilon;
};

// kRoot: the power is -1/2, so n^-power is a square root and the loop vectorises.
template <bool kRoot>
struct Ftrl {
  static constexpr int kSlots = 2;
  explicit Ftrl(const RuleStep& r)
      : inverse_lr(1.0F / r.learning_rate), l1(r.l1), two_l2(2.0F * r.l2), power(-r.lr_power) {}
  [[nodiscard]] float raise(float n) const {
    if constexpr (kRoot) return std::sqrt(n);
    return std::pow(n, power);
  }
  void operator()(float g, float& w, float& n, float& z) const {
    const float grown = n + g * g;
    const float raised = raise(grown);
    z += g - (raised - raise(n)) * inverse_lr * w;
    n = grown;
    const float updated = (std::copysign(l1, z) - z) / (raised * inverse_lr + two_l2);
    w = std::fabs(z) > l1 ? updated : 0.0F;
  }
  float inverse_lr;
  float l1;
  float two_l2;
  float power;
};

/// Calls body(rule) with the functor of the step.
template <class Body>
void with_rule(const RuleStep& step, Body body) {
  switch (step.kind) {
    case RuleKind::kSgd:
      return body(Sgd(step));
    case RuleKind::kMomentum:
      return step.nesterov ? body(Momentum<true>(step)) : body(Momentum<false>(step));
    case RuleKind::kAdagrad:
      return body(Adagrad(step));
    case RuleKind::kAdam:
      return body(Adam(step));
    case RuleKind::kFtrl:
      return step.lr_power == -0.5F ? body(Ftrl<true>(step)) : body(Ftrl<false>(step));
  }
}

/// The arrays of n weights that are updated together. w_out may be w_in.
struct Arrays {
  const float* w_in;
  float* w_out;
  float* slot1;
  float* slot2;
  const float* grad;
};

template <class Rule>
inline void update(const Rule& rule, float decay, const Arrays& a, int64_t n) {
  SR_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    float w = a.w_in[j];
    float s1 = 0;
    float s2 = 0;
    if constexpr (Rule::kSlots > 0) s1 = a.slot1[j];
    if constexpr (Rule::kSlots > 1) s2 = a.slot2[j];
    rule(a.grad[j] + decay * w, w, s1, s2);
    a.w_out[j] = w;
    if constexpr (Rule::kSlots > 0) a.slot1[j] = s1;
    if constexpr (Rule::kSlots > 1) a.slot2[j] = s2;
  }
}

template <int64_t kDim, class Rule>
inline void update_row(const Rule& rule, float decay, float* row, const float* grad, int64_t dim) {
  const int64_t width = kDim > 0 ? kDim : dim;
  update(rule, decay, {row, row, row + width, row + 2 * width, grad}, width);
}

template <int64_t kDim, class Rule>
void update_rows(const Rule& rule, float decay, float* table, int64_t stride,
                 std::span<const int64_t> rows, const float* grads, int64_t dim) {
  const int64_t width = kDim > 0 ? kDim : dim;
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t row_bytes =
      std::min<int64_t>(width * (1 + Rule::kSlots) * static_cast<int64_t>(sizeof(float)), 768);
  const auto prefetch = [&](int64_t which) {
    const char* row = reinterpret_cast<const char*>(table + rows[which] * stride);
    for (int64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(row + b, 0, 2);
  };
  const int64_t warm = std::max<int64_t>(0, n - kAheadRows);
  for (int64_t i = 0; i < n - warm; ++i) prefetch(i);
  int64_t i = 0;
  for (; i < warm; ++i) {
    prefetch(i + kAheadRows);
    update_row<kDim>(rule, decay, table + rows[i] * stride, grads + i * width, width);
  }
  for (; i < n; ++i) {
    update_row<kDim>(rule, decay, table + rows[i] * stride, grads + i * width, width);
  }
}

template <int64_t kDim, class Rule>
void update_split_rows(const Rule& rule, float decay, const SplitTable& table,
                       std::span<const int64_t> rows, std::span<const float* const> grads,
                       int64_t dim) {
  const int64_t width = kDim > 0 ? kDim : dim;
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t row_bytes = std::min<int64_t>(width * static_cast<int64_t>(sizeof(float)), 512);
  const auto prefetch = [&](const RowArray& array, int64_t row) {
    const char* at = reinterpret_cast<const char*>(array.data + row * array.stride);
    for (int64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(at + b, 0, 2);
  };
  const auto prefetch_all = [&](int64_t row) {
    prefetch(table.w, row);
    if constexpr (Rule::kSlots > 0) prefetch(table.slot1, row);
    if constexpr (Rule::kSlots > 1) prefetch(table.slot2, row);
  };
  const int64_t warm = std::max<int64_t>(0, n - kAheadRows);
  for (int64_t i = 0; i < n - warm; ++i) prefetch_all(rows[i]);
  for (int64_t i = 0; i < n; ++i) {
    if (i < warm) prefetch_all(rows[i + kAheadRows]);
    const auto at = [row = rows[i]](const RowArray& array) {
      return array.data + row * array.stride;
    };
    float* w = at(table.w);
    float* slot1 = Rule::kSlots > 0 ? at(table.slot1) : nullptr;
    float* slot2 = Rule::kSlots > 1 ? at(table.slot2) : nullptr;
    update(rule, decay, {w, w, slot1, slot2, grads[i]}, width);
  }
}

}  // namespace

int num_slots(RuleKind kind) {
  switch (kind) {
    case RuleKind::kSgd:
      return 0;
    case RuleKind::kMomentum:
    case RuleKind::kAdagrad:
      return 1;
    case RuleKind::kAdam:
    case RuleKind::kFtrl:
      return 2;
  }
  return 0;
}

void apply_rows(const RuleStep& rule, float* table, int64_t stride, std::span<const int64_t> rows,
                const float* grads, int64_t dim) {
  SR_CHECK(stride >= dim * (1 + num_slots(rule.kind)), "rows of {} floats, {} apart",
           dim * (1 + num_slots(rule.kind)), stride);
  const float decay = rule.weight_decay;
  with_rule(rule, [&](auto f) {
    switch (dim) {
      case 1:
        return update_rows<1>(f, decay, table, stride, rows, grads, dim);
      case 8:
        return update_rows<8>(f, decay, table, stride, rows, grads, dim);
      case 16:
        return update_rows<16>(f, decay, table, stride, rows, grads, dim);
      case 32:
        return update_rows<32>(f, decay, table, stride, rows, grads, dim);
      case 64:
        return update_rows<64>(f, decay, table, stride, rows, grads, dim);
      default:
        return update_rows<0>(f, decay, table, stride, rows, grads, dim);
    }
  });
}

void apply_dense(const RuleStep& rule, const DenseUpdate& u) {
  with_rule(rule, [&](auto f) {
    update(f, rule.weight_decay, {u.w_in, u.w_out, u.slot1, u.slot2, u.grad}, u.n);
  });
}

void apply_split_rows(const RuleStep& rule, const SplitTable& table, std::span<const int64_t> rows,
                      std::span<const float* const> grads, int64_t dim) {
  with_rule(rule, [&](auto f) {
    internal::with_constant<1, 8, 16, 32, 64>(dim, [&](auto usual) {
      update_split_rows<usual()>(f, rule.weight_decay, table, rows, grads, dim);
    });
  });
}

}  // namespace sidereal::kernels
