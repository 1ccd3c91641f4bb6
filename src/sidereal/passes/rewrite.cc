#include "sidereal/passes/internal/rewrite.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "sidereal/base/check.h"

namespace sidereal::passes {

Rewriter::Rewriter(const ir::Graph& from) : from_(from), map_(from.size()) {
  to_.mutable_functions() = from.functions();
}

ir::NodeId Rewriter::copy(const ir::Node& node) {
  ir::Node made = node;
  made.inputs = map(node.inputs);
  made.control_inputs = map(node.control_inputs);
  const ir::NodeId id = to_.append(std::move(made));
  replace(node.id, id);
  return id;
}

Result<ir::NodeId> Rewriter::add(ir::Node node, const ir::OpRegistry& registry) {
  const std::string wanted = node.name;
  for (int i = 1; from_.find(node.name) != nullptr || to_.find(node.name) != nullptr; ++i) {
    node.name = fmt::format("{}_{}", wanted, i);
  }
  return add_as(std::move(node), registry);
}

Result<ir::NodeId> Rewriter::add_beside(const ir::Node& like, std::string op,
                                        std::vector<ir::Output> inputs, ir::AttrMap attrs,
                                        std::string name, const ir::OpRegistry& registry,
                                        std::vector<ir::NodeId> controls) {
  ir::Node made;
  made.op = std::move(op);
  made.name = std::move(name);
  made.inputs = std::move(inputs);
  made.attrs = std::move(attrs);
  made.control_inputs = std::move(controls);
  put_beside(like, &made);
  return add(std::move(made), registry);
}

Result<ir::NodeId> Rewriter::add_as(ir::Node node, const ir::OpRegistry& registry) {
  const ir::OpSchema* schema = registry.find(node.op);
  if (schema == nullptr) return base::not_found("there is no op named '{}'", node.op);
  SR_RETURN_IF_ERROR(ir::infer_node(to_, *schema, &node));
  return to_.append(std::move(node));
}

ir::Output Rewriter::map(ir::Output old) const {
  const auto value = values_.find(old);
  return value != values_.end() ? value->second : ir::Output{map(old.node), old.index};
}

ir::NodeId Rewriter::map(ir::NodeId old) const {
  const ir::NodeId now = map_[old.value];
  SR_CHECK(now.valid(), "node '{}' was dropped but is still read", from_.node(old).name);
  return now;
}

std::vector<ir::Output> Rewriter::map(const std::vector<ir::Output>& old) const {
  std::vector<ir::Output> out;
  out.reserve(old.size());
  for (const ir::Output& o : old) out.push_back(map(o));
  return out;
}

std::vector<ir::NodeId> Rewriter::map(const std::vector<ir::NodeId>& old) const {
  std::vector<ir::NodeId> out;
  for (const ir::NodeId id : old) {
    const ir::NodeId now = map(id);
    if (std::find(out.begin(), out.end(), now) == out.end()) out.push_back(now);
  }
  return out;
}

namespace {

/// Drops the functions that no node names.
void drop_unused_functions(ir::Graph* graph) {
  if (graph->functions().empty()) return;
  absl::flat_hash_set<std::string> named;
  for (const ir::Node& node : graph->nodes()) {
    for (const auto& [attr, value] : node.attrs) {
      if (const auto* name = std::get_if<std::string>(&value)) named.insert(*name);
    }
  }
  std::erase_if(graph->mutable_functions(),
                [&](const ir::NamedFunction& held) { return !named.contains(held.name); });
}

}  // namespace

StepGraph Rewriter::finish(const StepGraph& step) {
  drop_unused_functions(&to_);
  StepGraph out;
  out.fetches = map(step.fetches);
  out.targets = map(step.targets);
  out.graph = std::exchange(to_, {});
  return out;
}

std::vector<std::vector<ir::NodeId>> readers_of(const ir::Graph& graph) {
  std::vector<std::vector<ir::NodeId>> readers(graph.size());
  for (const ir::Node& node : graph.nodes()) {
    for (const ir::Output& input : node.inputs) readers[input.node.value].push_back(node.id);
  }
  return readers;
}

bool same_place(const ir::Node& a, const ir::Node& b) { return a.device == b.device; }

void put_beside(const ir::Node& like, ir::Node* made) { made->device = like.device; }

std::vector<bool> pinned_nodes(const StepGraph& step) {
  std::vector<bool> pinned(step.graph.size());
  for (const ir::Node& node : step.graph.nodes()) {
    if (!node.control_inputs.empty()) pinned[node.id.value] = true;
    for (const ir::NodeId control : node.control_inputs) pinned[control.value] = true;
  }
  for (const ir::Output& fetch : step.fetches) pinned[fetch.node.value] = true;
  for (const ir::NodeId target : step.targets) pinned[target.value] = true;
  return pinned;
}

}  // namespace sidereal::passes
