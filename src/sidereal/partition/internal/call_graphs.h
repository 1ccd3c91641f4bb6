#pragma once

#include <string>
#include <vector>

#include "sidereal/partition/internal/call_plan.h"
#include "sidereal/partition/pull_push.h"

namespace sidereal::partition {

/// Makes the graphs of a planned cut: the driver's, with its functions, and those of its calls.
/// Thread: core-local.
class CallGraphs {
 public:
  /// `devices`: by PlaceIndex.
  CallGraphs(std::string driver, const std::vector<std::string>& devices)
      : driver_(std::move(driver)), devices_(devices) {}

  /// `region` is the whole graph. To be called once.
  Result<PartitionedGraph> run(const CallRegion& region);

 private:
  class Maker;

  /// The function of a node that the driver runs, with the arguments that are `taken`.
  Result<ir::FunctionPtr> cut_function(const CallRegion& region, const std::vector<bool>& taken,
                                       const ir::Node& caller);

  std::string driver_;
  const std::vector<std::string>& devices_;
  const std::vector<bool>* taken_ = nullptr;  // By argument of the function that is made.
  std::string within_;                        // The branches and loops that it is for.
  PartitionedGraph out_;
};

}  // namespace sidereal::partition
