#pragma once

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"

namespace sidereal::data {

/// kInvalidArgument for a spec of csv files whose columns or numbers make no sense, whatever stands
/// in the files.
Status check_csv(const DataSpec& spec);

}  // namespace sidereal::data
