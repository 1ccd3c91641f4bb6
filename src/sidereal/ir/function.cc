#include "sidereal/ir/function.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "sidereal/base/hash.h"
#include "sidereal/ir/text.h"

namespace sidereal::ir {
namespace {

/// The number of Args at the front; an error when there are others or their numbers are wrong.
Result<size_t> count_args(const Graph& body) {
  size_t count = 0;
  for (const Node& node : body.nodes()) {
    if (node.op != kArgOp) continue;
    const auto index = attr_or<int64_t>(node.attrs, "index", -1);
    const auto at = static_cast<size_t>(node.id.value);
    if (at != count || index != static_cast<int64_t>(count) || node.outputs.size() != 1) {
      return base::invalid_argument(
          "function input '{}' is node {} with index {}; inputs come first, numbered from 0",
          node.name, at, index);
    }
    ++count;
  }
  return count;
}

Status check_results(const Graph& body, const std::vector<Output>& outputs,
                     const std::vector<NodeId>& targets) {
  const auto exists = [&](NodeId id) {
    return id.value >= 0 && static_cast<size_t>(id.value) < body.size();
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!exists(outputs[i].node) || outputs[i].index < 0 ||
        static_cast<size_t>(outputs[i].index) >= body.node(outputs[i].node).outputs.size()) {
      return base::invalid_argument("output {} of the function is not a value of its body", i);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!exists(targets[i])) {
      return base::invalid_argument("target {} of the function is not a node of its body", i);
    }
  }
  return {};
}

/// Dtypes equal and shapes not in contradiction.
Status check_inputs(const Function& function, const Graph& graph,
                    const std::vector<Output>& inputs) {
  if (inputs.size() != function.num_inputs()) {
    return base::invalid_argument("{} inputs for a function that takes {}", inputs.size(),
                                  function.num_inputs());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& given = graph.spec(inputs[i]);
    if (given.dtype == function.input(i).dtype) continue;
    return base::invalid_argument("input {} is {}; the function takes {}", i, to_string(given),
                                  to_string(function.input(i)));
  }
  return {};
}

class Inliner {
 public:
  Inliner(const Function& function, const OpRegistry& registry, std::string_view prefix,
          Graph* graph, const std::vector<NodeId>& after)
      : function_(function), registry_(registry), prefix_(prefix), graph_(*graph), after_(after) {}

  Result<Inlined> run(const std::vector<Output>& inputs) {
    out_.inputs = inputs;
    out_.nodes.resize(function_.body().size());
    for (const Node& node : function_.body().nodes()) {
      if (node.op != kArgOp) SR_RETURN_IF_ERROR(copy(node));
    }
    for (const Output& output : function_.outputs()) out_.outputs.push_back(out_.map(output));
    for (const NodeId target : function_.targets()) out_.targets.push_back(now(target));
    return std::move(out_);
  }

 private:
  [[nodiscard]] NodeId now(NodeId in_body) const { return out_.map(Output{in_body, 0}).node; }

  Status copy(const Node& from) {
    const OpSchema* schema = registry_.find(from.op);
    if (schema == nullptr) return base::not_found("there is no op named '{}'", from.op);
    Node node = from;
    node.name = graph_.unique_name(prefix_ + from.name);
    for (Output& input : node.inputs) input = out_.map(input);
    for (NodeId& control : node.control_inputs) control = now(control);
    if (schema->stateful) {
      node.control_inputs.insert(node.control_inputs.end(), after_.begin(), after_.end());
    }
    for (const std::string& attr : function_attrs(*schema)) {
      const auto found = node.attrs.find(attr);
      if (found == node.attrs.end()) continue;
      auto* name = std::get_if<std::string>(&found->second);
      const FunctionPtr held = name == nullptr ? nullptr : function_.body().find_function(*name);
      if (held != nullptr) *name = graph_.hold_function(*name, held);
    }
    SR_RETURN_IF_ERROR(infer_node(graph_, *schema, &node));
    out_.nodes[from.id.value] = graph_.append(std::move(node));
    return {};
  }

