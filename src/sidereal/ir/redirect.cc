#include "sidereal/ir/redirect.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sidereal/ir/colocation.h"
#include "sidereal/ir/control_ops.h"

namespace sidereal::ir {
namespace {

/// Takes a node away from beside those of `names`; whether it was to run there.
bool leave(const std::vector<std::string>& names, Node* node) {
  const auto it = node->attrs.find(kColocation);
  if (it == node->attrs.end()) return false;
  auto* groups = std::get_if<std::vector<std::string>>(&it->second);
  if (groups == nullptr) return false;
  const size_t left = std::erase_if(*groups, [&](const std::string& group) {
    return std::ranges::any_of(names, [&](std::string_view name) {
      return group.starts_with(kColocatedWith) &&
             std::string_view(group).substr(kColocatedWith.size()) == name;
    });
  });
  if (groups->empty()) node->attrs.erase(it);
  return left > 0;
}

class Redirecting {
 public:
  Redirecting(const Graph& graph, const Redirect& redirect) : from_(graph), redirect_(redirect) {}

  Result<Graph> run() {
    SR_RETURN_IF_ERROR(check());
    Graph out;
    out.mutable_functions() = {from_.functions().begin(), from_.functions().end()};
    numbers_.resize(from_.size());
    for (const NodeId id : first_) numbers_[id.value] = out.append(from_.node(id));
    std::vector<bool> is_moved(from_.size());
    for (const NodeId id : redirect_.nodes) is_moved[id.value] = !redirect_.handles.contains(id);
    for (const Node& node : from_.nodes()) {
      if (std::ranges::binary_search(first_, node.id)) continue;
      Node copy = node;
      if (is_moved[node.id.value]) SR_RETURN_IF_ERROR(use_others(&copy));
      for (Output& input : copy.inputs) {
        if (input.valid()) input.node = numbers_[input.node.value];
      }
      for (NodeId& before : copy.control_inputs) before = numbers_[before.value];
      numbers_[node.id.value] = out.append(std::move(copy));
    }
    return out;
  }

 private:
  /// Numbers are the graph's, and handles can come first.
  Status check() {
    std::vector<NodeId> all = redirect_.nodes;
    for (const auto& [from, to] : redirect_.handles) all.insert(all.end(), {from, to});
    for (const NodeId id : all) {
      if (id.value < 0 || static_cast<size_t>(id.value) >= from_.size()) {
        return base::invalid_argument("the graph has {} nodes, and none of number {}", from_.size(),
                                      id.value);
      }
    }
    for (const auto& [from, to] : redirect_.handles) {
      const Node& node = from_.node(to);
      if (!node.inputs.empty() || !node.control_inputs.empty()) {
        return base::invalid_argument(
            "node '{}' ({}) has inputs: it cannot be used in the place of '{}'", node.name, node.op,
            from_.node(from).name);
      }
      names_.push_back(from_.node(from).name);
      first_.push_back(to);
    }
    std::ranges::sort(first_);
    first_.erase(std::unique(first_.begin(), first_.end()), first_.end());
    return {};
  }

  Status use_others(Node* node) {
    for (Output& input : node->inputs) {
      const auto it = redirect_.handles.find(input.node);
      if (it == redirect_.handles.end()) continue;
      if (runs_functions(node->op)) {
        return base::invalid_argument(
            "node '{}' ({}) uses variable '{}' in a body, where it cannot be another one: read it "
            "outside, and give the body its value",
            node->name, node->op, from_.node(input.node).name);
      }
      input.node = it->second;
    }
    if (leave(names_, node)) node->device = redirect_.device;
    return {};
  }

  const Graph& from_;
  const Redirect& redirect_;
  std::vector<std::string> names_;  // Of handles that are not used any more.
  std::vector<NodeId> first_;       // In order.
  std::vector<NodeId> numbers_;     // Of the new graph, by those of the old one.
};

}  // namespace

Result<Graph> redirected(const Graph& graph, const Redirect& redirect) {
  return Redirecting(graph, redirect).run();
}

}  // namespace sidereal::ir
