#include "sidereal/kernels/rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/internal/nan.h"

namespace sidereal::kernels {
namespace {

constexpr size_t kAhead = 16;  // Rows between a prefetch and its use.

constexpr int64_t kLine = 64;    // Bytes of a cache line.
constexpr int64_t kFetched = 8;  // Lines of a row that are worth a prefetch; the processor goes on.

/// Brings a row of which each byte will be read into the cache.
void prefetch_row(const std::byte* row, int64_t row_bytes) {
  const int64_t bytes = std::min(row_bytes, kFetched * kLine);
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
}

/// Rows of one element: nothing to be won by looking ahead, much by a short loop.
template <class T>
void take_elements(const std::byte* from, std::span<const int64_t> rows, std::byte* to) {
  const T* in = reinterpret_cast<const T*>(from);
  T* out = reinterpret_cast<T*>(to);
  for (size_t i = 0; i < rows.size(); ++i) out[i] = rows[i] < 0 ? T(0) : in[rows[i]];
}

template <class T, class F>
void for_each_row(const T* from, std::span<const int64_t> rows, int64_t width, T* to, F f) {
  if (width == 1) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] >= 0) to[rows[i]] = f(to[rows[i]], from[i]);
    }
    return;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size() && rows[i + kAhead] >= 0) {
      __builtin_prefetch(to + rows[i + kAhead] * width, 1);
    }
    if (rows[i] < 0) continue;
    T* row = to + rows[i] * width;
    const T* in = from + static_cast<int64_t>(i) * width;
    for (int64_t j = 0; j < width; ++j) row[j] = f(row[j], in[j]);
  }
}

/// Integers wrap around.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  } else {
    return f(a, b);
  }
}

}  // namespace

void take_rows(const std::byte* from, std::span<const int64_t> rows, int64_t row_bytes,
               std::byte* to) {
  if (row_bytes == 0) return;
  if (row_bytes == 4) return take_elements<uint32_t>(from, rows, to);
  if (row_bytes == 8) return take_elements<uint64_t>(from, rows, to);
  for (size_t i = 0; i < rows.size(); ++i, to += row_bytes) {
    if (i + kAhead < rows.size() && rows[i + kAhead] >= 0) {
      prefetch_row(from + rows[i + kAhead] * row_bytes, row_bytes);
    }
    if (rows[i] < 0) {
      std::memset(to, 0, row_bytes);
    } else {
      std::memcpy(to, from + rows[i] * row_bytes, row_bytes);
    }
  }
}

void take_rows(const float* from, std::span<const int64_t> rows, int64_t width,
               tensor::BFloat16* to) {
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  const auto row_bytes = static_cast<int64_t>(sizeof(float)) * width;
  constexpr int64_t kBlock = 512;
  if (width == 0) return;
  if (width < 16) {
    // Rounded many at a time.
    float block[kBlock];
    const auto count = static_cast<size_t>(kBlock / width);
    for (size_t i = 0; i < rows.size(); i += count) {
      const std::span<const int64_t> some = rows.subspan(i, std::min(count, rows.size() - i));
      take_rows(bytes, some, row_bytes, reinterpret_cast<std::byte*>(block));
      narrow(block, to, static_cast<int64_t>(some.size()) * width);
      to += static_cast<int64_t>(some.size()) * width;
    }
    return;
  }
  for (size_t i = 0; i < rows.size(); ++i, to += width) {
    if (i + kAhead < rows.size() && rows[i + kAhead] >= 0) {
      prefetch_row(bytes + rows[i + kAhead] * row_bytes, row_bytes);
    }
    if (rows[i] < 0) {
      std::memset(static_cast<void*>(to), 0, width * sizeof(*to));
    } else {
      narrow(from + rows[i] * width, to, width);
    }
  }
}

namespace {

/// Rows are mostly a few cache lines long: too short for the call that memcpy of any length is.
void copy_lines(const std::byte* from, int64_t bytes, std::byte* to) {
  constexpr int64_t kWord = 4;
  if (bytes == kWord) {
    std::memcpy(to, from, kWord);
    return;
  }
  int64_t at = 0;
  for (; at + kLine <= bytes; at += kLine) std::memcpy(to + at, from + at, kLine);
  if (at < bytes) std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
}

/// So many rows of a table that they are looked ahead for among themselves.
bool is_long(const JoinedPart& part) {
  return part.rows != nullptr && part.count > static_cast<int64_t>(kAhead);
}

std::byte* put_part(const JoinedPart& part, int64_t row, std::byte* to) {
  const int64_t width = part.row_bytes / static_cast<int64_t>(sizeof(float));
  const int64_t written = part.rounds ? part.row_bytes / 2 : part.row_bytes;
  if (is_long(part)) {
    const std::span<const int64_t> rows(part.rows + row * part.count,
                                        static_cast<size_t>(part.count));
    if (part.rounds) {
      take_rows(reinterpret_cast<const float*>(part.from), rows, width,
                reinterpret_cast<tensor::BFloat16*>(to));
    } else {
      take_rows(part.from, rows, part.row_bytes, to);
    }
    return to + part.count * written;
  }
  for (int64_t i = row * part.count; i < (row + 1) * part.count; ++i, to += written) {
    const std::byte* from =
        part.places != nullptr
            ? reinterpret_cast<const std::byte*>(part.places[i])
            : part.from + (part.rows == nullptr ? i : part.rows[i]) * part.row_bytes;
    if (part.rounds) {
      narrow(reinterpret_cast<const float*>(from), reinterpret_cast<tensor::BFloat16*>(to), width);
    } else {
      copy_lines(from, part.row_bytes, to);
    }
  }
  return to;
}

}  // namespace

