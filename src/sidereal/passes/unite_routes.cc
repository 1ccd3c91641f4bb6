#include "sidereal/passes/unite_routes.h"

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/ir/function.h"
#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;
using Ints = std::vector<int64_t>;

/// What Uniques of one UniqueRoute have in common.
struct Together {
  int32_t trips = 0;    ///< Changes of place before the ids are there.
  int32_t ordered = 0;  ///< The same when what has effects waits for what had before it.
  Ints lanes;           ///< How tables are cut.
  std::string device;   ///< Asked for.
  bool strict = false;  ///< Of negative ids.
  friend auto operator<=>(const Together&, const Together&) = default;
};

struct Group {
  Ints lanes;
  bool strict = false;
  std::vector<NodeId> uniques;
  std::vector<NodeId> routes;
};

class RouteUniter {
 public:
  RouteUniter(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step),
        registry_(registry),
        rewriter_(step.graph),
        readers_(step.graph.size()),
        group_of_(step.graph.size(), nullptr),
        done_(step.graph.size()) {
    for (const Node& node : step.graph.nodes()) {
      for (const Output& input : node.inputs) readers_[input.node.value].insert(node.id);
    }
  }

  Result<StepGraph> run() {
    find_effects();
    find_groups();
    if (groups_.empty()) return step_;
    for (const Node& node : step_.graph.nodes()) SR_RETURN_IF_ERROR(emit(node.id));
    return rewriter_.finish(step_);
  }

 private:
  [[nodiscard]] const Node& node(NodeId id) const { return step_.graph.node(id); }

  /// What has effects stays in the order of the graph.
  void find_effects() {
    before_.resize(step_.graph.size());
    NodeId last;
    for (const Node& node : step_.graph.nodes()) {
      if (!ir::has_effect(step_.graph, node, registry_)) continue;
      before_[node.id.value] = last;
      last = node.id;
    }
  }

  template <class F>
  void for_each_source(const Node& node, F f) const {
    for (const Output& input : node.inputs) f(input.node);
    for (const NodeId control : node.control_inputs) f(control);
  }

  /// By node: how often the place changes on the way to it, at most.
  [[nodiscard]] std::vector<int32_t> trips(bool with_order) const {
    std::vector<int32_t> out(step_.graph.size(), 0);
    for (const Node& node : step_.graph.nodes()) {
      int32_t& mine = out[node.id.value];
      const auto after = [&](NodeId id) {
        mine = std::max(mine, out[id.value] + (same_place(this->node(id), node) ? 0 : 1));
      };
      for_each_source(node, after);
      if (with_order && before_[node.id.value].valid()) after(before_[node.id.value]);
    }
    return out;
  }

  /// True for a Unique that nothing but Routes asks for distinct ids.
  [[nodiscard]] bool may_unite(const Node& unique, const std::vector<bool>& pinned) const {
    if (unique.op != "Unique" || pinned[unique.id.value]) return false;
    for (const NodeId id : readers_[unique.id.value]) {
      const Node& reader = node(id);
      const bool routes = reader.op == "Route" && same_place(reader, unique) && !pinned[id.value];
      for (const Output& input : reader.inputs) {
        if (input == Output{unique.id, 0} && !routes) return false;
      }
    }
    return true;
  }

  void find_groups() {
    const std::vector<bool> pinned = pinned_nodes(step_);
    const std::vector<int32_t> real = trips(false);
    const std::vector<int32_t> ordered = trips(true);
    std::map<Together, Group> groups;
    for (const Node& unique : step_.graph.nodes()) {
      if (!may_unite(unique, pinned)) continue;
      std::vector<NodeId> routes;
      std::set<Ints> lanes;
      for (const NodeId id : readers_[unique.id.value]) {
        if (node(id).op != "Route") continue;
        routes.push_back(id);
        const auto* cut = ir::find_attr<Ints>(node(id).attrs, "lanes");
        lanes.insert(cut == nullptr ? Ints{} : *cut);
      }
      if (lanes.size() != 1) continue;
      const bool strict = ir::attr_or(unique.attrs, "strict", false);
      Group& group = groups[{real[unique.id.value], ordered[unique.id.value], *lanes.begin(),
                             unique.device, strict}];
      group.lanes = *lanes.begin();
      group.strict = strict;
      group.uniques.push_back(unique.id);
      group.routes.insert(group.routes.end(), routes.begin(), routes.end());
    }
    for (auto& [key, group] : groups) {
      if (group.uniques.size() + group.routes.size() <= 2) continue;
      groups_.push_back(std::move(group));
    }
    for (const Group& group : groups_) {
      for (const NodeId id : group.uniques) group_of_[id.value] = &group;
      for (const NodeId id : group.routes) group_of_[id.value] = &group;
    }
  }

