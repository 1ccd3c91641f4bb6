#include <algorithm>
#include <map>
#include <utility>

#include "sidereal/ir/control_ops.h"
#include "sidereal/partition/internal/call_plan.h"

// What kLite does with layers. Every edge stays what it is, so what edges order stays in order.
// What they do not order may only be moved where nobody can tell:
// * Two nodes that touch the same, one of them changing it, stay on the same side of each other, or
//   come to stand in one call, where the order is the graph's.
// * Nothing comes to wait for a node that may wait for other steps, unless it needs it anyway.
namespace sidereal::partition {

using ir::Node;
using ir::NodeId;

namespace {

/// Pairs of nodes that are looked at, and nodes in all regroupings that are tried, at most.
constexpr size_t kPairsMax = size_t{1} << 20;
constexpr size_t kWorkMax = size_t{1} << 24;
/// Bits of memory for what precedes what.
constexpr size_t kBitsMax = size_t{1} << 30;
constexpr std::string_view kEverything = "*";

/// What nodes of a region do to what lasts, and what precedes them. Thread: core-local.
class Traces {
 public:
  explicit Traces(const CallRegion& region) : region_(region) {
    for (const Node& node : region.graph->nodes()) {
      if (!region.live[node.id.value] || region.is_arg(node.id)) continue;
      find_touched(node);
      if (!touched_[node.id].empty() || region.waits[node.id.value]) {
        index_[node.id] = tracked_.size();
        tracked_.push_back(node.id);
      }
      if (touched_[node.id].empty()) touched_.erase(node.id);
    }
    find_ancestors();
    find_loose();
  }

  /// Nodes that touch what `id` touches, one of them changing it, in no order that edges say.
  /// nullptr: nobody knows.
  [[nodiscard]] const std::vector<NodeId>* loose(NodeId id) const {
    static const std::vector<NodeId> kNone;
    if (gave_up_ && touched_.contains(id)) return nullptr;
    const auto found = loose_.find(id);
    return found == loose_.end() ? &kNone : &found->second;
  }

  /// Nodes that may wait, before `id`. Only where there are any: gave_up() is false.
  [[nodiscard]] std::vector<NodeId> waits_before(NodeId id) const {
    std::vector<NodeId> out;
    for (size_t t = 0; t < tracked_.size(); ++t) {
      if (region_.waits[tracked_[t].value] && precedes(t, id)) out.push_back(tracked_[t]);
    }
    return out;
  }
  [[nodiscard]] bool gave_up() const { return gave_up_; }
  /// How many nodes are kept track of.
  [[nodiscard]] size_t size() const { return tracked_.size(); }
  [[nodiscard]] bool anything_waits() const {
    return std::find(region_.waits.begin(), region_.waits.end(), true) != region_.waits.end();
  }

 private:
  void find_touched(const Node& node) {
    std::set<std::string>& touched = touched_[node.id];
    const ir::OpRegistry& registry = region_.rules->registry;
    const ir::OpSchema& schema = *registry.find(node.op);
    if (ir::has_effect(*region_.graph, node, registry)) changes_.insert(node.id);
    for (size_t i = 0; i < node.inputs.size() && schema.handle_inputs > 0; ++i) {
      // Further handles are those of an optimizer's slots.
      const bool is_handle = static_cast<int>(i) < schema.handle_inputs ||
                             (node.op.starts_with("Variable") &&
                              region_.graph->spec(node.inputs[i]).dtype == ir::DType::kString);
      if (!is_handle) continue;
      const std::string resource = region_.resource_of(node.inputs[i]);
      touched.insert(resource[0] == '?' ? std::string(kEverything) : resource);
    }
    const bool makes_handle = schema.effect && schema.handle_inputs == 0 && node.inputs.empty() &&
                              region_.resolve({node.id, 0}, nullptr).node != nullptr;
    const bool is_control = ir::runs_functions(node.op);
    const bool is_strange = schema.effect && schema.handle_inputs == 0 && !makes_handle;
    if (is_strange || (is_control && ir::is_stateful(*region_.graph, node, registry))) {
      touched.insert(std::string(kEverything));
    }
  }

  [[nodiscard]] bool precedes(size_t tracked, NodeId id) const {
    return (ancestors_[id.value][tracked / 64] >> (tracked % 64) & 1) != 0;
  }

