#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "sidereal/partition/internal/call_plan.h"

// Layers. The level of a node outside of the driver is the number of times that a path to it leaves
// the driver, at least 1. Nodes of one place and level form one call, but for those that nodes
// which may wait for other steps hold up: what needs other ones, or none, must not wait with it. So
// a node's stage is its level and the set of all waiting nodes before it, and it among them; both
// only grow along edges, and nodes of equal stage are one call. Therefore no call waits for itself.
namespace sidereal::partition {

using ir::Node;
using ir::NodeId;

namespace {

/// Members of all sets together. Beyond, equal sets may get different numbers, which costs calls.
constexpr size_t kMembersMax = size_t{1} << 22;

/// Sets of waiting nodes; equal ones have the same number. Thread: core-local.
class WaitSets {
 public:
  static constexpr int32_t kNone = 0;

  WaitSets() { static_cast<void>(number_of({})); }

  int32_t joined(int32_t one, int32_t other) {
    if (one == other || other == kNone) return one;
    if (one == kNone) return other;
    const std::pair<int32_t, int32_t> key = std::minmax(one, other);
    if (const auto known = joined_.find(key); known != joined_.end()) return known->second;
    std::vector<int32_t> both;
    std::set_union(sets_[one].begin(), sets_[one].end(), sets_[other].begin(), sets_[other].end(),
                   std::back_inserter(both));
    return joined_[key] = number_of(std::move(both));
  }
  /// `set` and a node behind all of it.
  int32_t with(int32_t set, NodeId node) {
    std::vector<int32_t> both = sets_[set];
    both.push_back(node.value);
    return number_of(std::move(both));
  }

 private:
  /// `members` are sorted. Where there are too many, one that no other set has stands for them.
  int32_t number_of(std::vector<int32_t> members) {
    if (members_ + members.size() > kMembersMax) members = {-static_cast<int32_t>(sets_.size())};
    const auto next = static_cast<int32_t>(sets_.size());
    const auto [known, is_new] = numbers_.try_emplace(members, next);
    if (is_new) {
      members_ += members.size();
      sets_.push_back(std::move(members));
    }
    return known->second;
  }

  std::vector<std::vector<int32_t>> sets_;
  std::map<std::vector<int32_t>, int32_t> numbers_;
  std::map<std::pair<int32_t, int32_t>, int32_t> joined_;
  size_t members_ = 0;
};

struct Stage {
  int32_t level = 0;
  int32_t waits = WaitSets::kNone;
  friend auto operator<=>(const Stage&, const Stage&) = default;
};

/// Finds the stages of nodes. Thread: core-local.
class Stages {
 public:
  explicit Stages(const CallRegion& region)
      : region_(region), stages_(region.graph->size()), arrivals_(region.graph->size()) {}

  std::vector<int32_t> run() {
    std::map<std::pair<Stage, PlaceIndex>, int32_t> groups;
    std::vector<int32_t> out(region_.graph->size(), -1);
    for (const Node& node : region_.graph->nodes()) {
      if (region_.is_arg(node.id)) continue;
      if (region_.is_order(node.id)) {
        pass_on(node.id);
        continue;
      }
      find(node.id);
      const PlaceIndex place = region_.places[node.id.value];
      if (place == kDriver) continue;
      const auto index = static_cast<int32_t>(groups.size());
      out[node.id.value] = groups.try_emplace({stages_[node.id.value], place}, index).first->second;
    }
    return out;
  }

 private:
  /// Calls `f(place, stage)` for what `id` gives on.
  template <class F>
  void for_each_arrival(NodeId id, F f) const {
    if (region_.is_arg(id)) return;
    if (region_.is_order(id)) {
      for (const auto& [place, stage] : arrivals_[id.value]) f(place, stage);
    } else {
      f(region_.places[id.value], stages_[id.value]);
    }
  }

  void join(const Stage& other, Stage* stage) {
    stage->level = std::max(stage->level, other.level);
    stage->waits = waits_.joined(stage->waits, other.waits);
  }

  void pass_on(NodeId id) {
    for (const NodeId behind : region_.order_of(id)) {
      for_each_arrival(behind, [&](PlaceIndex place, const Stage& stage) {
        join(stage, &arrivals_[id.value][place]);
      });
    }
  }

  void find(NodeId id) {
    const PlaceIndex place = region_.places[id.value];
    Stage stage;
    if (place != kDriver) stage.level = 1;
    const auto add = [&](PlaceIndex from, Stage other) {
      if (place != kDriver && from != place) ++other.level;
      join(other, &stage);
    };
    for (const Read& read : region_.reads[id.value]) {
      if (read.value.valid()) for_each_arrival(read.value.node, add);
    }
    for (const NodeId before : region_.after[id.value]) for_each_arrival(before, add);
    if (region_.waits[id.value]) stage.waits = waits_.with(stage.waits, id);
    stages_[id.value] = stage;
  }

