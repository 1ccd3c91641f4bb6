#pragma once

#include <string>
#include <vector>

#include "sidereal/partition/internal/call_plan.h"
#include "sidereal/partition/pull_push.h"

namespace sidereal::partition {

/// Somewhere that calls go to.
struct CallPlace {
  ir::Location location;
  std::string device;
};

/// Makes the graphs of a planned cut: the driver's, with its functions, and those of its calls.
/// Thread: core-local.
class CallGraphs {
 public:
  CallGraphs(std::string driver_device, const std::vector<CallPlace>& places)
      : driver_device_(std::move(driver_device)), places_(places) {}

  /// `region` is the whole graph. To be called once.
  Result<PartitionedGraph> run(const CallRegion& region);

 private:
  class Maker;

  /// The function of a node that the driver runs, with the arguments that are `taken`.
  Result<ir::FunctionPtr> cut_function(const CallRegion& region, const std::vector<bool>& taken,
                                       const ir::Node& caller);

  std::string driver_device_;
  const std::vector<CallPlace>& places_;
  const std::vector<bool>* taken_ = nullptr;  // By argument of the function that is made.
  std::string within_;                        // The branches and loops that it is for.
  PartitionedGraph out_;
};

}  // namespace sidereal::partition
