#include "sidereal/kernels/sort.h"

#include <algorithm>
#include <numeric>

#include "sidereal/kernels/internal/accumulate.h"

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
    return x < y || (y != y && x == x);
  }
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
void sort_rows(const T* x, int64_t rows, int64_t n, bool descending, T* values, int32_t* indices) {
  for (int64_t r = 0; r < rows; ++r, x += n, values += n, indices += n) {
    std::iota(indices, indices + n, 0);
    // By index among equals: stable without the memory of a stable sort.
    std::sort(indices, indices + n, [x, descending](int32_t a, int32_t b) {
      const T& first = descending ? x[b] : x[a];
      const T& second = descending ? x[a] : x[b];
      if (less(first, second)) return true;
      return !less(second, first) && a < b;
    });
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
      const auto u = static_cast<uint64_t>(a);
      const auto v = static_cast<uint64_t>(b);
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
  template void sort_rows<T>(const T*, int64_t, int64_t, bool, T*, int32_t*);                  \
  template void search_sorted<T, int32_t>(const T*, int64_t, const T*, int64_t, int64_t, bool, \
                                          int32_t*);                                           \
  template void search_sorted<T, int64_t>(const T*, int64_t, const T*, int64_t, int64_t, bool, \
                                          int64_t*);                                           \
  template void cumulative<T>(const T*, int64_t, int64_t, int64_t, CumulativeOrder, T*);
SR_FOR_EACH_NUMBER(SR_INSTANTIATE)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
