#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::train {

/// Which column says what rows belong together, as batches have it. Value type.
struct GroupColumn {
  std::string name;   ///< Of a column of batches; "": there are no groups.
  int64_t index = 0;  ///< In each row of that.
};

/// The place of FitOptions::metrics_by in batches of `data`. kInvalidArgument for what is no
/// column.
Result<GroupColumn> group_column(const data::DataSpec& data, const std::string& group);

/// The groups of some rows, of the column's values there.
Status append_groups(const tensor::Tensor& values, const GroupColumn& column,
                     std::vector<int64_t>* out);

}  // namespace sidereal::train