  const CallRegion& region_;
  std::vector<Stage> stages_;                          // By node.
  std::vector<std::map<PlaceIndex, Stage>> arrivals_;  // By node without a place.
  WaitSets waits_;
};

/// What must have run before each item.
std::vector<std::vector<int32_t>> find_before(const CallRegion& region) {
  const auto nodes = static_cast<int32_t>(region.graph->size());
  std::vector<std::vector<int32_t>> before(region.graph->size() + region.groups.size());
  const auto add = [&](int32_t item, NodeId source) {
    if (region.is_arg(source)) return;
    const int32_t from = region.item_of(source);
    if (from != item) before[item].push_back(from);
  };
  std::vector<std::vector<NodeId>> waits_of(region.groups.size());
  for (const Node& node : region.graph->nodes()) {
    const size_t i = node.id.value;
    if (!region.live[i] || region.is_arg(node.id)) continue;
    const int32_t item = region.item_of(node.id);
    for (const Read& read : region.reads[i]) {
      if (read.value.valid()) add(item, read.value.node);
    }
    if (item >= nodes) {
      std::vector<NodeId>& waits = waits_of[item - nodes];
      waits.insert(waits.end(), region.after[i].begin(), region.after[i].end());
      continue;
    }
    for (const NodeId source : region.after[i]) {
      // A NoOp of the driver stands for itself there.
      if (region.is_arg(source) || region.live[source.value]) {
        add(item, source);
      } else {
        for (const NodeId behind : region.expand({source})) add(item, behind);
      }
    }
  }
  for (size_t g = 0; g < waits_of.size(); ++g) {
    for (const NodeId source : region.expand(waits_of[g])) {
      add(nodes + static_cast<int32_t>(g), source);
    }
  }
  for (std::vector<int32_t>& items : before) {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
  }
  return before;
}

/// The longest chain of calls to each item; nothing when there is a circle.
std::vector<int32_t> find_rounds(const std::vector<std::vector<int32_t>>& before, size_t nodes) {
  std::vector<std::vector<int32_t>> readers(before.size());
  std::vector<size_t> missing(before.size());
  std::vector<int32_t> ready;
  for (size_t item = 0; item < before.size(); ++item) {
    for (const int32_t from : before[item]) readers[from].push_back(static_cast<int32_t>(item));
    missing[item] = before[item].size();
    if (missing[item] == 0) ready.push_back(static_cast<int32_t>(item));
  }
  std::vector<int32_t> rounds(before.size(), 0);
  size_t done = 0;
  for (; !ready.empty(); ++done) {
    const int32_t item = ready.back();
    ready.pop_back();
    if (static_cast<size_t>(item) >= nodes) ++rounds[item];
    for (const int32_t reader : readers[item]) {
      rounds[reader] = std::max(rounds[reader], rounds[item]);
      if (--missing[reader] == 0) ready.push_back(reader);
    }
  }
  if (done < before.size()) rounds.clear();
  return rounds;
}

void find_crossings(CallRegion* region) {
  const auto ret = [&](ir::Output value) {
    const int32_t from = region->owner[value.node.value];
    if (from >= 0) region->groups[from].rets.insert(value);
  };
  for (const Node& node : region->graph->nodes()) {
    if (!region->live[node.id.value] || region->is_arg(node.id)) continue;
    const int32_t to = region->owner[node.id.value];
    for (const Read& read : region->reads[node.id.value]) {
      if (!read.value.valid() || region->owner[read.value.node.value] == to) continue;
      ret(read.value);
      if (to >= 0) region->groups[to].args.insert(read.value);
    }
  }
  for (const Read& read : region->results) {
    if (read.value.valid()) ret(read.value);
  }
}

}  // namespace

std::vector<int32_t> layers_of(const CallRegion& region) { return Stages(region).run(); }

bool regroup(CallRegion* region, const std::vector<int32_t>& group_of) {
  const ir::Graph& graph = *region->graph;
  std::map<int32_t, int32_t> index;
  std::vector<int32_t> owner(graph.size(), -1);
  std::vector<CallGroup> groups;
  for (const Node& node : graph.nodes()) {
    const int32_t wanted = group_of[node.id.value];
    if (wanted < 0) continue;
    const auto [found, is_new] = index.try_emplace(wanted, static_cast<int32_t>(groups.size()));
    if (is_new) groups.emplace_back().place = region->places[node.id.value];
    CallGroup& group = groups[found->second];
    group.nodes.push_back(node.id);
    group.waits = group.waits || region->waits[node.id.value];
    owner[node.id.value] = found->second;
  }
  std::swap(region->owner, owner);
  std::swap(region->groups, groups);
  std::vector<std::vector<int32_t>> before = find_before(*region);
  std::vector<int32_t> rounds = find_rounds(before, graph.size());
  if (rounds.empty() && !before.empty()) {
    std::swap(region->owner, owner);
    std::swap(region->groups, groups);
    return false;
  }
  region->before = std::move(before);
  region->rounds = std::move(rounds);
  for (size_t g = 0; g < region->groups.size(); ++g) {
    region->groups[g].round = region->rounds[graph.size() + g];
  }
  find_crossings(region);
  return true;
}

}  // namespace sidereal::partition
