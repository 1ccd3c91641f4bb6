#pragma once

#include <cmath>
#include <cstdint>
#include <tuple>

#include "sidereal/kernels/internal/rules.h"

/// The rows and formulas of rules that divide by sums or means of squares.
namespace sidereal::kernels::internal {

inline constexpr RuleParameter kInitialAccumulator = {
    "initial_accumulator_value", 0.1, Range::kAtLeastZero, "Where the accumulator starts."};
inline constexpr RuleParameter kSmallEpsilon = {"epsilon", 1e-7, Range::kAtLeastZero,
                                                "Added to what is divided by."};

struct Adagrad {
  static constexpr Rule kRow = {
      .name = "adagrad",
      .class_name = "Adagrad",
      .doc =
          "Duchi et al., 2011: Adaptive Subgradient Methods; as torch.optim.Adagrad, and with "
          "epsilon 0 as TensorFlow's AdagradOptimizer",
      .formula = "a += g^2; w -= learning_rate * g / (sqrt(a) + epsilon)",
      .parameters = parameters(0.05, {kInitialAccumulator, kSmallEpsilon}),
      .slots = {{"accumulator", "initial_accumulator_value"}}};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 1;
    static constexpr bool kUsual = true;
    explicit Formula(const RuleStep& s) : rate(rate_of<T>(s)), epsilon(of<T>(s, "epsilon")) {}
    void operator()(T g, T& w, T& a) const {
      a += g * g;
      w -= rate * g / (std::sqrt(a) + epsilon);
    }
    T rate, epsilon;
  };
};

struct RowWiseAdagrad {
  static constexpr Rule kRow = {
      .name = "rowwise_adagrad",
      .class_name = "RowWiseAdagrad",
      .doc =
          "Adagrad with one accumulator for a row, as EXACT_ROWWISE_ADAGRAD of FBGEMM and "
          "TorchRec",
      .formula = "a += mean of g^2 over the row; w -= learning_rate * g / (sqrt(a) + epsilon)",
      .parameters = parameters(0.05, {kInitialAccumulator, kSmallEpsilon}),
      .slots = {{.name = "accumulator",
                 .starts_at = "initial_accumulator_value",
                 .width = SlotWidth::kRow}}};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kRowSlots = 1;
    static constexpr bool kNorms = true;  // Of its row, in dense updates too.
    explicit Formula(const RuleStep& s) : rate(rate_of<T>(s)), epsilon(of<T>(s, "epsilon")) {}
    Measured<T> measure(T g, T /*w*/) const { return {g, T(0)}; }
    auto scaled(const RuleNorms& norms, int64_t n, T& a) const {
      a += static_cast<T>(norms.first / static_cast<double>(n));
      const T scale = rate / (std::sqrt(a) + epsilon);
      return [scale](T g, T& w) { w -= scale * g; };
    }
    T rate, epsilon;
  };
};

struct AdagradDecay {
  static constexpr Rule kRow = {
      .name = "adagrad_decay",
      .class_name = "AdagradDecay",
      .doc = "Adagrad that forgets, as DeepRec's AdagradDecayOptimizer",
      .formula =
          "if floor((t - 1) / accumulator_decay_step) > p: a = max(accumulator_decay_rate * "
          "a, initial_accumulator_value), p += 1; a += g^2; "
          "w -= learning_rate * g / sqrt(a). A row has a p of its own",
      .parameters = parameters(
          0.05, {{"initial_accumulator_value", 0.1, Range::kAboveZero,
                  "Where the accumulator starts, and never falls below by decay."},
                 {"accumulator_decay_step", 100000, Range::kAtLeastOne, "Steps between decays."},
                 {"accumulator_decay_rate", 0.9, Range::kBelowOne, "What a decay leaves."}}),
      .slots = {{"accumulator", "initial_accumulator_value"},
                {.name = "accumulator_decay_power", .width = SlotWidth::kRow}},
      .uses_step = true};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 1;
    static constexpr int kRowSlots = 1;
    explicit Formula(const RuleStep& s)
        : rate(rate_of<T>(s)),
          due(static_cast<T>(std::floor((s.step - 1) / of<double>(s, "accumulator_decay_step")))),
          keep(of<T>(s, "accumulator_decay_rate")),
          base(of<T>(s, "initial_accumulator_value")) {}
    auto scaled(const RuleNorms& /*norms*/, int64_t /*n*/, T& power) const {
      const bool decays = due > power;
      if (decays) power += T(1);
      const T left = decays ? keep : T(1);
      const T least = decays ? base : T(0);
      return [left, least, this_rate = rate](T g, T& w, T& a) {
        const T kept = left * a;
        a = (kept < least ? least : kept) + g * g;
        w -= this_rate * g / std::sqrt(a);
      };
    }
    T rate, due, keep, base;
  };
};

