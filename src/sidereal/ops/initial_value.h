#pragma once

#include <cstdint>

#include "sidereal/base/status.h"
#include "sidereal/ir/attr.h"
#include "sidereal/kernels/initializer.h"
#include "sidereal/tensor/shape.h"

namespace sidereal::ops {

/// What the op InitialValue makes: the first value of a variable, or the rows of one of its parts.
/// Value type.
struct InitialValue {
  kernels::Initializer initializer;
  tensor::Shape whole;  ///< Of the whole variable, fully defined.
  int64_t part = 0;     ///< Of rows r with r % parts == part.
  int64_t parts = 1;

  /// The shape of what is made.
  [[nodiscard]] tensor::Shape shape() const;
};

/// As the attributes of the op say. kInvalidArgument naming the one that is missing, of another
/// type or wrong.
Result<InitialValue> initial_value_of(const ir::AttrMap& attrs);

}  // namespace sidereal::ops
