#include <algorithm>

#include "sidereal/ir/control_ops.h"
#include "sidereal/partition/internal/call_plan.h"

// A call may be sent before its step begins when it would do the same then, as far as its driver
// can tell: it needs nothing of the step, and only reads what lasts. What the driver changes, it
// changes before its step ends.
namespace sidereal::partition {

using ir::Node;
using ir::NodeId;

namespace {

/// True for nodes that change what lasts. What makes a handle finds or makes what it names.
bool changes(const CallRegion& region, const Node& node) {
  return !makes_handle(node.op) && ir::has_effect(*region.graph, node, region.rules->registry);
}

/// True for nodes whose results follow from their inputs and the values of variables alone.
bool only_reads(const CallRegion& region, const Node& node) {
  const ir::OpRegistry& registry = region.rules->registry;
  const ir::OpSchema& schema = *registry.find(node.op);
  if (makes_handle(node.op)) return true;
  if (changes(region, node)) return false;
  const bool is_read = node.op.starts_with("Variable") && schema.handle_inputs > 0;
  return is_read || !ir::is_stateful(*region.graph, node, registry);
}

/// True when the step waits for other steps somewhere: their order says what it may read then.
bool anything_waits(const CallRegion& region) {
  return std::find(region.waits.begin(), region.waits.end(), true) != region.waits.end();
}

/// Marks the calls of the whole graph. Thread: core-local.
class Marker {
 public:
  explicit Marker(CallRegion* region) : region_(*region), readers_(region->before.size()) {
    for (size_t item = 0; item < region->before.size(); ++item) {
      for (const int32_t from : region->before[item]) {
        readers_[from].push_back(static_cast<int32_t>(item));
      }
    }
  }

  void run() {
    if (anything_waits(region_)) return;
    const size_t nodes = region_.graph->size();
    for (size_t g = 0; g < region_.groups.size(); ++g) {
      CallGroup& group = region_.groups[g];
      const bool needs_nothing = group.args.empty() && region_.before[nodes + g].empty();
      group.ahead =
          needs_nothing && !group.rets.empty() && only_reads(region_, group) && leads_to_push(g);
    }
  }

 private:
  /// True when a call that changes something comes of what group `g` reads. Who only reads wants to
  /// see what there is now.
  [[nodiscard]] bool leads_to_push(size_t g) const {
    std::vector<int32_t> left = {static_cast<int32_t>(region_.graph->size() + g)};
    std::set<int32_t> seen = {left[0]};
    while (!left.empty()) {
      const int32_t now = left.back();
      left.pop_back();
      if (is_push(now)) return true;
      for (const int32_t reader : readers_[now]) {
        if (seen.insert(reader).second) left.push_back(reader);
      }
    }
    return false;
  }

  [[nodiscard]] bool is_push(int32_t item) const {
    const auto changes_at = [&](NodeId id) { return changes(region_, region_.graph->node(id)); };
    const auto nodes = static_cast<int32_t>(region_.graph->size());
    if (item < nodes) return region_.split.contains(NodeId(item)) && changes_at(NodeId(item));
    const CallGroup& group = region_.groups[item - nodes];
    return std::any_of(group.nodes.begin(), group.nodes.end(), changes_at);
  }

  CallRegion& region_;
  std::vector<std::vector<int32_t>> readers_;  // By item.
};

}  // namespace

bool only_reads(const CallRegion& region, const CallGroup& group) {
  return std::all_of(group.nodes.begin(), group.nodes.end(),
                     [&](NodeId id) { return only_reads(region, region.graph->node(id)); });
}

void mark_ahead(CallRegion* whole) { Marker(whole).run(); }

}  // namespace sidereal::partition
