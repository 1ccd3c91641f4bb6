#include <algorithm>
#include <functional>

#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/function.h"
#include "sidereal/partition/internal/call_plan.h"

namespace sidereal::partition {

using ir::Node;
using ir::NodeId;

namespace {

/// True when whatever runs after a place may be told too early that a call there is done.
using Free = std::function<bool(PlaceIndex)>;

/// True for a check, and for what runs one in a function: whoever runs it wants to be told.
bool is_check(const ir::Graph& graph, const Node& node, const ir::OpRegistry& registry,
              std::set<const ir::Function*>* seen) {
  if (node.op == "Assert") return true;
  for (const std::string& attr : ir::function_attrs(*registry.find(node.op))) {
    const auto* name = ir::find_attr<std::string>(node.attrs, attr);
    const ir::FunctionPtr called = name == nullptr ? nullptr : graph.find_function(*name);
    if (called == nullptr || !seen->insert(called.get()).second) continue;
    const auto& nodes = called->body().nodes();
    const auto inner = [&](const Node& one) {
      return is_check(called->body(), one, registry, seen);
    };
    if (std::any_of(nodes.begin(), nodes.end(), inner)) return true;
  }
  return false;
}

/// Marks the calls of one region. Thread: core-local.
class Marker {
 public:
  /// `end_is_free` tells of what runs after the region has.
  Marker(CallRegion* region, Free end_is_free)
      : region_(*region), end_is_free_(std::move(end_is_free)), readers_(region->before.size()) {
    for (size_t item = 0; item < region->before.size(); ++item) {
      for (const int32_t from : region->before[item]) {
        readers_[from].push_back(static_cast<int32_t>(item));
      }
    }
  }

  void run() {
    const size_t nodes = region_.graph->size();
    const std::vector<bool> checks = groups_that_check();
    for (size_t g = 0; g < region_.groups.size(); ++g) {
      CallGroup& group = region_.groups[g];
      group.async_push =
          group.rets.empty() && !group.waits && !checks[g] && is_free_after(nodes + g, group.place);
    }
    for (auto& [id, split] : region_.split) {
      if (!region_.live[id.value]) continue;
      const bool is_loop = ir::is_loop(region_.graph->node(id).op);
      const Free inner = [&, id = id, parts = &split](PlaceIndex place) {
        return (!is_loop || is_only_at(*parts, place)) &&
               is_free_after(static_cast<size_t>(id.value), place);
      };
      for (const auto& part : split.regions) Marker(part.get(), inner).run();
    }
  }

 private:
  [[nodiscard]] std::vector<bool> groups_that_check() const {
    std::vector<bool> out(region_.groups.size(), false);
    for (const Node& node : region_.graph->nodes()) {
      const int32_t group = region_.owner[node.id.value];
      if (group < 0 || out[group]) continue;
      std::set<const ir::Function*> seen;
      out[group] = is_check(*region_.graph, node, region_.rules->registry, &seen);
    }
    return out;
  }

  /// True when nothing that runs after `item` can tell whether a call to `place` is done: the end,
  /// nodes of the driver without effect, and calls to the same place.
  bool is_free_after(size_t item, PlaceIndex place) {
    if (!end_is_free_(place)) return false;
    std::vector<size_t> left = {item};
    std::set<size_t> seen = {item};
    while (!left.empty()) {
      const size_t now = left.back();
      left.pop_back();
      for (const int32_t reader : readers_[now]) {
        if (!seen.insert(static_cast<size_t>(reader)).second) continue;
        if (!is_free(static_cast<size_t>(reader), place)) return false;
        left.push_back(static_cast<size_t>(reader));
      }
    }
    return true;
  }

  [[nodiscard]] bool is_free(size_t item, PlaceIndex place) const {
    const size_t nodes = region_.graph->size();
    if (item >= nodes) return region_.groups[item - nodes].place == place;
    const Node& node = region_.graph->nodes()[item];
    return !region_.split.contains(node.id) &&
           !ir::has_effect(*region_.graph, node, region_.rules->registry);
  }

  /// True when a loop, in its next iterations too, only calls `place`, and changes nothing else.
  [[nodiscard]] bool is_only_at(const SplitControl& split, PlaceIndex place) const {
    return std::all_of(split.regions.begin(), split.regions.end(), [&](const auto& region) {
      for (const CallGroup& group : region->groups) {
        if (group.place != place) return false;
      }
      for (const Node& node : region->graph->nodes()) {
        if (!region->live[node.id.value] || region->owner[node.id.value] >= 0) continue;
        const auto inner = region->split.find(node.id);
        if (inner != region->split.end()) {
          if (!is_only_at(inner->second, place)) return false;
        } else if (ir::has_effect(*region->graph, node, region_.rules->registry)) {
          return false;
        }
      }
      return true;
    });
  }

  CallRegion& region_;
  Free end_is_free_;
  std::vector<std::vector<int32_t>> readers_;  // By item.
};

}  // namespace

void mark_async_pushes(CallRegion* whole) {
  Marker(whole, [](PlaceIndex) { return true; }).run();
}

}  // namespace sidereal::partition
