#include "sidereal/cli/partition_report.h"

#include <utility>

#include "sidereal/cli/cluster_option.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/ir/device_spec.h"
#include "sidereal/master/placement.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/cost.h"
#include "sidereal/partition/lanes.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"

namespace sidereal::cli {

namespace {

using ir::NodeId;
using ir::Output;

/// What the session is asked for: nodes by name or, without any, those that nothing reads.
Status find_wanted(const PartitionArguments& a, passes::StepGraph* step) {
  for (const std::string& name : a.fetches) {
    SR_ASSIGN_OR_RETURN(step->fetches.emplace_back(), step->graph.find_output(name));
  }
  for (const std::string& name : a.targets) {
    const ir::Node* node = step->graph.find(name);
    if (node == nullptr) return base::not_found("--target: the graph has no node '{}'", name);
    step->targets.push_back(node->id);
  }
  if (!step->fetches.empty() || !step->targets.empty()) return {};
  std::vector<bool> is_read(step->graph.size(), false);
  for (const ir::Node& node : step->graph.nodes()) {
    for (const Output& input : node.inputs) is_read[input.node.value] = true;
    for (const NodeId control : node.control_inputs) is_read[control.value] = true;
  }
  for (const ir::Node& node : step->graph.nodes()) {
    if (!is_read[node.id.value]) step->targets.push_back(node.id);
  }
  return {};
}

Result<passes::StepGraph> placed_step(const ir::Graph& graph, const PartitionArguments& a,
                                      const cluster::ClusterSpec& cluster,
                                      const ir::OpRegistry& registry) {
  passes::StepGraph step;
  SR_ASSIGN_OR_RETURN(step.graph,
                      master::place_on_cluster(graph, cluster, {.master = a.master}, registry));
  SR_RETURN_IF_ERROR(find_wanted(a, &step));
  exec::KernelTable kernels;
  exec::register_kernels(&kernels);
  const auto evaluate = [&](const ir::Node& node, const std::vector<ir::Tensor>& inputs) {
    return exec::run_one_op(node, inputs, kernels);
  };
  return passes::run_passes(step.graph, step.fetches, step.targets, registry,
                            {.evaluate = evaluate});
}

/// The device that drives a session's steps: where a node goes that asks for none.
Result<std::string> driver_of(const PartitionArguments& a, const cluster::ClusterSpec& cluster,
                              const ir::OpRegistry& registry) {
  ir::Graph graph;
  ir::Node node;
  node.name = "x";
  node.op = "NoOp";
  graph.append(std::move(node));
  SR_ASSIGN_OR_RETURN(const ir::Graph placed,
                      master::place_on_cluster(graph, cluster, {.master = a.master}, registry));
  return placed.nodes()[0].device;
}

/// How a session spreads the work of a device, with `lanes` on each task.
partition::DeviceLanes lanes_of(const std::string& device, int lanes,
                                const cluster::ClusterSpec& cluster) {
  const Result<ir::DeviceSpec> spec = ir::DeviceSpec::parse(device);
  const Result<int> tasks = cluster.num_tasks(spec.ok() ? spec->job.value_or("") : "");
  return {.lanes = lanes, .tasks = tasks.ok() ? *tasks : 1};
}

}  // namespace

Result<std::string> partition_report(const ir::Graph& graph, const PartitionArguments& a,
                                     const ir::OpRegistry& registry) {
  if (a.cluster.empty()) {
    return base::invalid_argument(
        "--partition needs the graph of a session, as text, and the --cluster that it runs on");
  }
  SR_ASSIGN_OR_RETURN(const cluster::Protocol protocol, cluster::parse_protocol(a.protocol));
  SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec cluster, read_cluster(a.cluster));
  SR_ASSIGN_OR_RETURN(passes::StepGraph step, placed_step(graph, a, cluster, registry));
  if (!cluster::is_pull_push(protocol)) {
    SR_ASSIGN_OR_RETURN(const auto parts,
                        partition::by_device(step.graph, step.fetches, step.targets, registry,
                                             {.tensor_fuse = a.tensor_fuse}));
    return fmt::format("{}: {}\n{}", a.protocol, partition::to_text(partition::cost_of(parts)),
                       partition::summary(parts));
  }
  SR_ASSIGN_OR_RETURN(const std::string driver, driver_of(a, cluster, registry));
  const auto lanes = [&](const std::string& device) {
    return device == driver ? partition::DeviceLanes() : lanes_of(device, a.lanes, cluster);
  };
  partition::assign_lanes(&step.graph, lanes, partition::leading_names(step.graph));
  using Mode = partition::PullPushOptions::Mode;
  const Mode mode = protocol == cluster::Protocol::kStarServer ? Mode::kLayers : Mode::kLite;
  SR_ASSIGN_OR_RETURN(const auto parts,
                      partition::pull_push_by_device(step.graph, driver, step.fetches, step.targets,
                                                     registry, {.mode = mode}));
  return fmt::format("{}: {}\ndriver {}\n{}", a.protocol,
                     partition::to_text(partition::cost_of(parts)), driver,
                     partition::summary(parts));
}

}  // namespace sidereal::cli