struct Adadelta {
  static constexpr Rule kRow = {
      .name = "adadelta",
      .class_name = "Adadelta",
      .doc = "Zeiler, 2012: ADADELTA, as tf.keras.optimizers.Adadelta and torch.optim.Adadelta",
      .formula =
          "a = rho * a + (1 - rho) * g^2; u = sqrt(d + epsilon) / sqrt(a + epsilon) * g; "
          "d = rho * d + (1 - rho) * u^2; w -= learning_rate * u",
      .parameters = parameters(0.001, {{"rho", 0.95, Range::kBelowOne, "What a and d keep."},
                                       {"epsilon", 1e-7, Range::kAboveZero, "Below the roots."}}),
      .slots = {{"accum"}, {"accum_update"}}};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 2;
    static constexpr bool kUsual = true;
    explicit Formula(const RuleStep& s)
        : rate(rate_of<T>(s)), mean(s, "rho"), epsilon(of<T>(s, "epsilon")) {}
    void operator()(T g, T& w, T& a, T& d) const {
      a = mean(a, g * g);
      const T u = std::sqrt(d + epsilon) / std::sqrt(a + epsilon) * g;
      d = mean(d, u * u);
      w -= rate * u;
    }
    T rate;
    Mean<T> mean;
    T epsilon;
  };
};

struct RmsProp {
  static constexpr Rule kRow = {
      .name = "rmsprop",
      .class_name = "RMSprop",
      .doc =
          "Hinton, 2012, as torch.optim.RMSprop; with epsilon 0, epsilon_inside and "
          "initial_mean_square 1 as TensorFlow's RMSPropOptimizer",
      .formula =
          "a = rho * a + (1 - rho) * g^2; if centered: b = rho * b + (1 - rho) * g, "
          "v = a - b^2, else v = a; u = learning_rate * g / (sqrt(v + epsilon_inside) + "
          "epsilon); with momentum: m = momentum * m + u, w -= m, else w -= u",
      .parameters = parameters(
          0.001, {{"rho", 0.9, Range::kBelowOne, "What the means keep."},
                  {"momentum", 0, Range::kBelowOne, "Momentum of the steps."},
                  kSmallEpsilon,
                  {"centered", 0, Range::kFlag, "Divides by the variance of the gradient."},
                  {"epsilon_inside", 0, Range::kAtLeastZero, "Below the root."},
                  {"initial_mean_square", 0, Range::kAtLeastZero, "Where a starts."}}),
      .slots = {{"rms", "initial_mean_square"},
                {.name = "mg", .when = "centered"},
                {.name = "momentum", .when = "momentum"}}};
  template <class T, bool kCentered, bool kMomentum>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 1 + (kCentered ? 1 : 0) + (kMomentum ? 1 : 0);
    explicit Formula(const RuleStep& s)
        : rate(rate_of<T>(s)),
          mean(s, "rho"),
          momentum(of<T>(s, "momentum")),
          epsilon(of<T>(s, "epsilon")),
          inside(of<T>(s, "epsilon_inside")) {}
    template <class... Slots>
    void operator()(T g, T& w, T& a, Slots&... more) const {
      [[maybe_unused]] const auto others = std::tie(more...);
      a = mean(a, g * g);
      T v = a;
      if constexpr (kCentered) {
        T& b = std::get<0>(others);
        b = mean(b, g);
        v -= b * b;
        v = v < T(0) ? T(0) : v;
      }
      T u = rate * g / (std::sqrt(v + inside) + epsilon);
      if constexpr (kMomentum) {
        T& m = std::get < kCentered ? 1 : 0 > (others);
        m = momentum * m + u;
        u = m;
      }
      w -= u;
    }
    T rate;
    Mean<T> mean;
    T momentum, epsilon, inside;
  };
  template <class T, class Body>
  static void with(const RuleStep& s, bool /*is_rows*/, Body body) {
    const bool has_momentum = is_set(s, "momentum");
    if (is_set(s, "centered")) {
      if (has_momentum) return body(Formula<T, true, true>(s));
      return body(Formula<T, true, false>(s));
    }
    if (has_momentum) return body(Formula<T, false, true>(s));
    return body(Formula<T, false, false>(s));
  }
};

