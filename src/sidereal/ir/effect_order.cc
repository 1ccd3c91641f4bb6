#include "sidereal/ir/effect_order.h"

#include <algorithm>
#include <set>
#include <string>

#include "sidereal/ir/function.h"

namespace sidereal::ir {

namespace {

/// What a node does outside of its graph.
struct Uses {
  bool all = false;                 ///< Not known, or more than variables: it comes after all.
  bool changes = false;             ///< Some of `variables`.
  std::set<Output> variables = {};  ///< Handles; none: it does nothing.
};

/// Each once. A string that is none puts nodes in order that need not be.
std::set<Output> handles(const Graph& graph, const Node& node) {
  std::set<Output> out;
  for (const Output& input : node.inputs) {
    if (graph.spec(input).dtype == DType::kString) out.insert(input);
  }
  return out;
}

Uses uses_of(const Graph& graph, const Node& node, const OpRegistry& registry);

/// Adds what a body does to what the node does that runs it.
void add_body(const Graph& body, const OpRegistry& registry, Uses* to) {
  for (const Node& node : body.nodes()) {
    const Uses inner = uses_of(body, node, registry);
    to->all = to->all || inner.all;
    to->changes = to->changes || inner.changes;
    for (const Output& variable : inner.variables) {
      // What is not handed to the body is not known around it.
      to->all = to->all || body.node(variable.node).op != kArgOp;
      to->variables.insert(variable);
    }
  }
}

Uses uses_of(const Graph& graph, const Node& node, const OpRegistry& registry) {
  const OpSchema* const schema = registry.find(node.op);
  if (schema == nullptr) return {.all = true};
  const std::vector<std::string> bodies = function_attrs(*schema);
  if (bodies.empty()) {
    const bool is_of_variable = schema->handle_inputs > 0 && node.op.starts_with("Variable");
    if (!is_of_variable) return {.all = schema->effect};
    return {.changes = schema->effect, .variables = handles(graph, node)};
  }
  Uses out{.all = schema->effect};
  for (const std::string& attr : bodies) {
    const auto* const name = find_attr<std::string>(node.attrs, attr);
    const FunctionPtr called = name == nullptr ? nullptr : graph.find_function(*name);
    if (called == nullptr) return {.all = true};
    add_body(called->body(), registry, &out);
  }
  if (!out.variables.empty()) out.variables = handles(graph, node);
  return out;
}

}  // namespace

void EffectOrder::add(Graph* graph, NodeId id, const OpRegistry& registry) {
  const Uses uses = uses_of(*graph, graph->node(id), registry);
  std::set<NodeId> before;
  if (uses.all) {
    before.insert(since_.begin(), since_.end());
    if (since_.empty()) before.insert(last_of_all_);
    since_.clear();
    variables_.clear();
    last_of_all_ = id;
  } else if (!uses.variables.empty()) {
    for (const Output& variable : uses.variables) {
      Users& users = variables_[variable];
      if (uses.changes && !users.readers.empty()) {
        before.insert(users.readers.begin(), users.readers.end());
      } else {
        before.insert(users.writer.valid() ? users.writer : last_of_all_);
      }
      if (uses.changes) {
        users = {.writer = id, .readers = {}};
      } else {
        users.readers.push_back(id);
      }
    }
    since_.push_back(id);
  }
  std::vector<NodeId>& controls = graph->mutable_node(id).control_inputs;
  for (const NodeId node : before) {
    const bool is_known = std::ranges::find(controls, node) != controls.end();
    if (node.valid() && !is_known) controls.push_back(node);
  }
}

}  // namespace sidereal::ir
