#include "sidereal/tensor/dtype.h"

#include <array>

#include "sidereal/tensor/dispatch.h"

namespace sidereal::tensor {
namespace {

struct Entry {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<Entry, 15> kEntries = {{{"invalid", 0},
                                             {"float32", 4},
                                             {"float64", 8},
                                             {"int32", 4},
                                             {"int64", 8},
                                             {"uint8", 1},
                                             {"bool", 1},
                                             {"int8", 1},
                                             {"int16", 2},
                                             {"uint16", 2},
                                             {"uint32", 4},
                                             {"uint64", 8},
                                             {"float16", 2},
                                             {"bfloat16", 2},
                                             {"string", sizeof(std::string_view)}}};

const Entry& entry_of(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kEntries[index < kEntries.size() ? index : 0];
}

}  // namespace

size_t size_of(DType dtype) { return entry_of(dtype).bytes; }

std::string_view name_of(DType dtype) { return entry_of(dtype).name; }

bool is_valid(DType dtype) { return size_of(dtype) != 0; }

bool is_floating(DType dtype) {
  return visit_dtype<FloatTypes>(dtype, []<class T>() {});
}

bool is_integer(DType dtype) {
  return visit_dtype<IntegerTypes>(dtype, []<class T>() {});
}

Result<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 1; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) return static_cast<DType>(i);
  }
  return base::invalid_argument("'{}' is not a dtype; use a name such as float32 or int64", name);
}

}  // namespace sidereal::tensor
