#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::partition {

/// What one device does in a step. All nodes run, in the order in which they stand; its feeds are
/// the Placeholders, by name.
struct DevicePartition {
  std::string device;
  ir::Graph graph;
  std::vector<ir::Output> fetches;       ///< Those of the caller's fetches that are made here.
  std::vector<size_t> fetch_indices;     ///< Which of the caller's each of them is.
  std::vector<std::string> fetch_names;  ///< What the caller's graph calls them.
  std::vector<ir::NodeId> targets;       ///< Those of the caller's targets that run here.
  /// The devices at the other ends of its Send and Recv nodes, by their attribute `peer`. They
  /// stand here only: graphs that differ in nothing else have equal parts on the others.
  std::vector<std::string> peers;
};

/// The whole of a graph as the part of one device, whatever its nodes ask for: nothing is cut.
/// `fetches` and `targets` must be there.
DevicePartition undivided(ir::Graph graph, std::vector<ir::Output> fetches,
                          std::vector<ir::NodeId> targets);

/// What cutting has to be told.
struct ByDeviceOptions {
  /// Whether values and orders that one device has for another at the same time are one message:
  /// one Send and Recv of several tensors. A message is filled while its device does nothing that
  /// may wait, so it is there when the first of what it carries would be, computing apart.
  bool tensor_fuse = false;
  /// Bytes of such a message, as far as sizes are known; what is larger goes alone, so that it
  /// travels while others are made.
  int64_t fused_bytes_max = int64_t{1} << 20;
  /// Most nodes of functions that are cut, each once per call.
  size_t function_nodes_max = size_t{1} << 20;
};

/// Cuts a graph whose nodes name their devices, also in bodies (passes/place_devices.h), into one
/// graph per device, by name. All devices run at once, each front to back but for what waits, which
/// holds up only what needs it; they meet at `Send` and `Recv` nodes, whose edges are numbered from
/// 0.
///
/// * A value that other devices read is sent once to each, right after it was made, and received
///   before its first reader. A node that waits for another one gets an empty tensor; a value and
///   an order of one node are two edges. With `tensor_fuse` several of them are one edge.
/// * A call, branch or loop with nodes of several devices in its functions runs on each of them,
///   with a part of the functions of its own; what it returns is on the device that it names, its
///   home. There, the others' loops have their predicates from, one per iteration; they know the
///   number of iterations of a Scan. Values from outside come before the loop; loop variables and
///   rows of sequences in each iteration, from home. Nobody is ahead of home by more than one
///   iteration, nor home of others.
/// * What reads an output of such a node runs after its effects on all devices.
///
/// Order promised: along data and control edges only; in functions also, of what is done to one
/// queue, accumulator or table, that of the graph. Equal graphs give equal partitions.
/// Deadlock: with a tensor on its way from each Send, no device waits forever, but for what waits
/// for other steps, which holds up only what needs it; see by_device.cc.
/// Errors: kInvalidArgument names what verify() finds, a node without a device, a Send or Recv
/// that is there already, a fetch or target that is not; kResourceExhausted: more than
/// `function_nodes_max`. Source: TensorFlow's graph partitioner (core/graph/graph_partition.h).
Result<std::vector<DevicePartition>> by_device(const ir::Graph& placed,
                                               const std::vector<ir::Output>& fetches,
                                               const std::vector<ir::NodeId>& targets,
                                               const ir::OpRegistry& registry,
                                               const ByDeviceOptions& options = {});

}  // namespace sidereal::partition
