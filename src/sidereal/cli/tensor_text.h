#pragma once

#include <cstdint>
#include <string>

#include "sidereal/tensor/tensor.h"

namespace sidereal::cli {

/// One element for people: numbers as short as they read back the same, strings in quotes.
std::string element_text(const tensor::Tensor& t, int64_t i);

/// Elements [from, from + count) with blanks between them.
std::string elements_text(const tensor::Tensor& t, int64_t from, int64_t count);

}  // namespace sidereal::cli
