#include "sidereal/partition/pull_push.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/verify.h"
#include "sidereal/partition/internal/call_graphs.h"
#include "sidereal/partition/internal/call_plan.h"

namespace sidereal::partition {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;

/// Checks what the caller asks for.
Status check_wanted(const Graph& graph, const std::vector<Output>& fetches,
                    const std::vector<NodeId>& targets) {
  const auto exists = [&](NodeId id) {
    return id.value >= 0 && static_cast<size_t>(id.value) < graph.size();
  };
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (!exists(fetches[i].node) || fetches[i].index < 0 ||
        static_cast<size_t>(fetches[i].index) >= graph.node(fetches[i].node).outputs.size()) {
      return base::invalid_argument("fetch {} is not an output of the graph", i);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!exists(targets[i])) {
      return base::invalid_argument("target {} is not a node of the graph", i);
    }
  }
  return {};
}

Status check_whole(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op != "Call" && node.op != "Arg" && node.op != "Ret") continue;
    return base::invalid_argument("node '{}' ({}): the graph is partitioned already", node.name,
                                  node.op);
  }
  return {};
}

/// Calls `f(node)`, which may fail, for the nodes of `graph` and of all functions it runs, but
/// Args.
template <class F>
Status for_each_node(const Graph& graph, const ir::OpRegistry& registry,
                     std::set<const ir::Function*>* seen, const F& f) {
  for (const Node& node : graph.nodes()) {
    if (node.op == ir::kArgOp) continue;
    SR_RETURN_IF_ERROR(f(node));
    if (!ir::runs_functions(node.op)) continue;
    for (const std::string& attr : ir::function_attrs(*registry.find(node.op))) {
      const ir::FunctionPtr function =
          graph.find_function(ir::attr_or<std::string>(node.attrs, attr, ""));
      if (!seen->insert(function.get()).second) continue;
      SR_RETURN_IF_ERROR(base::with_context(for_each_node(function->body(), registry, seen, f),
                                            fmt::format("node '{}' ({})", node.name, node.op)));
    }
  }
  return {};
}

}  // namespace

Result<PartitionedGraph> pull_push_by_device(const Graph& placed, const std::string& driver,
                                             const std::vector<Output>& fetches,
                                             const std::vector<NodeId>& targets,
                                             const ir::OpRegistry& registry,
                                             const PullPushOptions& options) {
  SR_RETURN_IF_ERROR(ir::verify(placed, registry));
  SR_RETURN_IF_ERROR(check_wanted(placed, fetches, targets));
  SR_RETURN_IF_ERROR(check_whole(placed));
  std::set<std::string> devices;
  std::set<const ir::Function*> seen;
  SR_RETURN_IF_ERROR(for_each_node(placed, registry, &seen, [&](const Node& node) -> Status {
    if (node.device.empty()) {
      return base::invalid_argument("node '{}' ({}) has no device; place the graph first",
                                    node.name, node.op);
    }
    if (node.device != driver) devices.insert(node.device);
    return {};
  }));
  const std::vector<std::string> places(devices.begin(), devices.end());
  std::map<std::string, PlaceIndex> index = {{driver, kDriver}};
  for (size_t i = 0; i < places.size(); ++i) index[places[i]] = static_cast<PlaceIndex>(i);
  const CallRules rules{.registry = registry,
                        .place_of = [&](const Node& node) { return index.at(node.device); },
                        .lite = options.mode == PullPushOptions::Mode::kLite,
                        .function_nodes_max = options.function_nodes_max};
  SR_ASSIGN_OR_RETURN(const auto region, CallPlanner(rules).plan(placed, fetches, targets));
  SR_ASSIGN_OR_RETURN(PartitionedGraph out, CallGraphs(driver, places).run(*region));
  out.devices = places;
  return out;
}

}  // namespace sidereal::partition
