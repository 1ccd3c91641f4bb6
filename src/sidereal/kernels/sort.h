#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Order along rows, and running sums. T is any dtype of numbers; a NaN is greater than all others.
namespace sidereal::kernels {

/// The `k` greatest of each of `rows` rows of `n` elements, greatest first, the lower index first
/// among equals, and their indices. k <= n.
template <class T>
void top_k(const T* x, int64_t rows, int64_t n, int64_t k, T* values, int32_t* indices,
           std::vector<int32_t>* scratch);

/// Each row in order (greatest first when `descending`), equal elements in the order they had, and
/// the indices of its elements.
template <class T>
void sort_rows(const T* x, int64_t rows, int64_t n, bool descending, T* values, int32_t* indices,
               std::vector<uint64_t>* scratch);

/// For each of `m` values of a row its place in the sorted `n` elements of the row: before equal
/// ones, or behind them when `right`.
template <class T, class I>
void search_sorted(const T* sorted, int64_t n, const T* values, int64_t m, int64_t rows, bool right,
                   I* out);

/// How cumulative() goes on.
struct CumulativeOrder {
  bool product = false;    ///< Products, not sums.
  bool exclusive = false;  ///< Without the element itself.
  bool reverse = false;    ///< From the last to the first.
};

/// Running sums or products along the middle of [outer, n, inner].
template <class T>
void cumulative(const T* x, int64_t outer, int64_t n, int64_t inner, CumulativeOrder order, T* out);

}  // namespace sidereal::kernels
