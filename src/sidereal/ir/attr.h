#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::ir {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// A compile-time parameter of a node. Value type; tensors are small constants.
using AttrValue =
    std::variant<bool, int64_t, double, std::string, DType, Shape, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>, Tensor>;

/// Attributes by name, ordered so that text and hashes are the same in every run.
using AttrMap = std::map<std::string, AttrValue, std::less<>>;

/// "bool", "int", "float", "string", "dtype", "shape", "ints", "floats", "strings", "tensor".
const char* attr_type_name(const AttrValue& value);

/// True when both hold the same type and value (tensors: dtype, shape and bytes).
bool attr_equal(const AttrValue& a, const AttrValue& b);

/// True for names that begin with "_": what a node says of itself to those who plan it, such as
/// "_class". Every op takes such attributes, of any type; programs do not carry them.
inline bool is_note(std::string_view attr) { return attr.starts_with('_'); }

/// The attribute `name` of type T, or nullptr when absent or of another type.
template <class T>
const T* find_attr(const AttrMap& attrs, std::string_view name) {
  const auto it = attrs.find(name);
  return it == attrs.end() ? nullptr : std::get_if<T>(&it->second);
}

/// The attribute `name` of type T, or `fallback`.
template <class T>
T attr_or(const AttrMap& attrs, std::string_view name, T fallback) {
  const T* found = find_attr<T>(attrs, name);
  if (found != nullptr) return *found;
  return fallback;
}

/// The attribute `name` of type T, or kInvalidArgument naming it.
template <class T>
Result<T> get_attr(const AttrMap& attrs, std::string_view name) {
  const T* found = find_attr<T>(attrs, name);
  if (found == nullptr) {
    return base::invalid_argument("attribute '{}' is missing or of another type", name);
  }
  return *found;
}

}  // namespace sidereal::ir
