#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sidereal/tensor/half.h"

/// Rows of an array read, written and combined at row numbers: gather, scatter and segments. Row
/// numbers are inside the array; a negative one stands for no row.
namespace sidereal::kernels {

/// to[i] = row rows[i] of `from`, zeros for a negative one. A row is `row_bytes` bytes.
void take_rows(const std::byte* from, std::span<const int64_t> rows, int64_t row_bytes,
               std::byte* to);

/// The same of rows of `width` floats, rounded to bfloat16.
void take_rows(const float* from, std::span<const int64_t> rows, int64_t width,
               tensor::BFloat16* to);

/// What every joined row has at one place: `count` rows of `row_bytes` bytes, one after the other.
struct JoinedPart {
  const std::byte* from = nullptr;
  /// Rows of `from`, `count` of them for each joined row; nullptr: the rows of `from` in their
  /// order.
  const int64_t* rows = nullptr;
  /// Instead of both: where each row is.
  const float* const* places = nullptr;
  int64_t count = 1;
  int64_t row_bytes = 0;
  bool rounds = false;  ///< Rows of floats, written as bfloat16.
};

/// Writes the joined rows [begin, end) to `to`, where row `begin` goes: each is one part after the
/// other. Rows of all tables are fetched ahead.
void join_rows(std::span<const JoinedPart> parts, int64_t begin, int64_t end, std::byte* to);

/// Row rows[i] of `to` = from[i]; of several for one row the last stays.
void put_rows(const std::byte* from, std::span<const int64_t> rows, int64_t row_bytes,
              std::byte* to);

/// How combine_rows() joins a row to the one that is there. Extremes are NaN when either is.
enum class RowOp { kAdd, kSub, kMul, kMax, kMin };

/// Row rows[i] of `to` becomes itself combined with from[i], for i in order; rows of `width`
/// elements. T is any dtype of numbers but the 16-bit floats.
template <class T>
void combine_rows(RowOp op, const T* from, std::span<const int64_t> rows, int64_t width, T* to);

/// The number that changes nothing when combined: 0, 1, the lowest or the highest of T.
template <class T>
T neutral(RowOp op);

/// counts[r] = how often r is among `rows`.
void count_rows(std::span<const int64_t> rows, std::span<int64_t> counts);

/// The index of the first of `indices` outside [0, extent), or, when `skip_negative`, at or above
/// `extent`; -1 when there is none. I is int32_t or int64_t.
template <class I>
int64_t first_outside(std::span<const I> indices, int64_t extent, bool skip_negative);

}  // namespace sidereal::kernels
