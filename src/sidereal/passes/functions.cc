#include "sidereal/passes/functions.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

using ir::FunctionPtr;
using ir::NamedFunction;
using ir::Node;
using ir::NodeId;
using ir::Output;

bool same_signature(const ir::Function& a, const ir::Function& b) {
  if (a.num_outputs() != b.num_outputs()) return false;
  for (size_t i = 0; i < a.num_outputs(); ++i) {
    if (a.output(i) != b.output(i)) return false;
  }
  return true;
}

/// Infers every node again, in order.
Status infer_again(ir::Graph* graph, const ir::OpRegistry& registry) {
  for (size_t i = 0; i < graph->size(); ++i) {
    Node& node = graph->mutable_node(NodeId(static_cast<int32_t>(i)));
    const ir::OpSchema* schema = registry.find(node.op);
    if (schema == nullptr) return base::not_found("there is no op named '{}'", node.op);
    SR_RETURN_IF_ERROR(ir::infer_node(*graph, *schema, &node));
  }
  return {};
}

/// Runs a pass over a tree of functions. Thread: core-local.
class Everywhere {
 public:
  Everywhere(const StepPass& pass, const ir::OpRegistry& registry)
      : pass_(pass), registry_(registry) {}

  Result<StepGraph> run(StepGraph step) {
    bool changed = false;
    for (NamedFunction& held : step.graph.mutable_functions()) {
      SR_ASSIGN_OR_RETURN(FunctionPtr made, rewritten(held.function));
      changed = changed || !same_signature(*held.function, *made);
      held.function = std::move(made);
    }
    if (changed) SR_RETURN_IF_ERROR(infer_again(&step.graph, registry_));
    return pass_(step);
  }

 private:
  Result<FunctionPtr> rewritten(const FunctionPtr& function) {
    if (const auto known = made_.find(function.get()); known != made_.end()) return known->second;
    SR_ASSIGN_OR_RETURN(StepGraph step,
                        run({function->body(), function->outputs(), function->targets()}));
    SR_ASSIGN_OR_RETURN(FunctionPtr made,
                        ir::Function::make(std::move(step.graph), std::move(step.fetches),
                                           std::move(step.targets)));
    made_.emplace(function.get(), made);
    return made;
  }

  const StepPass& pass_;
  const ir::OpRegistry& registry_;
  absl::flat_hash_map<const ir::Function*, FunctionPtr> made_;
};

class CallInliner {
 public:
  CallInliner(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step), registry_(registry), rewriter_(step.graph), waited_for_(step.graph.size()) {}

  Result<StepGraph> run() {
    for (const NodeId target : step_.targets) waited_for_[target.value] = true;
    for (const Node& node : step_.graph.nodes()) {
      for (const NodeId control : node.control_inputs) waited_for_[control.value] = true;
      if (node.op == "FunctionCall") ++calls_[called(node, "function")];
    }
    for (const Node& node : step_.graph.nodes()) {
      const FunctionPtr function = function_for(node);
      if (function == nullptr) {
        rewriter_.copy(node);
      } else {
        SR_RETURN_IF_ERROR(base::with_context(put_inline(node, *function),
                                              fmt::format("node '{}' ({})", node.name, node.op)));
      }
    }
    StepGraph out = rewriter_.finish(step_);
    out.targets.insert(out.targets.end(), more_targets_.begin(), more_targets_.end());
    return out;
  }

 private:
  [[nodiscard]] FunctionPtr called(const Node& node, std::string_view attr) const {
    return step_.graph.find_function(ir::attr_or<std::string>(node.attrs, attr, ""));
  }

  /// What to put in the place of `node`, or nullptr.
  [[nodiscard]] FunctionPtr function_for(const Node& node) const {
    if (node.op == "FunctionCall") {
      FunctionPtr function = called(node, "function");
      return calls_.at(function) == 1 ? function : nullptr;
    }
    if (node.op != "If") return nullptr;
    const Node& predicate = rewriter_.graph().node(rewriter_.map(node.inputs[0]).node);
    const auto* value = ir::find_attr<ir::Tensor>(predicate.attrs, "value");
    if (predicate.op != "Const" || value == nullptr || value->num_elements() != 1) return nullptr;
    return called(node, value->data<const bool>()[0] ? "then_branch" : "else_branch");
  }

  Status put_inline(const Node& node, const ir::Function& function) {
    std::vector<Output> inputs = rewriter_.map(node.inputs);
    if (node.op == "If") inputs.erase(inputs.begin());
    SR_ASSIGN_OR_RETURN(
        const ir::Inlined inlined,
        ir::inline_function(function, inputs, registry_, free_prefix(node.name),
                            rewriter_.mutable_graph(), rewriter_.map(node.control_inputs)));
    for (const NodeId id : inlined.nodes) {
      if (!id.valid()) continue;
      Node& copy = rewriter_.mutable_graph()->mutable_node(id);
      if (copy.device.empty()) put_beside(node, &copy);
    }
    for (size_t i = 0; i < inlined.outputs.size(); ++i) {
      rewriter_.replace(Output{node.id, static_cast<int32_t>(i)}, inlined.outputs[i]);
    }
    if (!waited_for_[node.id.value] && inlined.targets.empty()) return {};
    // Stands for the call where somebody waits for it.
    Node done;
    done.op = "NoOp";
    done.name = node.name;
    put_beside(node, &done);
    done.control_inputs = inlined.targets;
    for (const Output& output : inlined.outputs) done.control_inputs.push_back(output.node);
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(done), registry_));
    rewriter_.replace(node.id, id);
    if (!inlined.targets.empty()) more_targets_.push_back(id);
    return {};
  }

  /// `name`/, or something like it with which no name begins yet.
  [[nodiscard]] std::string free_prefix(const std::string& name) const {
    std::string prefix = name + "/";
    const auto taken = [&](const Node& node) { return node.name.starts_with(prefix); };
    for (int i = 1; std::any_of(step_.graph.nodes().begin(), step_.graph.nodes().end(), taken);
         ++i) {
      prefix = fmt::format("{}/{}/", name, i);
    }
    return prefix;
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::vector<bool> waited_for_;  // By node.
  absl::flat_hash_map<FunctionPtr, int> calls_;
  std::vector<NodeId> more_targets_;  // What inlined functions run for what they do.
};

}  // namespace

Result<StepGraph> apply_everywhere(StepGraph step, const StepPass& pass,
                                   const ir::OpRegistry& registry) {
  return Everywhere(pass, registry).run(std::move(step));
}

Result<StepGraph> inline_calls(const StepGraph& step, const ir::OpRegistry& registry) {
  if (step.graph.functions().empty()) return step;
  return CallInliner(step, registry).run();
}

}  // namespace sidereal::passes
