#include "sidereal/partition/internal/regions.h"

#include <algorithm>

#include "sidereal/base/check.h"
#include "sidereal/ir/control_ops.h"

namespace sidereal::partition {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

void add_new(std::vector<DeviceIndex>* to, DeviceIndex device) {
  if (std::find(to->begin(), to->end(), device) == to->end()) to->push_back(device);
}

/// How many of the first arguments of a node's functions are the node's own, in each iteration.
size_t changing_arguments(const Node& node) {
  if (!ir::is_loop(node.op)) return 0;
  return static_cast<size_t>(ir::attr_or<int64_t>(node.attrs, "variables", 0) +
                             ir::attr_or<int64_t>(node.attrs, "sequences", 0));
}

}  // namespace

/// The handle of what `node` may have to wait for: a queue, not a variable. Else none.
Output RegionFinder::waiting_handle(const Graph& graph, const Node& node) const {
  const ir::OpSchema& schema = *registry_.find(node.op);
  if (schema.handle_inputs < 1 || !schema.effect || node.op.starts_with("Variable")) return {};
  Output handle = node.inputs[0];
  while (graph.node(handle.node).op == "Identity") handle = graph.node(handle.node).inputs[0];
  return handle;
}

bool Region::passes(DeviceIndex from, DeviceIndex to) const {
  const auto goes = [&](const std::vector<DeviceIndex>& all) {
    return std::find(all.begin(), all.end(), to) != all.end();
  };
  for (const auto& [value, where] : sent) {
    if (home_of(value) == from && goes(where)) return true;
  }
  for (const auto& [done, where] : awaited) {
    if (done.second == from && goes(where)) return true;
  }
  return false;
}

std::vector<Output> reads_on(const Region& region, const Node& node, DeviceIndex device) {
  const auto found = region.split.find(node.id);
  if (found == region.split.end()) return node.inputs;
  const size_t first = ir::first_argument(node.op);
  size_t own = first;
  if (device == region.places[node.id.value][0]) own += changing_arguments(node);
  std::vector<Output> out(node.inputs.begin(),
                          node.inputs.begin() + static_cast<std::ptrdiff_t>(own));
  if (const auto taken = found->second.taken.find(device); taken != found->second.taken.end()) {
    for (const size_t arg : taken->second) out.push_back(node.inputs[first + arg]);
  }
  return out;
}

Status RegionFinder::collect_devices(const Graph& graph, std::set<std::string>* names,
                                     std::set<const ir::Function*>* seen) const {
  for (const Node& node : graph.nodes()) {
    if (node.op == ir::kArgOp) continue;  // Where the caller is.
    if (node.device.empty()) {
      return base::invalid_argument("node '{}' ({}) has no device; place the graph first",
                                    node.name, node.op);
    }
    names->insert(node.device);
    if (!ir::runs_functions(node.op)) continue;
    for (const std::string& attr : ir::function_attrs(*registry_.find(node.op))) {
      const ir::FunctionPtr function =
          graph.find_function(ir::attr_or<std::string>(node.attrs, attr, ""));
      if (!seen->insert(function.get()).second) continue;
      SR_RETURN_IF_ERROR(base::with_context(collect_devices(function->body(), names, seen),
                                            fmt::format("node '{}' ({})", node.name, node.op)));
    }
  }
  return {};
}

DeviceIndex RegionFinder::index_of(const std::string& device) const {
  const auto found = std::lower_bound(devices_.begin(), devices_.end(), device);
  return static_cast<DeviceIndex>(found - devices_.begin());
}

const RegionFinder::Facts& RegionFinder::facts_of(const ir::FunctionPtr& function) {
  if (const auto known = facts_.find(function.get()); known != facts_.end()) return known->second;
  Facts facts;
  for (const Node& node : function->body().nodes()) {
    if (node.op == ir::kArgOp) continue;
    facts.devices.insert(index_of(node.device));
    if (registry_.find(node.op)->effect) facts.effects.insert(index_of(node.device));
    const Facts inner = facts_of(function->body(), node);
    facts.devices.insert(inner.devices.begin(), inner.devices.end());
    facts.effects.insert(inner.effects.begin(), inner.effects.end());
  }
  return facts_[function.get()] = std::move(facts);
}

RegionFinder::Facts RegionFinder::facts_of(const Graph& graph, const Node& node) {
  Facts all;
  if (!ir::runs_functions(node.op)) return all;
  for (const std::string& attr : ir::function_attrs(*registry_.find(node.op))) {
    const Facts& facts =
        facts_of(graph.find_function(ir::attr_or<std::string>(node.attrs, attr, "")));
    all.devices.insert(facts.devices.begin(), facts.devices.end());
    all.effects.insert(facts.effects.begin(), facts.effects.end());
  }
  return all;
}

Result<std::unique_ptr<Region>> RegionFinder::find(const Graph& graph) {
  std::set<std::string> names;
  std::set<const ir::Function*> seen;
  SR_RETURN_IF_ERROR(collect_devices(graph, &names, &seen));
  devices_.assign(names.begin(), names.end());
  auto region = std::make_unique<Region>();
  region->graph = &graph;
  SR_RETURN_IF_ERROR(fill(region.get()));
  return region;
}

