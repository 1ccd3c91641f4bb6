#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "sidereal/ir/graph.h"

/// Devices whose work is split over several lanes: names, and who goes where.
namespace sidereal::partition {

/// The name of a lane of a device: that of the device for lane 0, "DEVICE/lane:2" for others.
std::string on_lane(std::string_view device, int lane);
/// The lane that such a name says.
int lane_of(std::string_view name);

/// Splits the work of each device over its lanes (`lanes_of(device)`, at least 1), by writing the
/// lane's name for the device's. What lasts has one lane, which its name says: all graphs of all
/// sessions agree on it without asking, and what is done to one variable is done by one thread.
///
/// * The lane of a name is its hash modulo the lanes; "NAME/part_3", piece 3 of a split variable,
///   is three lanes further than "NAME/part_0", so that the pieces of one table share the work.
/// * What one node uses is on one lane, that of the first of the names, and so is what reads
///   another's output there, but for small values (up to 1 KiB): the values of a step never pass
///   from lane to lane where that would cost another round.
/// * Calls, branches, loops and their bodies, and what touches nothing that lasts and nothing that
///   does, stay on lane 0.
///
/// Graphs must pass ir::verify() and name a device for every node.
void assign_lanes(ir::Graph* placed, const std::function<int(const std::string& device)>& lanes_of);

}  // namespace sidereal::partition
