#pragma once

#include <cmath>
#include <cstdint>

#include "sidereal/kernels/internal/rules.h"

/// The rows and formulas of Adam and its relatives, and of the rules with trust ratios.
namespace sidereal::kernels::internal {

inline constexpr RuleParameter kBeta1 = {"beta_1", 0.9, Range::kBelowOne, "What m keeps."};
inline constexpr RuleParameter kBeta2 = {"beta_2", 0.999, Range::kBelowOne, "What v keeps."};
inline constexpr RuleParameter kEpsilon = {"epsilon", 1e-8, Range::kAtLeastZero,
                                           "Added to what is divided by."};
inline constexpr RuleParameter kAmsgrad = {"amsgrad", 0, Range::kFlag,
                                           "AMSGrad (Reddi et al., 2018): divides by the root of "
                                           "the largest v so far."};

/// First and second moment of the gradient, which the formulas below share.
template <class T>
struct Moments {
  /// `root`: what corrects the root of the second moment.
  explicit Moments(const RuleStep& s, double root = 1)
      : first(s, "beta_1"),
        second(s, "beta_2"),
        epsilon(of<T>(s, "epsilon")),
        root(static_cast<T>(root)) {}
  void add(T g, T& m, T& v) const {
    m = first(m, g);
    v = second(v, g * g);
  }
  /// What is divided by.
  [[nodiscard]] T below(T v) const { return std::sqrt(v) * root + epsilon; }
  Mean<T> first, second;
  T epsilon, root;
};

/// 1 / sqrt(1 - beta_2^t).
inline double root_of(const RuleStep& s) { return 1.0 / std::sqrt(correction(s, "beta_2")); }

struct Adam {
  static constexpr Rule kRow = {
      .name = "adam",
      .class_name = "Adam",
      .doc = "Kingma and Ba, 2015: Adam, as torch.optim.Adam",
      .formula =
          "m = beta_1 * m + (1 - beta_1) * g; v = beta_2 * v + (1 - beta_2) * g^2; "
          "w -= learning_rate / (1 - beta_1^t) * m / (sqrt(v / (1 - beta_2^t)) + epsilon); "
          "with amsgrad the largest v so far in place of v",
      .parameters = parameters(0.001, {kBeta1, kBeta2, kEpsilon, kAmsgrad}),
      .slots = {{"m"}, {"v"}, {.name = "vhat", .when = "amsgrad"}},
      .uses_step = true};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 2;
    static constexpr bool kUsual = true;
    explicit Formula(const RuleStep& s)
        : Formula(s, s.learning_rate / correction(s, "beta_1"), root_of(s)) {}
    Formula(const RuleStep& s, double rate, double root)
        : moments(s, root), rate(static_cast<T>(rate)) {}
    void operator()(T g, T& w, T& m, T& v) const {
      moments.add(g, m, v);
      step(w, m, v);
    }
    void step(T& w, T m, T v) const { w -= rate * m / moments.below(v); }
    Moments<T> moments;
    T rate;
  };
  template <class T>
  struct Largest : Formula<T> {
    static constexpr int kSlots = 3;
    static constexpr bool kUsual = false;
    using Formula<T>::Formula;
    void operator()(T g, T& w, T& m, T& v, T& largest) const {
      this->moments.add(g, m, v);
      largest = largest < v ? v : largest;
      this->step(w, m, largest);
    }
  };
  template <class T, class Body>
  static void with(const RuleStep& s, bool /*is_rows*/, Body body) {
    if (is_set(s, "amsgrad")) return body(Largest<T>(s));
    return body(Formula<T>(s));
  }
};

struct AdamW : Adam {
  static constexpr Rule kRow = {
      .name = "adamw",
      .class_name = "AdamW",
      .doc =
          "Loshchilov and Hutter, 2019: Decoupled Weight Decay Regularization, as "
          "torch.optim.AdamW",
      .formula = "`adam` with weight_decay",
      .parameters = parameters(0.001, {kBeta1, kBeta2, kEpsilon, kAmsgrad}, 0.004),
      .slots = Adam::kRow.slots,
      .uses_step = true};
};