  void find_ancestors() {
    const size_t nodes = region_.graph->size();
    const size_t words = (tracked_.size() + 63) / 64;
    if (nodes * words * 64 > kBitsMax) {
      gave_up_ = true;
      return;
    }
    ancestors_.assign(nodes, std::vector<uint64_t>(words, 0));
    for (const Node& node : region_.graph->nodes()) {
      std::vector<uint64_t>& own = ancestors_[node.id.value];
      const auto add = [&](NodeId from) {
        const std::vector<uint64_t>& theirs = ancestors_[from.value];
        for (size_t w = 0; w < words; ++w) own[w] |= theirs[w];
        const auto tracked = index_.find(from);
        if (tracked != index_.end())
          own[tracked->second / 64] |= uint64_t{1} << tracked->second % 64;
      };
      if (region_.is_order(node.id)) {
        for (const NodeId from : region_.order_of(node.id)) add(from);
        continue;
      }
      for (const Read& read : region_.reads[node.id.value]) {
        if (read.value.valid()) add(read.value.node);
      }
      for (const NodeId from : region_.after[node.id.value]) add(from);
    }
  }

  void find_loose() {
    std::map<std::string, std::vector<NodeId>> by_resource;
    for (const auto& [id, resources] : touched_) {
      for (const std::string& resource : resources) by_resource[resource].push_back(id);
    }
    std::vector<NodeId> all;
    for (const auto& [id, resources] : touched_) all.push_back(id);
    size_t pairs = 0;
    for (const auto& [resource, nodes] : by_resource) {
      const std::vector<NodeId>& others = resource == kEverything ? all : nodes;
      for (const NodeId a : nodes) {
        pairs += others.size();
        if (gave_up_ || pairs > kPairsMax) {
          gave_up_ = true;
          return;
        }
        for (const NodeId b : others) {
          const bool changes = changes_.contains(a) || changes_.contains(b);
          if (a == b || !changes) continue;
          if (precedes(index_.at(a), b) || precedes(index_.at(b), a)) continue;
          loose_[a].push_back(b);
          if (resource == kEverything) loose_[b].push_back(a);
        }
      }
    }
  }

  const CallRegion& region_;
  std::map<NodeId, std::set<std::string>> touched_;
  std::set<NodeId> changes_;
  std::vector<NodeId> tracked_;  // Those that touch something, or may wait.
  std::map<NodeId, size_t> index_;
  std::vector<std::vector<uint64_t>> ancestors_;  // By node: a bit for each that is tracked.
  std::map<NodeId, std::vector<NodeId>> loose_;
  bool gave_up_ = false;
};

/// Merges and delays the calls of one region. Thread: core-local.
class Merger {
 public:
  explicit Merger(CallRegion* region) : region_(*region), traces_(*region) {
    consumers_.resize(region_.graph->size());
    for (const Node& node : region_.graph->nodes()) {
      if (!region_.live[node.id.value] || region_.is_arg(node.id)) continue;
      for (const Read& read : region_.reads[node.id.value]) {
        if (read.value.valid()) consumers_[read.value.node.value].push_back(node.id);
      }
      for (const NodeId from : region_.after[node.id.value]) {
        if (region_.live[from.value]) {
          consumers_[from.value].push_back(node.id);
        } else {
          for (const NodeId id : region_.expand({from})) consumers_[id.value].push_back(node.id);
        }
      }
    }
  }

  void run() {
    if (traces_.gave_up()) return;
    merge_all();
    while (delay_one()) continue;
  }

 private:
  /// Merges calls to one place, two at a time, until none can be.
  void merge_all() {
    for (bool merged = true; merged;) {
      merged = false;
      for (size_t b = region_.groups.size(); !merged && b-- > 0;) {
        for (size_t a = 0; !merged && a < region_.groups.size(); ++a) {
          if (a == b || region_.groups[a].place != region_.groups[b].place) continue;
          merged = a < b && try_merge(region_.groups[a].nodes, region_.groups[b].nodes);
        }
      }
    }
  }

  /// Puts `moved`, which are nodes of one call, into that of `others`.
  bool try_merge(std::vector<NodeId> moved, std::vector<NodeId> others) {
    work_ += region_.graph->size();
    if (work_ > kWorkMax) return false;
    if (!is_free(moved, others) || !is_free(others, moved)) return false;
    if (!may_wait_together(moved, others) || !may_wait_together(others, moved)) return false;
    std::vector<int32_t> wanted = region_.owner;
    const int32_t to = region_.owner[others[0].value];
    for (const NodeId id : moved) wanted[id.value] = to;
    std::vector<std::pair<NodeId, int32_t>> rounds;  // Of each call, by its first node.
    const int32_t from = region_.owner[moved[0].value];
    const int32_t both = std::max(region_.groups[from].round, region_.groups[to].round);
    for (size_t g = 0; g < region_.groups.size(); ++g) {
      const bool is_one = static_cast<int32_t>(g) == from || static_cast<int32_t>(g) == to;
      rounds.emplace_back(region_.groups[g].nodes[0], is_one ? both : region_.groups[g].round);
    }
    const std::vector<int32_t> before = region_.owner;
    if (!regroup(&region_, wanted)) return false;
    for (const auto& [id, round] : rounds) {
      if (region_.groups[region_.owner[id.value]].round <= round) continue;
      static_cast<void>(regroup(&region_, before));
      return false;
    }
    return true;
  }