  /// Adds a node after all it needs; a group, before the first that reads of it.
  Status emit(NodeId id) {
    // Not by recursion: graphs may be deep.
    std::vector<NodeId> open = {id};
    while (!open.empty()) {
      const NodeId at = open.back();
      if (done_[at.value]) {
        open.pop_back();
        continue;
      }
      const auto needed = static_cast<std::ptrdiff_t>(open.size());
      for_each_need(at, [&](NodeId need) {
        if (!done_[need.value]) open.push_back(need);
      });
      if (static_cast<std::ptrdiff_t>(open.size()) > needed) {
        // The first one comes first.
        std::reverse(open.begin() + needed, open.end());
        continue;
      }
      open.pop_back();
      SR_RETURN_IF_ERROR(add(at));
    }
    return {};
  }

  template <class F>
  void for_each_need(NodeId id, F f) const {
    const Group* group = group_of_[id.value];
    if (group == nullptr) {
      for_each_source(node(id), f);
      if (before_[id.value].valid()) f(before_[id.value]);
      return;
    }
    for (const NodeId unique : group->uniques) f(node(unique).inputs[0].node);
  }

  Status add(NodeId id) {
    const Group* group = group_of_[id.value];
    if (group != nullptr) return add_group(*group);
    rewriter_.copy(node(id));
    done_[id.value] = true;
    return {};
  }

  Status add_group(const Group& group) {
    Node made;
    made.op = "UniqueRoute";
    made.name = "routes";
    put_beside(node(group.uniques[0]), &made);
    std::map<NodeId, int64_t> place;
    for (const NodeId id : group.uniques) {
      place[id] = static_cast<int64_t>(place.size());
      made.inputs.push_back(rewriter_.map(node(id).inputs[0]));
    }
    Ints of;
    Ints rows;
    std::vector<std::string> vars;
    for (const NodeId id : group.routes) {
      const Node& route = node(id);
      of.push_back(place.at(route.inputs[0].node));
      rows.push_back(ir::attr_or<int64_t>(route.attrs, "rows", 0));
      vars.push_back(ir::attr_or<std::string>(route.attrs, "var", ""));
    }
    made.attrs = {{"of", std::move(of)},
                  {"rows", std::move(rows)},
                  {"lanes", group.lanes},
                  {"vars", std::move(vars)}};
    if (group.strict) made.attrs["strict"] = true;
    SR_ASSIGN_OR_RETURN(const NodeId united, rewriter_.add(std::move(made), registry_));
    // Places of all ids, then what each Route gives.
    int32_t output = 0;
    for (const NodeId id : group.uniques) {
      rewriter_.replace(Output{id, 1}, Output{united, output++});
      done_[id.value] = true;
    }
    for (const NodeId id : group.routes) {
      for (size_t o = 0; o < node(id).outputs.size(); ++o) {
        rewriter_.replace(Output{id, static_cast<int32_t>(o)}, Output{united, output++});
      }
      done_[id.value] = true;
    }
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::vector<std::set<NodeId>> readers_;
  std::vector<NodeId> before_;  // By node with an effect: the one before it.
  std::vector<Group> groups_;
  std::vector<const Group*> group_of_;
  std::vector<bool> done_;
};

}  // namespace

Result<StepGraph> unite_routes(const StepGraph& step, const ir::OpRegistry& registry) {
  return RouteUniter(step, registry).run();
}

}  // namespace sidereal::passes
