#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "sidereal/kernels/optimizer_rules.h"

/// Updates of weights by the rules of optimizers, of float and double.
namespace sidereal::kernels {

/// One update by a rule. The rule must outlive it.
struct RuleStep {
  const UpdateRule* rule = nullptr;
  double step = 1;           ///< Its number; 1 is the first.
  double learning_rate = 0;  ///< In place of that of the rule.
};

/// Rows of an array: row r begins at data + r * stride. The slots of a table may lie in the rows of
/// its weights or be arrays of their own: only base and stride differ.
template <class T>
struct RowArray {
  T* data = nullptr;
  int64_t stride = 0;
};

/// The weights of a table and its slots, as many as the rule has.
template <class T>
struct RuleArrays {
  RowArray<T> weights;
  std::array<RowArray<T>, kRuleSlotsMax> slots = {};
};

/// The arrays of a table whose rows are [weights(dim) | slot(dim) | ... | slots of rows(1) ...],
/// `stride` apart.
template <class T>
RuleArrays<T> arrays_of_rows(const UpdateRule& rule, T* table, int64_t stride, int64_t dim);

/// The gradients of some rows: row i begins at data + i * width, or where `rows` says.
template <class T>
struct RowGradients {
  const T* data = nullptr;
  const T* const* rows = nullptr;

  /// Those from row `begin` on, of rows of `width`.
  [[nodiscard]] RowGradients from(int64_t begin, int64_t width) const {
    if (rows != nullptr) return {.rows = rows + begin};
    return {.data = data + begin * width};
  }
};

/// Updates `rows` of a table by gradients of `dim` numbers each. The rows must be inside of the
/// arrays and distinct.
template <class T>
void apply_rows(const RuleStep& step, const RuleArrays<T>& table, std::span<const int64_t> rows,
                const RowGradients<T>& grads, int64_t dim);

/// Arrays of a dense update: n weights are read from w_in and written to w_out (which may be
/// w_in); the slots are updated in place.
template <class T>
struct DenseUpdate {
  const T* w_in = nullptr;
  T* w_out = nullptr;
  std::array<T*, kRuleSlotsMax> slots = {};
  const T* grad = nullptr;
  int64_t n = 0;
  int64_t row = 1;  ///< Weights in a row: n is a multiple of it. For slots of rows.

  /// `count` weights from `begin` on, both of them whole rows.
  [[nodiscard]] DenseUpdate part(const UpdateRule& rule, int64_t begin, int64_t count) const {
    DenseUpdate out = *this;
    out.w_in += begin;
    out.w_out += begin;
    out.grad += begin;
    out.n = count;
    for (int i = 0; i < rule.num_slots(); ++i) {
      out.slots[i] += rule.slot(i).width == SlotWidth::kRow ? begin / row : begin;
    }
    return out;
  }
};

/// Sums of squares of what a rule with norms measures.
struct RuleNorms {
  RuleNorms& operator+=(const RuleNorms& more) {
    first += more.first;
    second += more.second;
    return *this;
  }
  double first = 0;
  double second = 0;
};

/// Weights of which norms are summed at once; the sums of such parts are added in order, so that
/// the result does not depend on threads.
inline constexpr int64_t kNormPart = 16384;

/// For rules that use norms, before apply_dense() and for each kNormPart of the weights; changes
/// nothing.
template <class T>
RuleNorms measure_dense(const RuleStep& step, const DenseUpdate<T>& update);

/// Applies a dense update. `norms` are those of the whole variable, for rules that use them.
template <class T>
void apply_dense(const RuleStep& step, const DenseUpdate<T>& update, const RuleNorms& norms);
/// The same with the norms of these weights.
template <class T>
void apply_dense(const RuleStep& step, const DenseUpdate<T>& update);

}  // namespace sidereal::kernels
