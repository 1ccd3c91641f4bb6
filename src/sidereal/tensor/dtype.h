#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "sidereal/base/status.h"
#include "sidereal/tensor/half.h"

namespace sidereal::tensor {

/// Element types. The numbers stand in files and on the wire: never renumber, only append.
enum class DType : uint8_t {
  kInvalid = 0,
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kUInt8 = 5,
  kBool = 6,
  kInt8 = 7,
  kInt16 = 8,
  kUInt16 = 9,
  kUInt32 = 10,
  kUInt64 = 11,
  kFloat16 = 12,
  kBFloat16 = 13,
  kString = 14,  ///< Bytes of any length; see strings.h.
};

/// Bytes per element; 0 for kInvalid. Of a string: of the view that is the element.
size_t size_of(DType dtype);

/// "float32", "int64", ...; "invalid" for a number that is no dtype.
std::string_view name_of(DType dtype);

/// The dtype of that name, or kInvalidArgument naming the text.
Result<DType> dtype_from_name(std::string_view name);

/// float16, bfloat16, float32 or float64: what gradients flow through.
bool is_floating(DType dtype);
/// Signed or unsigned integers; not bool.
bool is_integer(DType dtype);

/// True for a number read from bytes that is a dtype and not kInvalid.
bool is_valid(DType dtype);

namespace internal {
template <class T>
constexpr DType dtype_for() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kInt64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::kUInt8;
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, int8_t>) return DType::kInt8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::kInt16;
  if constexpr (std::is_same_v<T, uint16_t>) return DType::kUInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kUInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::kUInt64;
  if constexpr (std::is_same_v<T, Float16>) return DType::kFloat16;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBFloat16;
  if constexpr (std::is_same_v<T, std::string_view>) return DType::kString;
  return DType::kInvalid;
}
}  // namespace internal

/// The dtype that holds C++ type T.
template <class T>
inline constexpr DType kDTypeOf = internal::dtype_for<T>();

}  // namespace sidereal::tensor
