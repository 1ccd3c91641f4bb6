#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "sidereal/kernels/internal/vec_math.h"
#include "sidereal/kernels/optimizer.h"

/// The rows of the table of optimizers, each with its formula. A new one is a struct with
///
///   kRow                        what people see of it;
///   Formula<T>                  made of a RuleStep; or, where there are several:
///   with<T>(step, is_rows, body)   calls body(formula) with what the parameters ask for
///
/// and its name in Rules (rule_list.h). A formula is a small value, so that a loop keeps its
/// constants in registers:
///
///   kSlots, kRowSlots           how many slots of elements and of rows it changes;
///   operator()(g, w, slots...)  changes one weight and its slots of elements;
///   scaled(norms, n, slots...)  where it has slots of rows or norms: the formula for a block of n
///                               weights, which has these slots of rows. A block is a row, or, for
///                               norms of a dense update, the variable;
///   measure(g, w, slots...)     where it has norms: the two numbers whose squares are summed. It
///                               changes nothing.
///
/// kDecays says that it applies weight_decay itself, kUsual that it has loops of its own for usual
/// widths of rows.
namespace sidereal::kernels::internal {

using Parameters = ConstList<RuleParameter, kRuleParametersMax>;

/// The parameters that all rules have, and those of one.
constexpr Parameters parameters(double learning_rate, std::initializer_list<RuleParameter> own = {},
                                double weight_decay = 0, Range rate = Range::kAtLeastZero) {
  Parameters all = {
      {"learning_rate", learning_rate, rate, "Size of a step."},
      {"weight_decay", weight_decay, Range::kAtLeastZero,
       "Decoupled decay: the weight loses learning_rate * weight_decay of itself."},
      {"l2_penalty", 0, Range::kAtLeastZero, "l2_penalty * w is added to the gradient."}};
  for (const RuleParameter& parameter : own) all.add(parameter);
  return all;
}

template <class T>
T of(const RuleStep& s, std::string_view parameter) {
  return static_cast<T>((*s.rule)[parameter]);
}

template <class T>
T rate_of(const RuleStep& s) {
  return static_cast<T>(s.learning_rate);
}

inline bool is_set(const RuleStep& s, std::string_view parameter) {
  return (*s.rule)[parameter] != 0;
}

/// 1 - parameter^t.
inline double correction(const RuleStep& s, std::string_view parameter) {
  return 1.0 - std::pow((*s.rule)[parameter], s.step);
}

/// A running mean, of which a parameter says how much is kept.
template <class T>
struct Mean {
  Mean(const RuleStep& s, std::string_view parameter)
      : keep(of<T>(s, parameter)), rest(static_cast<T>(1.0 - (*s.rule)[parameter])) {}
  /// The mean after `x`.
  [[nodiscard]] T operator()(T mean, T x) const { return mul_add(keep, mean, rest * x); }
  T keep, rest;
};

template <class T>
struct FormulaOf {
  static constexpr int kSlots = 0;
  static constexpr int kRowSlots = 0;
  static constexpr bool kNorms = false;
  static constexpr bool kDecays = false;
  static constexpr bool kUsual = false;
};

/// Two numbers that a rule measures.
template <class T>
struct Measured {
  T first;
  T second;
};

// --- Steps of their own size.

template <class T>
struct PlainStep : FormulaOf<T> {
  static constexpr bool kUsual = true;
  explicit PlainStep(const RuleStep& s) : rate(rate_of<T>(s)) {}
  void operator()(T g, T& w) const { w -= rate * g; }
  T rate;
};

template <class T, bool kNesterov>
struct MomentumStep : FormulaOf<T> {
  static constexpr int kSlots = 1;
  static constexpr bool kUsual = true;
  explicit MomentumStep(const RuleStep& s) : rate(rate_of<T>(s)), momentum(of<T>(s, "momentum")) {}
  void operator()(T g, T& w, T& m) const {
    m = momentum * m + g;
    w -= rate * (kNesterov ? g + momentum * m : m);
  }
  T rate;
  T momentum;
};

struct Momentum {
  static constexpr Rule kRow = {
      .name = "momentum",
      .class_name = "Momentum",
      .doc = "SGD with momentum, as TensorFlow's MomentumOptimizer and torch.optim.SGD",
      .formula =
          "m = momentum * m + g; w -= learning_rate * m, or with nesterov "
          "w -= learning_rate * (g + momentum * m)",
      .parameters = parameters(0.01, {{"momentum", 0.9, Range::kBelowOne, "What m keeps."},
                                      {"nesterov", 0, Range::kFlag, "Nesterov's form."}}),
      .slots = {{"momentum"}}};
  template <class T, class Body>
  static void with(const RuleStep& s, bool /*is_rows*/, Body body) {
    if (is_set(s, "nesterov")) return body(MomentumStep<T, true>(s));
    return body(MomentumStep<T, false>(s));
  }
};

struct Sgd {
  static constexpr Rule kRow = {
      .name = "sgd",
      .class_name = "SGD",
      .doc = "Gradient descent, as tf.keras.optimizers.SGD and torch.optim.SGD",
      .formula = "w -= learning_rate * g; with momentum as `momentum`",
      .parameters = parameters(0.01, {{"momentum", 0, Range::kBelowOne, "See `momentum`."},
                                      {"nesterov", 0, Range::kFlag, "Nesterov's form."}}),
      .slots = {{.name = "momentum", .when = "momentum"}}};
  template <class T, class Body>
  static void with(const RuleStep& s, bool is_rows, Body body) {
    if (!is_set(s, "momentum")) return body(PlainStep<T>(s));
    return Momentum::with<T>(s, is_rows, body);
  }
};

struct Lion {
  static constexpr Rule kRow = {
      .name = "lion",
      .class_name = "Lion",
      .doc = "Chen et al., 2023: Symbolic Discovery of Optimization Algorithms",
      .formula =
          "w -= learning_rate * sign(beta_1 * m + (1 - beta_1) * g); "
          "m = beta_2 * m + (1 - beta_2) * g",
      .parameters =
          parameters(0.001, {{"beta_1", 0.9, Range::kBelowOne, "Of what the sign is taken of."},
                             {"beta_2", 0.99, Range::kBelowOne, "What m keeps."}}),
      .slots = {{"m"}}};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 1;
    explicit Formula(const RuleStep& s)
        : rate(rate_of<T>(s)), of_sign(s, "beta_1"), of_slot(s, "beta_2") {}
    void operator()(T g, T& w, T& m) const {
      const T c = of_sign(m, g);
      const T up = c > T(0) ? T(1) : T(0);
      const T down = c < T(0) ? T(1) : T(0);
      w -= rate * (up - down);
      m = of_slot(m, g);
    }
    T rate;
    Mean<T> of_sign, of_slot;
  };
};

}  // namespace sidereal::kernels::internal
