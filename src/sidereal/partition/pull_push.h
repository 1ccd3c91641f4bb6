#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::partition {

/// What one call runs on another device. Its inputs are the `Arg` nodes, its results the `Ret`
/// nodes, both numbered by their "index" attribute from 0 on without gaps.
struct RemoteGraph {
  std::string device;
  int32_t level = 0;   ///< Round of the step, or of one run of a body, in which it runs, from 1.
  bool waits = false;  ///< It may wait for other steps, however long.
  bool async_push = false;  ///< See pull_push_by_device().
  bool ahead = false;       ///< The same.
  bool repeatable = false;  ///< It changes nothing, and may be run again.
  std::string within;       ///< The branches and loops around it: "loop/branch"; "" without any.
  ir::Graph graph;
};

/// One step cut into the driver's graph and the graphs it calls.
struct PartitionedGraph {
  ir::Graph worker;                      ///< The driver's. Holds, with its functions, one `Call`
                                         ///< node per remote graph.
  std::vector<RemoteGraph> remotes;      ///< By the "call" attribute of the `Call` nodes.
  std::vector<ir::Output> fetches;       ///< In the driver's graph, in the caller's order.
  std::vector<ir::NodeId> targets;       ///< In the driver's graph.
  std::vector<std::string> fetch_names;  ///< What the caller called the fetches.
  std::vector<std::string> devices;      ///< That calls go to, sorted.
};

/// How to cut into calls.
struct PullPushOptions {
  enum class Mode : uint8_t { kLayers, kLite };
  Mode mode = Mode::kLayers;
  /// Most nodes of functions that are cut, each once per use.
  size_t function_nodes_max = size_t{1} << 20;
};

/// Cuts a graph whose nodes name their devices, also in bodies, so that the device `driver` runs
/// one program and each part elsewhere is a call.
///
/// * The level of a node outside of the driver is the number of times that the longest path to it
///   leaves the driver, at least 1; control edges count like data edges, and what NoOps pass on
///   like an edge. All nodes of one device and one level form one call, so calls cannot wait for
///   each other in a circle and the number of rounds is the least possible. What one device makes
///   and another, or a later level of the same one, needs goes through the driver: nothing is kept
///   on a device between calls.
/// * Handles of variables, queues, accumulators and tables, and constants, are made again in each
///   call that needs them. Feeds and fetches go through the driver.
/// * Nodes that may wait for other steps (queues, accumulators) hold up only what needs them: all
///   nodes of a call wait for the same. Calls to one device run at once: a call is atomic there as
///   far as it does not wait.
/// * A call, branch or loop with functions on one other device is a node there; any other one is
///   the driver's, with calls in its bodies. A body has run when its calls are answered.
///
/// kLite merges and delays calls where nothing else can see it, lets values pass by Identity nodes
/// of the driver, and marks calls as asynchronous. An asynchronous push has no results, does not
/// wait, and nothing runs after it in this step but the end, nodes without effect on the driver,
/// and calls to the same device. So whoever carries it may report it done when it holds the feeds,
/// if all calls to that device, also of later steps of the driver, begin there in the order of
/// their starts, and an error of it ends the next step that hears of it. How many are on the way is
/// for the carrier to bound. Without that, waiting for its answer is always right.
///
/// kLite marks pulls that may be prefetched: calls of the whole graph, not of a body, without feeds
/// that wait for nothing of the step, read variables and change nothing, and of whose results a
/// call comes that changes something; none in a graph in which a node may wait for other steps.
/// Whoever carries such a call may send it for the next step of the driver when this one has ended,
/// if it comes behind all that the driver has sent there, and is sent again when the driver does
/// anything else before it is used.
///
/// Order promised: as by_device() in both modes; docs/design/0003-protocols.md. Within a call,
/// nodes run in the order of the graph. Equal graphs give equal remote graphs for every driver.
/// Errors: kInvalidArgument names what verify() finds, a node without a device, a fetch or target
/// that is not there; kResourceExhausted: more than `function_nodes_max`.
Result<PartitionedGraph> pull_push_by_device(const ir::Graph& placed, const std::string& driver,
                                             const std::vector<ir::Output>& fetches,
                                             const std::vector<ir::NodeId>& targets,
                                             const ir::OpRegistry& registry,
                                             const PullPushOptions& options = {});

/// For people: rounds, and for each device its calls with their nodes, feeds and fetches.
std::string summary(const PartitionedGraph& partitioned);

}  // namespace sidereal::partition
