#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "sidereal/data/data_spec.h"

namespace sidereal::data {

/// How many of `boundaries`, which ascend, are not above x.
inline int64_t bucket_of(float x, std::span<const float> boundaries) {
  return std::upper_bound(boundaries.begin(), boundaries.end(), x) - boundaries.begin();
}

/// What a model sees of the number x. The graph of a saved model computes the same
/// (python/sidereal/_raw_columns.py). Never kAuto, which nobody has chosen yet.
inline float transformed(float x, const NumericTransform& by) {
  switch (by.kind) {
    case Transform::kNone:
    case Transform::kAuto:
      return x;
    case Transform::kLog1p:
    case Transform::kLog1pStandard:
      x = std::copysign(std::log1p(std::abs(x)), x);
      break;
    case Transform::kStandard:
    case Transform::kMinmax:
      break;
    case Transform::kQuantile:
      x = static_cast<float>(bucket_of(x, by.boundaries));
      break;
  }
  return (x - by.offset) * by.scale;
}

}  // namespace sidereal::data
