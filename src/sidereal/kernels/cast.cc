#include <cmath>
#include <limits>
#include <type_traits>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/tensor/dispatch.h"

/// Conversion between dtypes.
namespace sidereal::kernels {
namespace {

using tensor::kIsHalf;

template <class From, class To>
To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(x)) return 0;
    // The highest integer may round up to a power of two, which is already outside.
    if (x >= static_cast<From>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    if (x <= static_cast<From>(std::numeric_limits<To>::min())) {
      return std::numeric_limits<To>::min();
    }
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void convert_all(const From* in, To* out, int64_t n) {
  constexpr int64_t kBlock = 512;
  if constexpr (kIsHalf<From> && !std::is_same_v<To, float>) {
    float block[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = std::min(kBlock, n - i);
      widen(in + i, block, count);
      convert_all<float, To>(block, out + i, count);
    }
  } else if constexpr (kIsHalf<From>) {
    widen(in, out, n);
  } else if constexpr (kIsHalf<To> && std::is_same_v<From, float>) {
    narrow(in, out, n);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = convert<From, To>(in[i]);
  }
}

}  // namespace

bool cast(tensor::DType from, const void* in, tensor::DType to, void* out, int64_t n) {
  bool known = false;
  tensor::visit_dtype<tensor::PlainTypes>(from, [&]<class From>() {
    known = tensor::visit_dtype<tensor::PlainTypes>(to, [&]<class To>() {
      convert_all(static_cast<const From*>(in), static_cast<To*>(out), n);
    });
  });
  return known;
}

}  // namespace sidereal::kernels
