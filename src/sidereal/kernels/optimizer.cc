#include "sidereal/kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/constant.h"
#include "sidereal/kernels/internal/rule_list.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

// Rows ahead of the work whose memory is asked for, into the second level cache, to be read: that
// is 1.7 times faster here than into the first level or to be written, because more misses may be
// outstanding (measured: 40 -> 67 million rows of 128 bytes per second).
constexpr int64_t kAheadRows = 32;
/// Of a row, no more is asked for.
constexpr int64_t kAheadBytes = 768;
/// Sums of squares are kept in so many parts, so that they can be added up as vectors.
constexpr int64_t kSums = 8;

/// A loop over a row, which is to become vectors: GCC would unroll one of a known width before it
/// looks for them.
#if defined(__clang__)
#define SR_ROW_LOOP SR_INDEPENDENT
#else
#define SR_ROW_LOOP _Pragma("GCC unroll 1") SR_INDEPENDENT
#endif

/// Calls body(formula) with the formula of the step.
template <class T, class Body>
void with_formula(const RuleStep& step, bool is_rows, Body body) {
  const auto checked = [&](auto formula) {
    SR_CHECK(decltype(formula)::kSlots + decltype(formula)::kRowSlots == step.rule->num_slots(),
             "the formula of {} has other slots than its row", step.rule->rule().name);
    body(formula);
  };
  internal::Rules::visit(&step.rule->rule(), [&]<class Row>() {
    if constexpr (requires { Row::template with<T>(step, is_rows, checked); }) {
      Row::template with<T>(step, is_rows, checked);
    } else {
      checked(typename Row::template Formula<T>(step));
    }
  });
}

/// What every rule does to a weight and its gradient before its formula.
template <class T>
struct Decay {
  template <class F>
  static Decay of(const RuleStep& step, const F& /*formula*/) {
    const UpdateRule& rule = *step.rule;
    Decay out;
    if (!F::kDecays) out.lost = static_cast<T>(step.learning_rate * rule["weight_decay"]);
    out.penalty = static_cast<T>(rule["l2_penalty"]);
    return out;
  }
  [[nodiscard]] T gradient(T g, T w) const { return internal::mul_add(penalty, w, g); }
  [[nodiscard]] T weight(T w) const { return internal::mul_add(-lost, w, w); }

  T lost = 0;  ///< Of a weight. Rounded, what is kept would be wrong by more, at each step again.
  T penalty = 0;
};

/// Arrays of weights that are updated together. w_out may be w_in.
template <class T>
struct Block {
  const T* w_in;
  T* w_out;
  const T* grad;
  std::array<T*, kRuleSlotsMax> slots;
};

// Flattened: a formula that is called does not become vectors, and how much GCC puts into one
// function depends on all that is in this file.
template <class F, class T, size_t... kSlot>
[[gnu::flatten]] inline void update_elements(const F& formula, const Decay<T>& decay,
                                             const Block<T>& a, int64_t n,
                                             std::index_sequence<kSlot...> /*slots*/) {
  SR_ROW_LOOP
  for (int64_t j = 0; j < n; ++j) {
    const T before = a.w_in[j];
    const T g = decay.gradient(a.grad[j], before);
    T w = decay.weight(before);
    [[maybe_unused]] std::array<T, kRuleSlotsMax> s = {a.slots[kSlot][j]...};
    formula(g, w, s[kSlot]...);
    a.w_out[j] = w;
    ((a.slots[kSlot][j] = s[kSlot]), ...);
  }
}

/// The squares of element j are added to sum j % kSums.
template <class F, class T, size_t... kSlot>
[[gnu::flatten]] RuleNorms measure_elements(const F& formula, const Decay<T>& decay,
                                            const Block<T>& a, int64_t n,
                                            std::index_sequence<kSlot...> /*slots*/) {
  std::array<double, kSums> first = {};
  std::array<double, kSums> second = {};
  const auto add = [&](int64_t begin, int64_t count) {
    SR_ROW_LOOP
    for (int64_t k = 0; k < count; ++k) {
      const int64_t j = begin + k;
      const T w = a.w_in[j];
      const T g = decay.gradient(a.grad[j], w);
      const internal::Measured<T> found = formula.measure(g, w, a.slots[kSlot][j]...);
      first[k] += static_cast<double>(found.first) * static_cast<double>(found.first);
      second[k] += static_cast<double>(found.second) * static_cast<double>(found.second);
    }
  };
  int64_t begin = 0;
  for (; begin + kSums <= n; begin += kSums) add(begin, kSums);
  add(begin, n - begin);
  return {std::accumulate(first.begin(), first.end(), 0.0),
          std::accumulate(second.begin(), second.end(), 0.0)};
}

