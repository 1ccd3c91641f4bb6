#include "sidereal/ir/attr.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

namespace sidereal::ir {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same_tensor(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.dtype() == DType::kString) {
    const auto x = a.data<const std::string_view>();
    const auto y = b.data<const std::string_view>();
    return std::equal(x.begin(), x.end(), y.begin());
  }
  return a.nbytes() == 0 || std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0;
}

bool same_floats(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace

const char* attr_type_name(const AttrValue& value) {
  static constexpr std::array<const char*, 10> kNames = {
      "bool", "int", "float", "string", "dtype", "shape", "ints", "floats", "strings", "tensor"};
  static_assert(kNames.size() == std::variant_size_v<AttrValue>);
  return kNames[value.index()];
}

bool attr_equal(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        const T& y = std::get<T>(b);
        if constexpr (std::is_same_v<T, Tensor>) {
          return same_tensor(x, y);
        } else if constexpr (std::is_same_v<T, double>) {
          return same_bits(x, y);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          return same_floats(x, y);
        } else {
          return x == y;
        }
      },
      a);
}

}  // namespace sidereal::ir
