#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::partition {

/// A device, by its place among the names of all, sorted.
using DeviceIndex = int32_t;

/// What a node does on one of its places.
using Deed = std::pair<ir::NodeId, DeviceIndex>;

struct Region;

/// A call, branch or loop that runs on several devices.
struct SplitNode {
  std::vector<std::string> attrs;                 ///< Those that name its functions.
  std::vector<std::unique_ptr<Region>> regions;   ///< The functions, in the same order.
  std::map<DeviceIndex, std::set<size_t>> taken;  ///< By device: the captured Args it reads.
};

/// A graph or the body of a function in one use, and what of it goes from device to device.
/// A node stands in `order` once, whatever the number of devices that run it.
struct Region {
  const ir::Graph* graph = nullptr;
  const ir::Function* function = nullptr;  ///< nullptr: the whole graph.
  DeviceIndex home = -1;                   ///< Where Args are and outputs go. -1: the whole graph.
  std::vector<bool> captured;  ///< By Arg: comes from outside, once, to whoever reads it.

  std::vector<std::vector<DeviceIndex>> places;   ///< By node: where it runs; its home first.
  std::map<ir::NodeId, SplitNode> split;          ///< The nodes with several places.
  std::map<DeviceIndex, std::set<size_t>> taken;  ///< By device: the captured Args it reads.
  std::vector<ir::NodeId> order;                  ///< All nodes but Args: by level, then as before.
  /// Reads of variables that their own device alone uses. What they hold keeps writers from
  /// changing the variable in place, so they come with their first reader, behind what that waits
  /// for.
  std::set<ir::NodeId> late;

  /// Where a value goes from its home.
  std::map<ir::Output, std::vector<DeviceIndex>> sent;
  /// Where somebody waits for it.
  std::map<Deed, std::vector<DeviceIndex>> awaited;
  /// By node: what it waits for, also where its inputs make it so.
  std::vector<std::set<Deed>> waits;

  /// The home of a value.
  [[nodiscard]] DeviceIndex home_of(ir::Output value) const { return places[value.node.value][0]; }
  [[nodiscard]] bool is_arg(ir::NodeId id) const { return graph->node(id).op == ir::kArgOp; }
  /// True when anything goes from one device to the other in here.
  [[nodiscard]] bool passes(DeviceIndex from, DeviceIndex to) const;
};

/// What `node` of the region reads on `device`, one of its places: of a split node, there is what
/// it reads by itself (at home), then the captured values that its functions take there.
std::vector<ir::Output> reads_on(const Region& region, const ir::Node& node, DeviceIndex device);

/// Finds regions. Thread: core-local. Borrows the registry and all graphs.
class RegionFinder {
 public:
  RegionFinder(const ir::OpRegistry& registry, size_t function_nodes_max)
      : registry_(registry), function_nodes_max_(function_nodes_max) {}

  /// The whole graph, which passes ir::verify().
  Result<std::unique_ptr<Region>> find(const ir::Graph& graph);
  /// Names of all devices in it, sorted.
  [[nodiscard]] const std::vector<std::string>& devices() const { return devices_; }

 private:
  /// Where a function has nodes, and where nodes with effects, those it calls included.
  struct Facts {
    std::set<DeviceIndex> devices;
    std::set<DeviceIndex> effects;
  };

  Status collect_devices(const ir::Graph& graph, std::set<std::string>* names,
                         std::set<const ir::Function*>* seen) const;
  [[nodiscard]] DeviceIndex index_of(const std::string& device) const;
  const Facts& facts_of(const ir::FunctionPtr& function);
  /// Of all functions that a node runs.
  Facts facts_of(const ir::Graph& graph, const ir::Node& node);
  [[nodiscard]] ir::Output waiting_handle(const ir::Graph& graph, const ir::Node& node) const;
  Status fill(Region* region);
  Status split(Region* region, const ir::Node& node);
  /// Makes `value` known on `device`; the level from which it is.
  static int32_t need(Region* region, ir::Output value, DeviceIndex device,
                      const std::vector<int32_t>& levels);
  static void find_late(Region* region);
  int32_t level_of(Region* region, const ir::Node& node, const std::vector<int32_t>& levels);

  const ir::OpRegistry& registry_;
  std::vector<std::string> devices_;
  std::map<const ir::Function*, Facts> facts_;
  size_t function_nodes_max_;
  size_t function_nodes_ = 0;
};

}  // namespace sidereal::partition