  /// True when nothing outside of both would see that `nodes` run at another time.
  bool is_free(const std::vector<NodeId>& nodes, const std::vector<NodeId>& others) const {
    for (const NodeId id : nodes) {
      const std::vector<NodeId>* loose = traces_.loose(id);
      if (loose == nullptr) return false;
      for (const NodeId other : *loose) {
        const bool is_inside = std::binary_search(nodes.begin(), nodes.end(), other) ||
                               std::binary_search(others.begin(), others.end(), other);
        if (!is_inside) return false;
      }
    }
    return true;
  }

  /// True when one call of both holds up neither `nodes` by what `others` wait for before they
  /// begin, nor what reads `nodes` by what waits among `others`: a call begins when all that it is
  /// fed is there, and is answered when all of it has run.
  bool may_wait_together(const std::vector<NodeId>& nodes, const std::vector<NodeId>& others) {
    if (!traces_.anything_waits()) return true;
    work_ += (nodes.size() + others.size()) * traces_.size() / 16;
    const auto is_inside = [&](NodeId id) {
      return std::binary_search(nodes.begin(), nodes.end(), id) ||
             std::binary_search(others.begin(), others.end(), id);
    };
    std::set<NodeId> own;
    for (const NodeId id : nodes) {
      if (region_.waits[id.value]) own.insert(id);
      for (const NodeId wait : traces_.waits_before(id)) own.insert(wait);
    }
    const bool is_read = std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) {
      const std::vector<NodeId>& readers = consumers_[id.value];
      return !std::all_of(readers.begin(), readers.end(), is_inside);
    });
    for (const NodeId id : others) {
      if (is_read && region_.waits[id.value] && !own.contains(id)) return false;
      for (const NodeId wait : traces_.waits_before(id)) {
        if (!own.contains(wait) && !is_inside(wait)) return false;
      }
    }
    return true;
  }

  /// Moves nodes of a call that only one later call to the same place reads into that one: what
  /// they make does not travel then.
  bool delay_one() {
    for (size_t from = 0; from < region_.groups.size(); ++from) {
      std::set<int32_t> later;
      for (const ir::Output& ret : region_.groups[from].rets) {
        for (const NodeId reader : consumers_[ret.node.value]) {
          later.insert(region_.owner[reader.value]);
        }
      }
      for (const int32_t to : later) {
        if (to < 0 || region_.groups[to].place != region_.groups[from].place) continue;
        if (static_cast<size_t>(to) == from) continue;
        const std::vector<NodeId> moved = movable(from, to);
        if (moved.empty() || moved.size() == region_.groups[from].nodes.size()) continue;
        if (try_merge(moved, region_.groups[to].nodes)) return true;
      }
    }
    return false;
  }

  /// The nodes of group `from` that nobody but group `to` reads, with all they need of `from`.
  std::vector<NodeId> movable(size_t from, int32_t to) const {
    std::set<NodeId> wanted;
    for (const Read& read : region_.results) {
      if (read.value.valid()) wanted.insert(read.value.node);
    }
    wanted.insert(region_.targets.begin(), region_.targets.end());
    const std::vector<NodeId>& nodes = region_.groups[from].nodes;
    std::set<NodeId> out;
    for (size_t i = nodes.size(); i-- > 0;) {
      const std::vector<NodeId>& readers = consumers_[nodes[i].value];
      const bool only_there = std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
        return out.contains(reader) || region_.owner[reader.value] == to;
      });
      const bool is_pure =
          !ir::has_effect(*region_.graph, region_.graph->node(nodes[i]), region_.rules->registry);
      if (only_there && is_pure && !readers.empty() && !wanted.contains(nodes[i])) {
        out.insert(nodes[i]);
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const NodeId id : nodes) {
        if (!out.contains(id)) continue;
        for (const Read& read : region_.reads[id.value]) {
          if (!read.value.valid()) continue;
          const NodeId source = read.value.node;
          const bool stays =
              region_.owner[source.value] == static_cast<int32_t>(from) && !out.contains(source);
          if (stays && out.erase(id) > 0) changed = true;
        }
      }
    }
    return {out.begin(), out.end()};
  }

  CallRegion& region_;
  Traces traces_;
  std::vector<std::vector<NodeId>> consumers_;  // By node.
  size_t work_ = 0;
};

}  // namespace

void merge_calls(CallRegion* region) {
  if (!region->rules->lite || region->groups.size() < 2) return;
  Merger(region).run();
}

}  // namespace sidereal::partition
