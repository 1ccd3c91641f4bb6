#include "sidereal/resources/memory.h"

#include <bit>

#include "sidereal/base/strings.h"

namespace sidereal::resources {

int64_t row_stride(int64_t floats) {
  if (floats >= 16) return (floats + 15) / 16 * 16;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(floats)));
}

Result<int64_t> checked_product(const std::string& name, int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    return base::resource_exhausted("variable '{}': {} x {} elements is more than can be counted",
                                    name, a, b);
  }
  return product;
}

Result<tensor::Buffer::Ptr> allocate_floats(const std::string& name, int64_t floats,
                                            size_t bytes_max) {
  if (floats < 0) return base::invalid_argument("variable '{}': {} elements", name, floats);
  SR_ASSIGN_OR_RETURN(const int64_t bytes, checked_product(name, floats, sizeof(float)));
  if (static_cast<uint64_t>(bytes) > bytes_max) {
    return base::resource_exhausted(
        "variable '{}' needs {} with its optimizer slots; {} is the most this task gives one "
        "variable. Use more tasks or a smaller table",
        name, base::human_bytes(static_cast<double>(bytes)),
        base::human_bytes(static_cast<double>(bytes_max)));
  }
  tensor::Buffer::Ptr buffer = tensor::Buffer::try_allocate_zeroed(static_cast<size_t>(bytes));
  if (buffer == nullptr) {
    return base::resource_exhausted(
        "variable '{}' needs {} with its optimizer slots; the machine has no such memory", name,
        base::human_bytes(static_cast<double>(bytes)));
  }
  return buffer;
}

}  // namespace sidereal::resources
