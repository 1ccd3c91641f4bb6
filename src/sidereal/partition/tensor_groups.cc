#include "sidereal/partition/internal/tensor_groups.h"

#include <set>
#include <tuple>

#include "sidereal/ir/control_ops.h"
#include "sidereal/partition/waiting.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::partition {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// What a value has at least; an extent that is not known is 1.
int64_t known_bytes(const ir::TensorSpec& spec) {
  auto bytes = static_cast<int64_t>(tensor::size_of(spec.dtype));
  if (!spec.shape.has_rank()) return bytes;
  for (const int64_t extent : spec.shape.dims()) {
    if (extent >= 0 && __builtin_mul_overflow(bytes, extent, &bytes)) return INT64_MAX;
  }
  return bytes;
}

/// Goes through what all devices do for a region. Thread: core-local.
class TensorGroupFinder {
 public:
  TensorGroupFinder(const Region& region, const TensorGroupOptions& options)
      : region_(region), options_(options) {}

  TensorGroups run() {
    find_awaited();
    for (const Node& node : region_.graph->nodes()) {
      if (node.op == ir::kArgOp) pass_results(node);
    }
    for (const NodeId id : region_.order) {
      const Node& node = region_.graph->node(id);
      for (const DeviceIndex device : region_.places[id.value]) {
        if (may_wait(node.op) || ir::runs_functions(node.op)) close_from(device);
        receive_for(node, device);
      }
      pass_results(node);
    }
    return std::move(out_);
  }

 private:
  /// Finds what nodes wait for at queues and accumulators, wherever those are. In functions, which
  /// run in their order, nothing comes from it.
  void find_awaited() {
    awaited_.assign(region_.graph->size(), 0);
    if (!options_.fuse || region_.function != nullptr) return;
    std::map<std::set<NodeId>, int32_t> numbers = {{{}, 0}};
    std::vector<const std::set<NodeId>*> sets(region_.graph->size(), &numbers.begin()->first);
    for (const Node& node : region_.graph->nodes()) {
      std::set<NodeId> all;
      if (node.op != "Recv" && (may_wait(node.op) || ir::runs_functions(node.op))) {
        all.insert(node.id);
      }
      const auto add = [&](NodeId source) {
        all.insert(sets[source.value]->begin(), sets[source.value]->end());
      };
      for (const Output& input : node.inputs) add(input.node);
      for (const NodeId source : node.control_inputs) add(source);
      const auto number = static_cast<int32_t>(numbers.size());
      const auto found = numbers.try_emplace(std::move(all), number).first;
      sets[node.id.value] = &found->first;
      awaited_[node.id.value] = found->second;
    }
  }

  /// What `node` reads and waits for on `device`.
  void receive_for(const Node& node, DeviceIndex device) {
    for (const Output& value : reads_on(region_, node, device)) {
      const auto found = out_.of_value.find({value, device});
      if (found != out_.of_value.end()) receive(found->second);
    }
    for (const Deed& done : region_.waits[node.id.value]) {
      const auto found = out_.of_order.find({done, device});
      if (found != out_.of_order.end()) receive(found->second);
    }
  }

  void receive(size_t tensor_group) {
    if (!received_.insert(tensor_group).second) return;
    const DeviceIndex to = out_.all[tensor_group].to;
    std::erase_if(open_, [tensor_group](const auto& open) {
      return open.second.tensor_group == tensor_group;
    });
    close_from(to);
  }

  /// The device may wait now.
  void close_from(DeviceIndex device) {
    std::erase_if(open_, [&](const auto& open) { return std::get<0>(open.first) == device; });
  }

  void pass_results(const Node& node) {
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Output value{node.id, static_cast<int32_t>(o)};
      const auto sent = region_.sent.find(value);
      if (sent == region_.sent.end()) continue;
      for (const DeviceIndex to : sent->second) {
        const size_t tensor_group =
            tensor_group_for(node, region_.home_of(value), to, known_bytes(node.outputs[o]));
        out_.all[tensor_group].values.push_back(value);
        out_.of_value[{value, to}] = tensor_group;
      }
    }
    for (const DeviceIndex from : region_.places[node.id.value]) {
      const Deed done{node.id, from};
      const auto awaited = region_.awaited.find(done);
      if (awaited == region_.awaited.end()) continue;
      for (const DeviceIndex to : awaited->second) {
        const size_t tensor_group = tensor_group_for(node, from, to, 0);
        out_.all[tensor_group].orders.push_back(done);
        out_.of_order[{done, to}] = tensor_group;
      }
    }
  }

  /// Where something of `node` goes that has so many bytes at least. What waits for something does
  /// not go with what does not.
  size_t tensor_group_for(const Node& node, DeviceIndex from, DeviceIndex to, int64_t bytes) {
    const auto made = [&] {
      out_.all.push_back({.from = from, .to = to, .values = {}, .orders = {}});
      return out_.all.size() - 1;
    };
    if (!options_.fuse || bytes > options_.bytes_max) return made();
    const auto [found, is_new] = open_.try_emplace({from, to, awaited_[node.id.value]});
    Open& open = found->second;
    if (is_new || bytes > options_.bytes_max - open.bytes ||
        out_.all[open.tensor_group].values.size() >= options_.values_max) {
      open = {.tensor_group = made(), .bytes = 0};
    }
    open.bytes += bytes;
    return open.tensor_group;
  }

  /// A tensor group that is being filled.
  struct Open {
    size_t tensor_group = 0;
    int64_t bytes = 0;
  };

  const Region& region_;
  const TensorGroupOptions& options_;
  TensorGroups out_;
  std::vector<int32_t> awaited_;  // By node: the number of the set of nodes that it waits for.
  /// By source, destination, and what is waited for.
  std::map<std::tuple<DeviceIndex, DeviceIndex, int32_t>, Open> open_;
  std::set<size_t> received_;
};

}  // namespace

TensorGroups find_tensor_groups(const Region& region, const TensorGroupOptions& options) {
  return TensorGroupFinder(region, options).run();
}

}  // namespace sidereal::partition
