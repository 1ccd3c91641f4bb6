#pragma once

#include <cstdint>
#include <type_traits>

#include "sidereal/tensor/half.h"

namespace sidereal::ir::internal {

/// What the text form writes for an element of type T: bools as 0 and 1, halves as their bits.
template <class T>
using TextType = std::conditional_t<std::is_same_v<T, bool>, uint8_t,
                                    std::conditional_t<tensor::kIsHalf<T>, uint16_t, T>>;

}  // namespace sidereal::ir::internal