void join_rows(std::span<const JoinedPart> parts, int64_t begin, int64_t end, std::byte* to) {
  constexpr int64_t kTaken = 48;  // Rows of tables between a prefetch and its use, about.
  int64_t taken = 0;
  for (const JoinedPart& part : parts) {
    taken += part.rows == nullptr || is_long(part) ? 0 : part.count;
  }
  const int64_t ahead = std::clamp<int64_t>(kTaken / std::max<int64_t>(taken, 1), 1, kAhead);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t next = row + ahead;
    for (const JoinedPart& part : parts) {
      if (part.rows == nullptr || is_long(part) || next >= end) continue;
      for (int64_t i = next * part.count; i < (next + 1) * part.count; ++i) {
        prefetch_row(part.from + part.rows[i] * part.row_bytes, part.row_bytes);
      }
    }
    for (const JoinedPart& part : parts) to = put_part(part, row, to);
  }
}

void put_rows(const std::byte* from, std::span<const int64_t> rows, int64_t row_bytes,
              std::byte* to) {
  if (row_bytes == 0) return;
  for (const int64_t row : rows) {
    if (row >= 0) std::memcpy(to + row * row_bytes, from, row_bytes);
    from += row_bytes;
  }
}

template <class T>
void combine_rows(RowOp op, const T* from, std::span<const int64_t> rows, int64_t width, T* to) {
  switch (op) {
    case RowOp::kAdd:
      return for_each_row(from, rows, width, to, [](T a, T b) {
        return wrapping(a, b, [](auto x, auto y) { return x + y; });
      });
    case RowOp::kSub:
      return for_each_row(from, rows, width, to, [](T a, T b) {
        return wrapping(a, b, [](auto x, auto y) { return x - y; });
      });
    case RowOp::kMul:
      return for_each_row(from, rows, width, to, [](T a, T b) {
        return wrapping(a, b, [](auto x, auto y) { return x * y; });
      });
    case RowOp::kMax:
      return for_each_row(from, rows, width, to,
                          [](T a, T b) { return b > a || internal::is_nan(b) ? b : a; });
    case RowOp::kMin:
      return for_each_row(from, rows, width, to,
                          [](T a, T b) { return b < a || internal::is_nan(b) ? b : a; });
  }
}

template <class T>
T neutral(RowOp op) {
  switch (op) {
    case RowOp::kMul:
      return T(1);
    case RowOp::kMax:
      return std::numeric_limits<T>::lowest();
    case RowOp::kMin:
      return std::numeric_limits<T>::max();
    default:
      return T(0);
  }
}

void count_rows(std::span<const int64_t> rows, std::span<int64_t> counts) {
  std::fill(counts.begin(), counts.end(), 0);
  for (const int64_t row : rows) {
    if (row >= 0) ++counts[row];
  }
}

template <class I>
int64_t first_outside(std::span<const I> indices, int64_t extent, bool skip_negative) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<int64_t>(indices[i]);
    if (index >= extent || (index < 0 && !skip_negative)) [[unlikely]] {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

#define SR_INSTANTIATE(T)                                                                \
  template void combine_rows<T>(RowOp, const T*, std::span<const int64_t>, int64_t, T*); \
  template T neutral<T>(RowOp);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
SR_INSTANTIATE(int8_t)
SR_INSTANTIATE(int16_t)
SR_INSTANTIATE(int32_t)
SR_INSTANTIATE(int64_t)
SR_INSTANTIATE(uint8_t)
SR_INSTANTIATE(uint16_t)
SR_INSTANTIATE(uint32_t)
SR_INSTANTIATE(uint64_t)
#undef SR_INSTANTIATE
template int64_t first_outside<int32_t>(std::span<const int32_t>, int64_t, bool);
template int64_t first_outside<int64_t>(std::span<const int64_t>, int64_t, bool);

}  // namespace sidereal::kernels
