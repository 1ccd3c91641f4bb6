#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/tensor/buffer.h"

namespace sidereal::resources {

/// `floats` zeroed floats, for the variable `name`. kResourceExhausted with the numbers when that
/// is more than `bytes_max` or more than the machine has; kInvalidArgument for a negative count.
Result<tensor::Buffer::Ptr> allocate_floats(const std::string& name, int64_t floats,
                                            size_t bytes_max);

/// Floats from one row of a table to the next where `floats` are in use: a multiple of 16, a cache
/// line, or below 16 a power of two.
int64_t row_stride(int64_t floats);

/// a * b, or kResourceExhausted naming the variable when that does not fit into 63 bits.
Result<int64_t> checked_product(const std::string& name, int64_t a, int64_t b);

}  // namespace sidereal::resources