Status RegionFinder::fill(Region* region) {
  const Graph& graph = *region->graph;
  if (region->function != nullptr) function_nodes_ += graph.size();
  if (function_nodes_ > function_nodes_max_) {
    return base::make_status(
        StatusCode::kResourceExhausted,
        fmt::format("functions that are on several devices are called so often that they would be "
                    "cut into more than {} nodes",
                    function_nodes_max_));
  }
  region->places.resize(graph.size());
  region->waits.resize(graph.size());
  std::vector<int32_t> levels(graph.size(), 0);
  std::map<Output, int32_t> last_on;  // By handle.
  for (const Node& node : graph.nodes()) {
    std::vector<DeviceIndex>& places = region->places[node.id.value];
    if (node.op == ir::kArgOp) {
      places = {region->home};
      continue;
    }
    places = {index_of(node.device)};
    for (const DeviceIndex device : facts_of(graph, node).devices) add_new(&places, device);
    if (places.size() > 1) SR_RETURN_IF_ERROR(split(region, node));
    int32_t& level = levels[node.id.value];
    level = level_of(region, node, levels);
    if (const Output handle = waiting_handle(graph, node); handle.valid()) {
      int32_t& last = last_on[handle];
      level = last = std::max(last, level);
    }
    region->order.push_back(node.id);
  }
  std::stable_sort(region->order.begin(), region->order.end(),
                   [&](NodeId a, NodeId b) { return levels[a.value] < levels[b.value]; });
  if (region->function != nullptr) {
    for (const Output& output : region->function->outputs()) {
      need(region, output, region->home, levels);
    }
  }
  find_late(region);
  return {};
}

void RegionFinder::find_late(Region* region) {
  std::set<NodeId> used;
  for (const Node& node : region->graph->nodes()) {
    for (const Output& input : node.inputs) used.insert(input.node);
    used.insert(node.control_inputs.begin(), node.control_inputs.end());
  }
  for (const Node& node : region->graph->nodes()) {
    const bool goes_elsewhere =
        region->sent.contains({node.id, 0}) ||
        region->awaited.contains({node.id, region->places[node.id.value][0]});
    if (node.op == "VariableRead" && used.contains(node.id) && !goes_elsewhere) {
      region->late.insert(node.id);
    }
  }
}

Status RegionFinder::split(Region* region, const Node& node) {
  SplitNode& made = region->split[node.id];
  made.attrs = ir::function_attrs(*registry_.find(node.op));
  for (const std::string& attr : made.attrs) {
    const ir::FunctionPtr function =
        region->graph->find_function(ir::attr_or<std::string>(node.attrs, attr, ""));
    auto inner = std::make_unique<Region>();
    inner->graph = &function->body();
    inner->function = function.get();
    inner->home = region->places[node.id.value][0];
    inner->captured.assign(function->num_inputs(), true);
    const size_t changing = std::min(changing_arguments(node), function->num_inputs());
    std::fill_n(inner->captured.begin(), changing, false);
    SR_RETURN_IF_ERROR(fill(inner.get()));
    for (const auto& [device, args] : inner->taken) {
      made.taken[device].insert(args.begin(), args.end());
    }
    made.regions.push_back(std::move(inner));
  }
  return {};
}

int32_t RegionFinder::need(Region* region, Output value, DeviceIndex device,
                           const std::vector<int32_t>& levels) {
  if (region->is_arg(value.node) && region->captured[value.node.value]) {
    region->taken[device].insert(static_cast<size_t>(value.node.value));
    return 0;
  }
  const int32_t level = levels[value.node.value];
  if (region->home_of(value) == device) return level;
  add_new(&region->sent[value], device);
  return level + 1;
}

int32_t RegionFinder::level_of(Region* region, const Node& node,
                               const std::vector<int32_t>& levels) {
  int32_t level = 0;
  auto& waits = region->waits[node.id.value];
  for (const NodeId control : node.control_inputs) {
    if (region->is_arg(control)) continue;
    for (const DeviceIndex from : region->places[control.value]) waits.insert({control, from});
  }
  for (const DeviceIndex device : region->places[node.id.value]) {
    for (const Output& input : reads_on(*region, node, device)) {
      level = std::max(level, need(region, input, device, levels));
    }
  }
  // A reader of what a loop returns runs after all that the loop does.
  for (const Output& input : node.inputs) {
    if (!region->split.contains(input.node)) continue;
    for (const DeviceIndex from :
         facts_of(*region->graph, region->graph->node(input.node)).effects) {
      if (from != region->home_of(input)) waits.insert({input.node, from});
    }
  }
  for (const auto& done : waits) {
    for (const DeviceIndex device : region->places[node.id.value]) {
      const bool crosses = done.second != device;
      if (crosses) add_new(&region->awaited[done], device);
      level = std::max(level, levels[done.first.value] + (crosses ? 1 : 0));
    }
  }
  return level;
}

}  // namespace sidereal::partition