/// Updates a block that has its norms and slots of rows for itself: a row.
template <class F, class T>
inline void update_row(const F& formula, const Decay<T>& decay, const Block<T>& a, int64_t n) {
  constexpr auto kElements = std::make_index_sequence<F::kSlots>();
  RuleNorms norms;
  if constexpr (F::kNorms) norms = measure_elements(formula, decay, a, n, kElements);
  if constexpr (F::kRowSlots > 0) {
    static_assert(F::kRowSlots == 1);
    update_elements(formula.scaled(norms, n, *a.slots[F::kSlots]), decay, a, n, kElements);
  } else if constexpr (F::kNorms) {
    update_elements(formula.scaled(norms, n), decay, a, n, kElements);
  } else {
    update_elements(formula, decay, a, n, kElements);
  }
}

/// Asks for memory that will be read. Inlined: GCC takes a function that only does this for one
/// without effects, and drops its calls.
template <class T>
[[gnu::always_inline]] inline void look(const T* at, int64_t width) {
  const int64_t bytes = std::min(width * static_cast<int64_t>(sizeof(T)), kAheadBytes);
  const char* from = reinterpret_cast<const char*>(at);
  for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(from + b, 0, 2);
}

/// True when the slots of a row follow its weights.
template <class F, class T>
bool are_together(const RuleArrays<T>& table, int64_t width) {
  const T* end = table.weights.data + width;
  for (int k = 0; k < F::kSlots + F::kRowSlots; ++k) {
    if (table.slots[k].data != end || table.slots[k].stride != table.weights.stride) return false;
    end += k < F::kSlots ? width : 1;
  }
  return true;
}

// Not inlined, and by value: so its constants stay in registers.
template <int64_t kDim, bool kTogether, class F, class T>
[[gnu::noinline, gnu::flatten]] void update_rows(const F formula, const Decay<T> decay,
                                                 const RuleArrays<T> table,
                                                 std::span<const int64_t> rows,
                                                 const RowGradients<T> grads, int64_t dim) {
  constexpr int kSlots = F::kSlots + F::kRowSlots;
  const int64_t width = kDim > 0 ? kDim : dim;
  const auto n = static_cast<int64_t>(rows.size());
  const auto slot = [&](int k, int64_t row, T* w) {
    return kTogether ? w + width * (1 + k) : table.slots[k].data + row * table.slots[k].stride;
  };
  const auto look_ahead = [&](int64_t row) {
    T* w = table.weights.data + row * table.weights.stride;
    if (kTogether) {
      look(w, width * (1 + F::kSlots) + F::kRowSlots);
    } else {
      look(w, width);
      for (int k = 0; k < kSlots; ++k) look(slot(k, row, w), k < F::kSlots ? width : 1);
    }
  };
  const auto update = [&](int64_t i) {
    T* w = table.weights.data + rows[i] * table.weights.stride;
    Block<T> block = {w, w, grads.rows != nullptr ? grads.rows[i] : grads.data + i * width, {}};
    for (int k = 0; k < kSlots; ++k) block.slots[k] = slot(k, rows[i], w);
    update_row(formula, decay, block, width);
  };
  const int64_t warm = std::max<int64_t>(0, n - kAheadRows);
  for (int64_t i = 0; i < n - warm; ++i) look_ahead(rows[i]);
  int64_t i = 0;
  for (; i < warm; ++i) {
    look_ahead(rows[i + kAheadRows]);
    update(i);
  }
  for (; i < n; ++i) update(i);
}

template <int64_t kDim, class F, class T>
void update_rows_of(const F& formula, const Decay<T>& decay, const RuleArrays<T>& table,
                    std::span<const int64_t> rows, const RowGradients<T>& grads, int64_t dim) {
  if (are_together<F>(table, dim)) {
    update_rows<kDim, true>(formula, decay, table, rows, grads, dim);
  } else {
    update_rows<kDim, false>(formula, decay, table, rows, grads, dim);
  }
}