  const Function& function_;
  const OpRegistry& registry_;
  std::string prefix_;
  Graph& graph_;
  const std::vector<NodeId>& after_;
  Inlined out_;
};

/// Copies the part of a graph that lies between inputs and outputs. Thread: core-local.
class Cutter {
 public:
  Cutter(const Graph& graph, const Cut& cut, const OpRegistry& registry)
      : graph_(graph), cut_(cut), registry_(registry), needed_(graph.size()), now_(graph.size()) {}

  Result<FunctionPtr> run() {
    for (const CutInput& input : cut_.inputs) {
      SR_ASSIGN_OR_RETURN(const Output arg, add_arg(&body_, registry_, input.spec));
      if (input.value.valid()) args_.emplace(input.value, arg);
    }
    find_needed();
    for (const Node& node : graph_.nodes()) {
      if (needed_[node.id.value]) SR_RETURN_IF_ERROR(copy(node));
    }
    std::vector<Output> outputs;
    for (const Output& output : cut_.outputs) outputs.push_back(map(output));
    std::vector<NodeId> targets;
    for (const NodeId target : cut_.targets) targets.push_back(now_[target.value]);
    return Function::make(std::move(body_), std::move(outputs), std::move(targets));
  }

 private:
  [[nodiscard]] Output map(Output value) const {
    const auto arg = args_.find(value);
    return arg != args_.end() ? arg->second : Output{now_[value.node.value], value.index};
  }

  void need(Output value) {
    if (!args_.contains(value)) needed_[value.node.value] = true;
  }

  void find_needed() {
    for (const Output& output : cut_.outputs) need(output);
    for (const NodeId target : cut_.targets) needed_[target.value] = true;
    for (size_t i = graph_.size(); i-- > 0;) {
      if (!needed_[i]) continue;
      for (const Output& input : graph_.nodes()[i].inputs) need(input);
      if (!cut_.with_controls) continue;
      for (const NodeId control : graph_.nodes()[i].control_inputs) {
        // An Arg has no effect to wait for.
        if (graph_.node(control).op != kArgOp) needed_[control.value] = true;
      }
    }
  }

  Status copy(const Node& from) {
    if (from.op == kArgOp || from.op == "Placeholder") {
      return base::invalid_argument("'{}' ({}) is not among the inputs of the function", from.name,
                                    from.op);
    }
    Node node = from;
    node.name = body_.unique_name(from.name);
    for (Output& input : node.inputs) input = map(input);
    std::vector<NodeId> controls;
    for (const NodeId control : from.control_inputs) {
      if (now_[control.value].valid()) controls.push_back(now_[control.value]);
    }
    node.control_inputs = std::move(controls);
    SR_RETURN_IF_ERROR(hold_what(node));
    const OpSchema* schema = registry_.find(node.op);
    if (schema == nullptr) return base::not_found("there is no op named '{}'", node.op);
    SR_RETURN_IF_ERROR(infer_node(body_, *schema, &node));
    now_[from.id.value] = body_.append(std::move(node));
    return {};
  }

  /// Holds the functions that `node` names.
  Status hold_what(const Node& node) {
    for (const auto& [attr, value] : node.attrs) {
      const auto* name = std::get_if<std::string>(&value);
      if (name == nullptr) continue;
      const FunctionPtr function = graph_.find_function(*name);
      if (function != nullptr) SR_RETURN_IF_ERROR(body_.add_function(*name, function));
    }
    return {};
  }

  const Graph& graph_;
  const Cut& cut_;
  const OpRegistry& registry_;
  Graph body_;
  std::map<Output, Output> args_;  // By value of the graph.
  std::vector<bool> needed_;       // By node of the graph.
  std::vector<NodeId> now_;        // By node of the graph.
};

}  // namespace

