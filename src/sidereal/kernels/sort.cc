#include "sidereal/kernels/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "sidereal/kernels/internal/accumulate.h"
#include "sidereal/kernels/internal/nan.h"

namespace sidereal::kernels {
namespace {

/// a < b, NaN being the greatest.
template <class T>
bool less(T a, T b) {
  using C = tensor::ComputeType<T>;
  const C x = a;
  const C y = b;
  if constexpr (std::is_integral_v<C>) {
    return x < y;
  } else {
    return x < y || (internal::is_nan(y) && !internal::is_nan(x));
  }
}

/// A number whose order among unsigned ones is that of x: a NaN is the greatest, the zeros are one.
template <class T>
uint32_t order_key(T x) {
  using C = tensor::ComputeType<T>;
  const C value = x;
  if constexpr (std::is_floating_point_v<C>) {
    if (internal::is_nan(value)) return ~0U;
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value == 0 ? C(0) : value));
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  } else if constexpr (std::is_signed_v<C>) {
    return static_cast<uint32_t>(static_cast<int32_t>(value)) ^ 0x80000000U;
  } else {
    return static_cast<uint32_t>(value);
  }
}

constexpr int64_t kRadixFrom = 128;  // Shorter rows are sorted by comparing.

/// Sorts by the upper 32 bits, a byte at a time from the lowest; equal ones keep their order.
/// `other` is as long as `keys`.
void radix_sort(uint64_t* keys, uint64_t* other, int64_t n) {
  for (int shift = 32; shift < 64; shift += 8) {
    std::array<int64_t, 257> place = {};
    for (int64_t i = 0; i < n; ++i) ++place[(keys[i] >> shift & 0xFF) + 1];
    // Nothing moves when all have this byte in common.
    if (place[(keys[0] >> shift & 0xFF) + 1] == n) continue;
    for (size_t b = 1; b < place.size(); ++b) place[b] += place[b - 1];
    for (int64_t i = 0; i < n; ++i) other[place[keys[i] >> shift & 0xFF]++] = keys[i];
    std::copy_n(other, n, keys);
  }
}

/// Indices of elements of at most 32 bits in order: each goes with its index into one number.
/// `keys` has room for 2 n.
template <class T>
void sort_packed(const T* x, int64_t n, bool descending, uint64_t* keys, int32_t* indices) {
  const uint32_t turn = descending ? ~0U : 0U;
  for (int64_t i = 0; i < n; ++i) {
    keys[i] = static_cast<uint64_t>(order_key(x[i]) ^ turn) << 32 | static_cast<uint64_t>(i);
  }
  if (n < kRadixFrom) {
    std::sort(keys, keys + n);
  } else {
    radix_sort(keys, keys + n, n);
  }
  for (int64_t i = 0; i < n; ++i) indices[i] = static_cast<int32_t>(keys[i] & 0xFFFFFFFFU);
}

/// By index among equals: stable without the memory of a stable sort.
template <class T>
void sort_indices(const T* x, int64_t n, bool descending, int32_t* indices) {
  std::iota(indices, indices + n, 0);
  std::sort(indices, indices + n, [x, descending](int32_t a, int32_t b) {
    const T& first = descending ? x[b] : x[a];
    const T& second = descending ? x[a] : x[b];
    if (less(first, second)) return true;
    return !less(second, first) && a < b;
  });
}

}  // namespace

template <class T>
void top_k(const T* x, int64_t rows, int64_t n, int64_t k, T* values, int32_t* indices,
           std::vector<int32_t>* scratch) {
  scratch->resize(n);
  for (int64_t r = 0; r < rows; ++r, x += n) {
    std::iota(scratch->begin(), scratch->end(), 0);
    const auto before = [x](int32_t a, int32_t b) {
      if (less(x[b], x[a])) return true;
      return !less(x[a], x[b]) && a < b;
    };
    std::partial_sort(scratch->begin(), scratch->begin() + k, scratch->end(), before);
    for (int64_t i = 0; i < k; ++i) {
      *values++ = x[(*scratch)[i]];
      *indices++ = (*scratch)[i];
    }
  }
}

template <class T>
void sort_rows(const T* x, int64_t rows, int64_t n, bool descending, T* values, int32_t* indices,
               std::vector<uint64_t>* scratch) {
  for (int64_t r = 0; r < rows; ++r, x += n, values += n, indices += n) {
    if constexpr (sizeof(T) <= 4) {
      scratch->resize(2 * n);
      sort_packed(x, n, descending, scratch->data(), indices);
    } else {
      sort_indices(x, n, descending, indices);
    }
    for (int64_t i = 0; i < n; ++i) values[i] = x[indices[i]];
  }
}

template <class T, class I>
void search_sorted(const T* sorted, int64_t n, const T* values, int64_t m, int64_t rows, bool right,
                   I* out) {
  for (int64_t r = 0; r < rows; ++r, sorted += n) {
    for (int64_t i = 0; i < m; ++i) {
      const T value = *values++;
      const T* at = right ? std::upper_bound(sorted, sorted + n, value, less<T>)
                          : std::lower_bound(sorted, sorted + n, value, less<T>);
      *out++ = static_cast<I>(at - sorted);
    }
  }
}

template <class T>
void cumulative(const T* x, int64_t outer, int64_t n, int64_t inner, CumulativeOrder order,
                T* out) {
  using C = tensor::ComputeType<T>;
  const auto join = [&](C a, C b) -> C {
    if constexpr (std::is_integral_v<C>) {
      using Unsigned = std::make_unsigned_t<C>;  // Sums and products wrap around.
      const uint64_t u = static_cast<Unsigned>(a);
      const uint64_t v = static_cast<Unsigned>(b);
      return static_cast<C>(order.product ? u * v : u + v);
    } else {
      return order.product ? a * b : a + b;
    }
  };
  const C start = order.product ? C(1) : C(0);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t j = 0; j < inner; ++j) {
      C running = start;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = (o * n + (order.reverse ? n - 1 - i : i)) * inner + j;
        const C next = join(running, static_cast<C>(x[at]));
        out[at] = static_cast<T>(order.exclusive ? running : next);
        running = next;
      }
    }
  }
}

#define SR_INSTANTIATE(T)                                                                      \
  template void top_k<T>(const T*, int64_t, int64_t, int64_t, T*, int32_t*,                    \
                         std::vector<int32_t>*);                                               \
  template void sort_rows<T>(const T*, int64_t, int64_t, bool, T*, int32_t*,                   \
                             std::vector<uint64_t>*);                                          \
  template void search_sorted<T, int32_t>(const T*, int64_t, const T*, int64_t, int64_t, bool, \
                                          int32_t*);                                           \
  template void search_sorted<T, int64_t>(const T*, int64_t, const T*, int64_t, int64_t, bool, \
                                          int64_t*);                                           \
  template void cumulative<T>(const T*, int64_t, int64_t, int64_t, CumulativeOrder, T*);
SR_FOR_EACH_NUMBER(SR_INSTANTIATE)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