template <class T>
Block<T> block_of(const DenseUpdate<T>& u) {
  return {u.w_in, u.w_out, u.grad, u.slots};
}

}  // namespace

template <class T>
RuleArrays<T> arrays_of_rows(const UpdateRule& rule, T* table, int64_t stride, int64_t dim) {
  SR_CHECK(stride >= rule.row_floats(dim), "rows of {} floats, {} apart", rule.row_floats(dim),
           stride);
  RuleArrays<T> out;
  out.weights = {table, stride};
  T* at = table + dim;
  for (int i = 0; i < rule.num_slots(); ++i) {
    out.slots[i] = {at, stride};
    at += rule.slot(i).width == SlotWidth::kRow ? 1 : dim;
  }
  return out;
}

template <class T>
void apply_rows(const RuleStep& step, const RuleArrays<T>& table, std::span<const int64_t> rows,
                const RowGradients<T>& grads, int64_t dim) {
  with_formula<T>(step, true, [&](const auto& f) {
    const auto decay = Decay<T>::of(step, f);
    if constexpr (std::remove_cvref_t<decltype(f)>::kUsual && std::is_same_v<T, float>) {
      internal::with_constant<1, 8, 16, 32, 64>(
          dim, [&](auto usual) { update_rows_of<usual()>(f, decay, table, rows, grads, dim); });
    } else {
      update_rows_of<0>(f, decay, table, rows, grads, dim);
    }
  });
}

template <class T>
RuleNorms measure_dense(const RuleStep& step, const DenseUpdate<T>& u) {
  RuleNorms norms;
  with_formula<T>(step, false, [&](const auto& f) {
    using F = std::remove_cvref_t<decltype(f)>;
    if constexpr (F::kNorms && F::kRowSlots == 0) {
      norms = measure_elements(f, Decay<T>::of(step, f), block_of(u), u.n,
                               std::make_index_sequence<F::kSlots>());
    }
  });
  return norms;
}

template <class T>
void apply_dense(const RuleStep& step, const DenseUpdate<T>& u, const RuleNorms& norms) {
  with_formula<T>(step, false, [&](const auto& f) {
    using F = std::remove_cvref_t<decltype(f)>;
    const auto decay = Decay<T>::of(step, f);
    if constexpr (F::kRowSlots > 0) {
      for (int64_t begin = 0; begin < u.n; begin += u.row) {
        update_row(f, decay, block_of(u.part(*step.rule, begin, u.row)), u.row);
      }
    } else if constexpr (F::kNorms) {
      update_elements(f.scaled(norms, u.n), decay, block_of(u), u.n,
                      std::make_index_sequence<F::kSlots>());
    } else {
      update_elements(f, decay, block_of(u), u.n, std::make_index_sequence<F::kSlots>());
    }
  });
}

template <class T>
void apply_dense(const RuleStep& step, const DenseUpdate<T>& u) {
  RuleNorms norms;
  if (step.rule->rule().uses_norms) {
    for (int64_t begin = 0; begin < u.n; begin += kNormPart) {
      norms += measure_dense(step, u.part(*step.rule, begin, std::min(kNormPart, u.n - begin)));
    }
  }
  apply_dense(step, u, norms);
}

#define SR_OPTIMIZERS_OF(T)                                                                 \
  template RuleArrays<T> arrays_of_rows(const UpdateRule&, T*, int64_t, int64_t);           \
  template void apply_rows(const RuleStep&, const RuleArrays<T>&, std::span<const int64_t>, \
                           const RowGradients<T>&, int64_t);                                \
  template RuleNorms measure_dense(const RuleStep&, const DenseUpdate<T>&);                 \
  template void apply_dense(const RuleStep&, const DenseUpdate<T>&, const RuleNorms&);      \
  template void apply_dense(const RuleStep&, const DenseUpdate<T>&);
SR_OPTIMIZERS_OF(float)
SR_OPTIMIZERS_OF(double)
#undef SR_OPTIMIZERS_OF

}  // namespace sidereal::kernels