struct AdamAsync {
  static constexpr Rule kRow = {
      .name = "adam_async",
      .class_name = "AdamAsync",
      .doc =
          "Adam for asynchronous training, as DeepRec's AdamAsyncOptimizer: the powers of the "
          "betas are those of the variable's own steps",
      .formula =
          "m and v as in `adam`; w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * "
          "m / (sqrt(v) + epsilon); rows with apply_sparse_rmsprop: v as in `adam`, "
          "m = beta_1 * m + learning_rate * g / sqrt(v + epsilon), w -= m",
      .parameters = parameters(
          0.001, {kBeta1,
                  kBeta2,
                  kEpsilon,
                  {"apply_sparse_rmsprop", 0, Range::kFlag, "Updates rows as RMSprop does."}}),
      .slots = {{"m"}, {"v"}},
      .uses_step = true};
  template <class T>
  struct RmsPropOfRows : FormulaOf<T> {
    static constexpr int kSlots = 2;
    explicit RmsPropOfRows(const RuleStep& s) : moments(s), rate(rate_of<T>(s)) {}
    void operator()(T g, T& w, T& m, T& v) const {
      v = moments.second(v, g * g);
      m = moments.first.keep * m + rate * g / std::sqrt(v + moments.epsilon);
      w -= m;
    }
    Moments<T> moments;
    T rate;
  };
  template <class T, class Body>
  static void with(const RuleStep& s, bool is_rows, Body body) {
    if (is_rows && is_set(s, "apply_sparse_rmsprop")) return body(RmsPropOfRows<T>(s));
    const double rate =
        s.learning_rate * std::sqrt(correction(s, "beta_2")) / correction(s, "beta_1");
    return body(Adam::Formula<T>(s, rate, 1));
  }
};

struct Adamax {
  static constexpr Rule kRow = {
      .name = "adamax",
      .class_name = "Adamax",
      .doc = "Kingma and Ba, 2015: Adam, section 7, as torch.optim.Adamax",
      .formula =
          "m = beta_1 * m + (1 - beta_1) * g; v = max(beta_2 * v, |g| + epsilon); "
          "w -= learning_rate / (1 - beta_1^t) * m / v",
      .parameters =
          parameters(0.001, {kBeta1, kBeta2, {"epsilon", 1e-8, Range::kAboveZero, "Least v."}}),
      .slots = {{"m"}, {"v"}},
      .uses_step = true};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 2;
    explicit Formula(const RuleStep& s)
        : moments(s), rate(static_cast<T>(s.learning_rate / correction(s, "beta_1"))) {}
    void operator()(T g, T& w, T& m, T& v) const {
      m = moments.first(m, g);
      const T now = std::fabs(g) + moments.epsilon;
      const T before = moments.second.keep * v;
      v = before < now ? now : before;
      w -= rate * m / v;
    }
    Moments<T> moments;
    T rate;
  };
};

struct Nadam {
  static constexpr Rule kRow = {
      .name = "nadam",
      .class_name = "Nadam",
      .doc =
          "Dozat, 2016: Incorporating Nesterov Momentum into Adam, as torch.optim.NAdam; with "
          "momentum_decay 1 as tf.keras.optimizers.Nadam",
      .formula =
          "m and v as in `adam`; u_i = beta_1 * (1 - 0.96^(i * momentum_decay) / 2), U_i = "
          "u_1 * ... * u_i; w -= learning_rate * (u_t+1 * m / (1 - U_t+1) + (1 - u_t) * g / "
          "(1 - U_t)) / (sqrt(v / (1 - beta_2^t)) + epsilon)",
      .parameters = parameters(0.001, {kBeta1,
                                       kBeta2,
                                       kEpsilon,
                                       {"momentum_decay", 0.004, Range::kAtLeastZero,
                                        "How soon the momentum comes to be beta_1."}}),
      .slots = {{"m"}, {"v"}},
      .uses_step = true};
  /// The momenta of step t, and their products, all of which follow from t.
  struct Schedule {
    explicit Schedule(const RuleStep& s)
        : beta(of<double>(s, "beta_1")),
          log_ratio(of<double>(s, "momentum_decay") * std::log(0.96)) {}
    [[nodiscard]] double momentum(double i) const {
      return beta * (1.0 - 0.5 * std::exp(log_ratio * i));
    }
    /// The product of the momenta 1 to t: log(1 - x) is the sum of -x^k / k, and that of powers of
    /// one ratio over i is known.
    [[nodiscard]] double product(double t) const {
      double sum = t * std::log(beta);
      for (int k = 1; k <= 60; ++k) {
        const double powers = log_ratio == 0
                                  ? t
                                  : std::exp(k * log_ratio) * std::expm1(k * log_ratio * t) /
                                        std::expm1(k * log_ratio);
        sum -= std::ldexp(powers, -k) / k;
      }
      return std::exp(sum);
    }
    double beta;
    double log_ratio;
  };
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 2;
    static constexpr bool kUsual = true;
    explicit Formula(const RuleStep& s) : moments(s, root_of(s)) {
      const Schedule schedule(s);
      const double now = schedule.momentum(s.step);
      const double next = schedule.momentum(s.step + 1);
      const double product = schedule.product(s.step);
      of_gradient = static_cast<T>(s.learning_rate * (1.0 - now) / (1.0 - product));
      of_moment = static_cast<T>(s.learning_rate * next / (1.0 - product * next));
    }
    void operator()(T g, T& w, T& m, T& v) const {
      moments.add(g, m, v);
      w -= (of_gradient * g + of_moment * m) / moments.below(v);
    }
    Moments<T> moments;
    T of_gradient, of_moment;
  };
};

