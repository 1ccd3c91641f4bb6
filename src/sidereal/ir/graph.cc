#include "sidereal/ir/graph.h"

#include <limits>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"
#include "sidereal/ir/verify.h"

namespace sidereal::ir {

std::string to_string(const TensorSpec& spec) {
  return std::string(tensor::name_of(spec.dtype)) + spec.shape.to_string();
}

NodeId Graph::append(Node node) {
  SR_CHECK(nodes_.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  const NodeId id(static_cast<int32_t>(nodes_.size()));
  node.id = id;
  by_name_.try_emplace(node.name, id);
  nodes_.push_back(std::move(node));
  return id;
}

const Node* Graph::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &nodes_[it->second.value];
}

Status Graph::add_function(std::string_view name, FunctionPtr function) {
  SR_CHECK(function != nullptr);
  if (const FunctionPtr found = find_function(name); found != nullptr) {
    if (found == function) return {};
    return base::already_exists("the graph holds another function named '{}'", name);
  }
  functions_.push_back({std::string(name), std::move(function)});
  return {};
}

std::string Graph::hold_function(std::string_view wanted, const FunctionPtr& function) {
  for (const NamedFunction& held : functions_) {
    if (held.function == function) return held.name;
  }
  std::string name(wanted);
  // Names are not longer than kMaxNameBytes.
  const std::string_view stem = wanted.substr(0, kMaxNameBytes - 16);
  for (int i = 1; find_function(name) != nullptr; ++i) name = fmt::format("{}_{}", stem, i);
  functions_.push_back({name, function});
  return name;
}

FunctionPtr Graph::find_function(std::string_view name) const {
  for (const NamedFunction& held : functions_) {
    if (held.name == name) return held.function;
  }
  return nullptr;
}

std::string Graph::output_name(Output o) const {
  if (!o.valid()) return "none";
  const std::string& name = node(o.node).name;
  return o.index == 0 ? name : fmt::format("{}:{}", name, o.index);
}

Result<Output> Graph::find_output(std::string_view name) const {
  std::string_view node_name = name;
  int64_t index = 0;
  if (const size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    node_name = name.substr(0, colon);
    const Result<int64_t> parsed = base::parse_int(name.substr(colon + 1));
    if (!parsed.ok() || *parsed < 0) {
      return base::invalid_argument("'{}' is not an output name; write 'node' or 'node:index'",
                                    name);
    }
    index = *parsed;
  }
  const Node* found = find(node_name);
  if (found == nullptr) {
    return base::not_found("the graph has no node named '{}'", node_name);
  }
  if (index >= static_cast<int64_t>(found->outputs.size())) {
    return base::invalid_argument("node '{}' ({}) has {} outputs; there is no output {}",
                                  found->name, found->op, found->outputs.size(), index);
  }
  return Output{found->id, static_cast<int32_t>(index)};
}

std::string Graph::unique_name(std::string_view wanted) {
  std::string name(wanted);
  if (!by_name_.contains(name)) return name;
  int64_t& uses = name_uses_[name];
  std::string candidate;
  do {
    candidate = fmt::format("{}_{}", name, ++uses);
  } while (by_name_.contains(candidate));
  return candidate;
}

}  // namespace sidereal::ir
