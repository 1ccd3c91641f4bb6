#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sidereal/partition/internal/regions.h"

namespace sidereal::partition {

/// Values and orders of one region that go from one device to another in one message.
struct TensorGroup {
  DeviceIndex from = -1;
  DeviceIndex to = -1;
  std::vector<ir::Output> values;  ///< In the order in which they are made.
  std::vector<Deed> orders;        ///< Deeds on `from` that are waited for on `to`.

  [[nodiscard]] size_t size() const { return values.size() + orders.size(); }
};

/// All that is passed in a region: every value and order is in one tensor group.
struct TensorGroups {
  std::vector<TensorGroup> all;
  std::map<std::pair<ir::Output, DeviceIndex>, size_t> of_value;  ///< By value and destination.
  std::map<std::pair<Deed, DeviceIndex>, size_t> of_order;        ///< By deed and destination.
};

struct TensorGroupOptions {
  bool fuse = false;         ///< Else everything goes alone.
  int64_t bytes_max = 0;     ///< Of one with several values, as far as sizes are known.
  size_t values_max = 1024;  ///< Of one.
};

/// What travels together when every device does its part of the region in the order of
/// Region::order, and receives what a node reads right before it. While a tensor group is filled,
/// its device does nothing that may wait: no receiving, no op that waits for other steps, no
/// function.
TensorGroups find_tensor_groups(const Region& region, const TensorGroupOptions& options);

}  // namespace sidereal::partition