/// TensorFlow's ApplyFtrlV2. kRoot: the power is -1/2, so n^-power is a square root and the loop
/// vectorises.
struct Ftrl {
  static constexpr Rule kRow = {
      .name = "ftrl",
      .class_name = "Ftrl",
      .doc = "McMahan et al., 2013: Ad Click Prediction, as tf.keras.optimizers.Ftrl",
      .formula =
          "n' = n + g^2; z += g + 2 * l2_shrinkage * w - (n'^p - n^p) / learning_rate * w "
          "with p = -learning_rate_power; w = 0 if |z| <= l1, else (sign(z) * l1 - z) / "
          "((n'^p + beta) / learning_rate + 2 * l2); l1, l2 and l2_shrinkage are the "
          "strengths of regularization",
      .parameters = parameters(
          0.05,
          {{"learning_rate_power", -0.5, Range::kAtMostZero, "Power of the accumulator."},
           kInitialAccumulator,
           {"l1_regularization_strength", 0, Range::kAtLeastZero, "L1 of the closed form."},
           {"l2_regularization_strength", 0, Range::kAtLeastZero, "L2 of the closed form."},
           {"l2_shrinkage_regularization_strength", 0, Range::kAtLeastZero,
            "L2 that is added to the gradient of z alone."},
           {"beta", 0, Range::kAtLeastZero, "Added to the root."}},
          0, Range::kAboveZero),
      .slots = {{"accum", "initial_accumulator_value"}, {"linear"}}};
  template <class T, bool kRoot>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 2;
    static constexpr bool kUsual = true;
    explicit Formula(const RuleStep& s)
        : inverse_rate(static_cast<T>(1.0 / s.learning_rate)),
          l1(of<T>(s, "l1_regularization_strength")),
          two_l2(static_cast<T>(2.0 * of<double>(s, "l2_regularization_strength") +
                                of<double>(s, "beta") / s.learning_rate)),
          two_shrinkage(T(2) * of<T>(s, "l2_shrinkage_regularization_strength")),
          power(-of<T>(s, "learning_rate_power")) {}
    [[nodiscard]] T raise(T n) const {
      if constexpr (kRoot) return std::sqrt(n);
      return std::pow(n, power);
    }
    void operator()(T g, T& w, T& n, T& z) const {
      const T grown = n + g * g;
      const T raised = raise(grown);
      z += g + two_shrinkage * w - (raised - raise(n)) * inverse_rate * w;
      n = grown;
      const T updated = (std::copysign(l1, z) - z) / (raised * inverse_rate + two_l2);
      w = std::fabs(z) > l1 ? updated : T(0);
    }
    T inverse_rate, l1, two_l2, two_shrinkage, power;
  };
  template <class T, class Body>
  static void with(const RuleStep& s, bool /*is_rows*/, Body body) {
    if ((*s.rule)["learning_rate_power"] == -0.5) return body(Formula<T, true>(s));
    return body(Formula<T, false>(s));
  }
};

}  // namespace sidereal::kernels::internal