// --- Trust ratios.

inline constexpr RuleParameter kTrustEpsilon = {"epsilon", 1e-6, Range::kAtLeastZero,
                                                "Added to what is divided by."};

struct Lamb {
  static constexpr Rule kRow = {
      .name = "lamb",
      .class_name = "Lamb",
      .doc =
          "You et al., 2020: Large Batch Optimization for Deep Learning; of rows, with norms of "
          "each row, as FBGEMM's LAMB",
      .formula =
          "m and v as in `adam`; r = (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + "
          "epsilon) + weight_decay * w; w -= learning_rate * |w| / |r| * r, with ratio 1 "
          "where a norm is 0",
      .parameters = parameters(0.001, {kBeta1, kBeta2, kTrustEpsilon}),
      .slots = {{"m"}, {"v"}},
      .uses_step = true,
      .uses_norms = true};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 2;
    static constexpr bool kNorms = true;
    static constexpr bool kDecays = true;
    explicit Formula(const RuleStep& s)
        : moments(s, root_of(s)),
          rate(s.learning_rate),
          decay(of<T>(s, "weight_decay")),
          scale(static_cast<T>(1.0 / correction(s, "beta_1"))) {}
    [[nodiscard]] T direction(T w, T m, T v) const {
      return scale * m / moments.below(v) + decay * w;
    }
    Measured<T> measure(T g, T w, T m, T v) const {
      moments.add(g, m, v);
      return {w, direction(w, m, v)};
    }
    auto scaled(const RuleNorms& norms, int64_t /*n*/) const {
      const bool has_ratio = norms.first > 0 && norms.second > 0;
      const double ratio = has_ratio ? std::sqrt(norms.first) / std::sqrt(norms.second) : 1.0;
      return [self = *this, step = static_cast<T>(rate * ratio)](T g, T& w, T& m, T& v) {
        self.moments.add(g, m, v);
        w -= step * self.direction(w, m, v);
      };
    }
    Moments<T> moments;
    double rate;
    T decay, scale;
  };
};

struct Lars {
  static constexpr Rule kRow = {
      .name = "lars",
      .class_name = "Lars",
      .doc =
          "You et al., 2017: Large Batch Training of Convolutional Networks; of rows, with norms "
          "of each row",
      .formula =
          "r = trust_coefficient * |w| / (|g| + weight_decay * |w| + epsilon), 1 where a "
          "norm is 0; m = momentum * m + learning_rate * r * (g + weight_decay * w); w -= m",
      .parameters = parameters(
          0.01, {{"momentum", 0.9, Range::kBelowOne, "What m keeps."},
                 {"trust_coefficient", 0.001, Range::kAboveZero, "How far a ratio is trusted."},
                 {"epsilon", 0, Range::kAtLeastZero, "Added to what is divided by."}}),
      .slots = {{"momentum"}},
      .uses_norms = true};
  template <class T>
  struct Formula : FormulaOf<T> {
    static constexpr int kSlots = 1;
    static constexpr bool kNorms = true;
    static constexpr bool kDecays = true;
    explicit Formula(const RuleStep& s)
        : rate(s.learning_rate),
          decay(of<double>(s, "weight_decay")),
          trust(of<double>(s, "trust_coefficient")),
          epsilon(of<double>(s, "epsilon")),
          momentum(of<T>(s, "momentum")) {}
    Measured<T> measure(T g, T w, T /*m*/) const { return {w, g}; }
    auto scaled(const RuleNorms& norms, int64_t /*n*/) const {
      const double weights = std::sqrt(norms.first);
      const double grads = std::sqrt(norms.second);
      const double ratio =
          weights > 0 && grads > 0 ? trust * weights / (grads + decay * weights + epsilon) : 1.0;
      return [step = static_cast<T>(rate * ratio), lost = static_cast<T>(decay), kept = momentum](
                 T g, T& w, T& m) {
        m = kept * m + step * (g + lost * w);
        w -= m;
      };
    }
    double rate, decay, trust, epsilon;
    T momentum;
  };
};

}  // namespace sidereal::kernels::internal
