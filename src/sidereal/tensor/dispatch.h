#pragma once

#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/tensor/dtype.h"

/// From a dtype known at run time to code for a C++ type: the one place of this switch.
namespace sidereal::tensor {

/// A list of C++ element types.
template <class... Ts>
struct TypeList {};

namespace internal {
template <class... Lists>
struct JoinLists;
template <class... Ts>
struct JoinLists<TypeList<Ts...>> {
  using Type = TypeList<Ts...>;
};
template <class... As, class... Bs, class... Rest>
struct JoinLists<TypeList<As...>, TypeList<Bs...>, Rest...> {
  using Type = typename JoinLists<TypeList<As..., Bs...>, Rest...>::Type;
};
}  // namespace internal

/// The types of several lists in one.
template <class... Lists>
using Join = typename internal::JoinLists<Lists...>::Type;

/// What kernels compute in natively.
using RealTypes = TypeList<float, double>;
using HalfTypes = TypeList<Float16, BFloat16>;
using FloatTypes = Join<RealTypes, HalfTypes>;
using SignedIntegers = TypeList<int32_t, int64_t, int8_t, int16_t>;
using UnsignedIntegers = TypeList<uint8_t, uint16_t, uint32_t, uint64_t>;
using IntegerTypes = Join<SignedIntegers, UnsignedIntegers>;
/// The types of indices.
using IndexTypes = TypeList<int32_t, int64_t>;
/// Everything but bool.
using NumericTypes = Join<FloatTypes, IntegerTypes>;
/// Every type of fixed width, bool included.
using PlainTypes = Join<NumericTypes, TypeList<bool>>;
/// Every type: strings too, as views.
using AllTypes = Join<PlainTypes, TypeList<std::string_view>>;

namespace internal {
template <class F, class... Ts>
bool visit_dtype(DType dtype, F& f, TypeList<Ts...>) {
  // A chain of comparisons that the compiler turns into a switch.
  return (
      (kDTypeOf<Ts> == dtype ? (static_cast<void>(f.template operator()<Ts>()), true) : false) ||
      ...);
}

template <class F, class... Ts>
Status with_dtype(DType dtype, F& f, TypeList<Ts...>) {
  Status status;
  const bool found =
      ((kDTypeOf<Ts> == dtype ? (static_cast<void>(status = f.template operator()<Ts>()), true)
                              : false) ||
       ...);
  if (found) return status;
  std::string names;
  ((names += (names.empty() ? "" : ", ") + std::string(name_of(kDTypeOf<Ts>))), ...);
  return base::invalid_argument("dtype {} is not supported here; cast to one of {}", name_of(dtype),
                                names);
}
}  // namespace internal

/// Calls f.template operator()<T>() with the type T of `List` that holds `dtype`; false, and no
/// call, when no type of the list does.
template <class List, class F>
bool visit_dtype(DType dtype, F f) {
  return internal::visit_dtype(dtype, f, List());
}

/// As visit_dtype() for an `f` that returns a Status; kInvalidArgument naming the dtype and the
/// types of the list when none holds it.
template <class List, class F>
Status with_dtype(DType dtype, F f) {
  return internal::with_dtype(dtype, f, List());
}

}  // namespace sidereal::tensor
