#include "sidereal/ir/verify.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/text.h"

namespace sidereal::ir {
namespace {

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

Status check_edges(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Output input = node.inputs[i];
    if (input.node.value < 0 || input.node.value >= node.id.value) {
      return base::invalid_argument("input {} is not an earlier node", i);
    }
    const Node& from = graph.node(input.node);
    if (input.index < 0 || static_cast<size_t>(input.index) >= from.outputs.size()) {
      return base::invalid_argument("input {} is output {} of '{}', which has {} outputs", i,
                                    input.index, from.name, from.outputs.size());
    }
  }
  for (const NodeId control : node.control_inputs) {
    if (control.value < 0 || control.value >= node.id.value) {
      return base::invalid_argument("a control input is not an earlier node");
    }
  }
  return {};
}

/// True when a value of one shape may be of the other: what is known of both agrees.
bool agree(const Shape& a, const Shape& b) {
  if (!a.has_rank() || !b.has_rank()) return true;
  if (a.rank() != b.rank()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dim(i) >= 0 && b.dim(i) >= 0 && a.dim(i) != b.dim(i)) return false;
  }
  return true;
}

Status check_outputs(const Node& node, const std::vector<TensorSpec>& expected) {
  if (node.outputs.size() != expected.size()) {
    return base::invalid_argument("{} outputs are recorded; the op makes {}", node.outputs.size(),
                                  expected.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    // Inference may know more or less than when the node was made: see InferContext::constant().
    if (node.outputs[i].dtype == expected[i].dtype &&
        agree(node.outputs[i].shape, expected[i].shape)) {
      continue;
    }
    return base::invalid_argument("output {} is recorded as {}; the op makes {}", i,
                                  to_string(node.outputs[i]), to_string(expected[i]));
  }
  return {};
}

Status check_node(const Graph& graph, const OpRegistry& registry, const Node& node) {
  if (!is_legal_name(node.name)) {
    return base::invalid_argument("'{}' is not a legal node name: {}", node.name, kNameRule);
  }
  const OpSchema* schema = registry.find(node.op);
  if (schema == nullptr) return base::not_found("there is no op named '{}'", node.op);
  SR_RETURN_IF_ERROR(check_edges(graph, node));
  Node copy = node;
  SR_RETURN_IF_ERROR(infer_node(graph, *schema, &copy));
  return check_outputs(node, copy.outputs);
}

/// One node's line, cut where it gets too long for a message.
std::string printed(const Graph& graph, const Node& node) {
  constexpr size_t kMaxPrinted = 300;
  if (std::any_of(node.inputs.begin(), node.inputs.end(), [](Output o) { return !o.valid(); })) {
    return node.op + " '" + node.name + "'";
  }
  for (const auto& [name, value] : node.attrs) {
    const auto* tensor = std::get_if<Tensor>(&value);
    if (tensor != nullptr && tensor->num_elements() > 64) return node.op + " '" + node.name + "'";
  }
  std::string text = to_text(graph, node);
  if (text.size() > kMaxPrinted) text = text.substr(0, kMaxPrinted) + "...";
  return text;
}

}  // namespace

bool is_legal_name(std::string_view name) {
  constexpr std::string_view kLater = "_.\\/>-";
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  if (!is_alphanumeric(name[0]) && name[0] != '.') return false;
  return std::all_of(name.begin() + 1, name.end(), [&](char c) {
    return is_alphanumeric(c) || kLater.find(c) != std::string_view::npos;
  });
}

namespace {

using Verified = absl::flat_hash_set<const Function*>;

Status verify_content(const Graph& graph, const OpRegistry& registry, Verified* verified);

/// Every function that `graph` holds, each once.
Status verify_functions(const Graph& graph, const OpRegistry& registry, Verified* verified) {
  absl::flat_hash_set<std::string> names;
  for (const NamedFunction& held : graph.functions()) {
    if (!is_legal_name(held.name)) {
      return base::invalid_argument("'{}' is not a legal function name: {}", held.name, kNameRule);
    }
    if (!names.insert(held.name).second) {
      return base::already_exists("two functions are named '{}'", held.name);
    }
    if (!verified->insert(held.function.get()).second) continue;
    SR_RETURN_IF_ERROR(base::with_context(verify_content(held.function->body(), registry, verified),
                                          fmt::format("function '{}'", held.name)));
  }
  return {};
}

Status verify_content(const Graph& graph, const OpRegistry& registry, Verified* verified) {
  SR_RETURN_IF_ERROR(verify_functions(graph, registry, verified));
  absl::flat_hash_set<std::string> names;
  for (const Node& node : graph.nodes()) {
    Status status = check_node(graph, registry, node);
    if (status.ok() && !names.insert(node.name).second) {
      status = base::already_exists("another node is named '{}' too", node.name);
    }
    if (!status.ok()) {
      return base::make_status(status.code(), fmt::format("{}\n  in: {}", base::message_of(status),
                                                          printed(graph, node)));
    }
  }
  return {};
}

}  // namespace

Status verify(const Graph& graph, const OpRegistry& registry) {
  Verified verified;
  return verify_content(graph, registry, &verified);
}

}  // namespace sidereal::ir