Result<FunctionPtr> Function::make(Graph body, std::vector<Output> outputs,
                                   std::vector<NodeId> targets) {
  auto made = std::shared_ptr<Function>(new Function);
  SR_ASSIGN_OR_RETURN(made->num_inputs_, count_args(body));
  SR_RETURN_IF_ERROR(check_results(body, outputs, targets));
  for (const NamedFunction& held : body.functions()) {
    made->depth_ = std::max(made->depth_, held.function->depth() + 1);
  }
  if (made->depth_ > kMaxFunctionDepth) {
    return base::invalid_argument("functions are nested deeper than {} levels", kMaxFunctionDepth);
  }
  made->body_ = std::move(body);
  made->outputs_ = std::move(outputs);
  made->targets_ = std::move(targets);
  return FunctionPtr(std::move(made));
}

Result<Output> add_arg(Graph* body, const OpRegistry& registry, const TensorSpec& spec,
                       std::string_view name) {
  const OpSchema* schema = registry.find(kArgOp);
  if (schema == nullptr) return base::not_found("there is no op named '{}'", kArgOp);
  Node node;
  node.name = body->unique_name(name);
  node.op = std::string(kArgOp);
  node.attrs = {
      {"index", static_cast<int64_t>(body->size())}, {"dtype", spec.dtype}, {"shape", spec.shape}};
  SR_RETURN_IF_ERROR(infer_node(*body, *schema, &node));
  return Output{body->append(std::move(node)), 0};
}

Result<Inlined> inline_function(const Function& function, const std::vector<Output>& inputs,
                                const OpRegistry& registry, std::string_view prefix, Graph* graph,
                                const std::vector<NodeId>& after) {
  SR_RETURN_IF_ERROR(check_inputs(function, *graph, inputs));
  return Inliner(function, registry, prefix, graph, after).run(inputs);
}

Result<FunctionPtr> cut_function(const Graph& graph, const Cut& cut, const OpRegistry& registry) {
  std::vector<Output> values;
  for (const CutInput& input : cut.inputs) {
    if (input.value.valid()) values.push_back(input.value);
  }
  values.insert(values.end(), cut.outputs.begin(), cut.outputs.end());
  SR_RETURN_IF_ERROR(check_results(graph, values, cut.targets));
  return Cutter(graph, cut, registry).run();
}

std::vector<std::string> function_attrs(const OpSchema& schema) {
  std::vector<std::string> out;
  for (const AttrSpec& spec : schema.attrs) {
    if (spec.type == "function") out.push_back(spec.name);
  }
  return out;
}

namespace {

using Seen = absl::flat_hash_set<const Function*>;

/// True when `flag` is set in the schema of `node`, or of a node of a function it calls.
bool is_any(const Graph& graph, const Node& node, const OpRegistry& registry, bool OpSchema::*flag,
            Seen* seen) {
  const OpSchema* schema = registry.find(node.op);
  if (schema == nullptr || schema->*flag) return true;
  for (const std::string& attr : function_attrs(*schema)) {
    const auto* name = find_attr<std::string>(node.attrs, attr);
    const FunctionPtr called = name == nullptr ? nullptr : graph.find_function(*name);
    if (called == nullptr) return true;
    if (!seen->insert(called.get()).second) continue;
    for (const Node& inner : called->body().nodes()) {
      if (is_any(called->body(), inner, registry, flag, seen)) return true;
    }
  }
  return false;
}

}  // namespace

bool is_stateful(const Graph& graph, const Node& node, const OpRegistry& registry) {
  Seen seen;
  return is_any(graph, node, registry, &OpSchema::stateful, &seen);
}

bool has_effect(const Graph& graph, const Node& node, const OpRegistry& registry) {
  Seen seen;
  return is_any(graph, node, registry, &OpSchema::effect, &seen);
}

uint64_t content_hash(const Graph& graph) { return base::hash64(to_text(graph)); }

uint64_t content_hash(const Function& function) { return base::hash64(to_text(function)); }

}  // namespace sidereal::ir
