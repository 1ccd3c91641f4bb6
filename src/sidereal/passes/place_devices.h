#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/device_spec.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::passes {

/// The devices a session may use. Value type.
struct Devices {
  std::vector<ir::DeviceSpec> all;  ///< Full names.
  ir::DeviceSpec local;             ///< A device of the session's own task.
  /// A request that no device fits is relaxed: first its index, then its type, never its task.
  bool allow_soft_placement = false;
  /// True when devices of that type ("CPU") run that op; nullptr: all run all.
  std::function<bool(std::string_view op, std::string_view device_type)> has_kernel = nullptr;
  /// By name of a node: the full name of the device where earlier steps of the session put it.
  std::map<std::string, std::string, std::less<>> assigned = {};
  ir::PlacementOverrides overrides = {};  ///< Go before `assigned` and what nodes ask for.
};

/// Gives every node the full name of one of the `devices`, in bodies of functions too; a function
/// that is called from several places is held once for each outcome. Place a session's whole graph,
/// before it is pruned: what a step leaves out may say where the rest belongs.
///
/// Nodes that are joined go to one device: those that name one another in `_class` ("loc:@name"),
/// and those that take a handle (OpSchema::handle_inputs), which run where it was made. Of what
/// they ask for, what makes a resource comes first, then what is asked for most precisely. A node
/// that asks for nothing runs on the session's own task; in a body, where its caller runs. Of
/// several devices, one of the own task goes first, then another type than CPU, then the order of
/// names. A source that one node reads follows it; Shape, Size and Rank follow their input.
///
/// The graph must pass ir::verify(); it is left as it is when this fails.
/// Errors: kInvalidArgument: no devices, a malformed name, a request that no device fits ("...
/// explicitly assigned to X but available devices are [...]"), joined nodes that contradict one
/// another ("Cannot colocate nodes ..."; with soft placement the first to choose stands) or that no
/// one type runs, overrides that name no device, or several for joined nodes. kInternal: `assigned`
/// names no device.
/// Source: TensorFlow's Placer and ColocationGraph.
Status place_devices(ir::Graph* graph, const Devices& devices, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
