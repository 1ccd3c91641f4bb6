#pragma once

#include <cstdint>

#include "sidereal/kernels/elementwise.h"

namespace sidereal::kernels::internal {

/// The functions of UnaryOp from kFloor on; T is float or double.
template <class T>
void unary_more(UnaryOp op, const T* in, T* out, int64_t n);

extern template void unary_more(UnaryOp, const float*, float*, int64_t);
extern template void unary_more(UnaryOp, const double*, double*, int64_t);

}  // namespace sidereal::kernels::internal
