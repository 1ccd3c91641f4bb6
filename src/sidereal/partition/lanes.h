#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "sidereal/ir/graph.h"

/// Devices whose work is split over several lanes: names, and who goes where.
namespace sidereal::partition {

/// The name of a lane of a device: that of the device for lane 0, "DEVICE/lane:2" for others.
std::string on_lane(std::string_view device, int lane);
/// The lane that such a name says.
int lane_of(std::string_view name);

/// What the lane of a name follows from, of one device. Value type.
struct DeviceLanes {
  int lanes = 1;  ///< At least 1.
  int tasks = 1;  ///< Of the device's job, at least 1: parts of a table go round robin over them.
};

/// By name of what lasts: the one that says its lane.
using LeadingNames = std::map<std::string, std::string>;
/// For slots those of the weights that some node of `graph` changes with them. A step may use slots
/// alone, such as the one that gives them their first value: so this is asked of all of a session's
/// graph.
LeadingNames leading_names(const ir::Graph& graph);

/// Splits the work of each device over its lanes, by writing the lane's name for the device's. What
/// lasts has one lane, which its name says: all graphs of all sessions of a cluster agree on it
/// without asking, and what is done to one variable is done by one thread.
///
/// * The lane of a name is base::lane_of_name().
/// * What one node uses is on one lane, that of the first of the names, or of the leading one of
///   that; and so is what reads another's output there, but for small values (up to 1 KiB): the
///   values of a step never pass from lane to lane where that would cost another round.
/// * Calls, branches, loops and their bodies, and what touches nothing that lasts and nothing that
///   does, stay on lane 0.
///
/// Graphs must pass ir::verify() and name a device for every node.
void assign_lanes(ir::Graph* placed,
                  const std::function<DeviceLanes(const std::string& device)>& lanes_of,
                  const LeadingNames& leading = {});

}  // namespace sidereal::partition
