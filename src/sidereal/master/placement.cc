#include "sidereal/master/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sidereal/cluster/task_name.h"
#include "sidereal/ir/device_spec.h"
#include "sidereal/passes/place_devices.h"

namespace sidereal::master {

Result<ir::Graph> place_on_cluster(const ir::Graph& graph, const cluster::ClusterSpec& cluster,
                                   const PlacementOptions& options,
                                   const ir::OpRegistry& registry) {
  passes::Devices devices;
  for (const std::string& job : cluster.jobs()) {
    SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec::Tasks tasks, cluster.tasks(job));
    for (const auto& [index, address] : tasks) {
      SR_ASSIGN_OR_RETURN(devices.all.emplace_back(),
                          ir::DeviceSpec::parse(cluster::task_name(job, index) + "/device:CPU:0"));
    }
  }
  if (devices.all.empty()) return base::invalid_argument("the cluster has no tasks");
  SR_ASSIGN_OR_RETURN(const ir::DeviceSpec master, ir::DeviceSpec::parse(options.master));
  const auto local =
      std::find_if(devices.all.begin(), devices.all.end(),
                   [&](const ir::DeviceSpec& device) { return master.fits(device); });
  if (local == devices.all.end()) {
    return base::invalid_argument("the cluster has no task '{}', which was to be the master",
                                  options.master);
  }
  devices.local = *local;
  devices.allow_soft_placement = options.allow_soft_placement;
  devices.has_kernel = [](std::string_view, std::string_view type) { return type == "CPU"; };
  ir::Graph placed = graph;
  SR_RETURN_IF_ERROR(passes::place_devices(&placed, devices, registry));
  return placed;
}

std::string placement_lines(const ir::Graph& graph, size_t first) {
  std::string out;
  for (size_t i = first; i < graph.nodes().size(); ++i) {
    const ir::Node& node = graph.nodes()[i];
    out += fmt::format("{}: ({}): {}\n", node.name, node.op, node.device);
  }
  return out;
}

}  // namespace sidereal::master
