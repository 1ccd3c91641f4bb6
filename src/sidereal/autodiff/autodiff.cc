#include "sidereal/autodiff/autodiff.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sidereal/autodiff/internal/body_gradient.h"
#include "sidereal/autodiff/internal/control_flow.h"
#include "sidereal/base/check.h"
#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/function.h"
#include "sidereal/ops/ops.h"

namespace sidereal::autodiff {
namespace {

using ir::Builder;
using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::OpSchema;
using ir::Output;

bool is_real(DType dtype) { return is_differentiable(dtype); }

Status check_loss(const Builder& b, Output loss) {
  SR_RETURN_IF_ERROR(b.status());
  const DType dtype = b.spec(loss).dtype;
  if (is_real(dtype)) return {};
  return base::invalid_argument(
      "the loss is {}; it must be an output of a float dtype",
      dtype == DType::kInvalid ? "not an output of this graph" : tensor::name_of(dtype));
}

/// One run of the reverse pass. Thread: core-local. Borrows the builder.
class Reverse {
 public:
  Reverse(Builder* builder, const std::vector<Output>& ys, const std::vector<Output>& grad_ys,
          const std::vector<Output>& wrt)
      : b_(*builder), ys_(ys), grad_ys_(grad_ys), wrt_(wrt) {
    for (const Output& y : ys) last_ = std::max(last_, y.node.value);
  }

  Result<std::vector<Output>> run() {
    mark_dependents();
    Builder::Scope scope = b_.scope("gradients");
    for (size_t i = 0; i < ys_.size(); ++i) {
      pending_[ys_[i]].push_back(grad_ys_[i].valid() ? grad_ys_[i] : ops::ones_like(b_, ys_[i]));
    }
    for (int32_t i = last_; i >= 0; --i) {
      if (depends_[i]) SR_RETURN_IF_ERROR(visit(NodeId(i)));
    }
    SR_RETURN_IF_ERROR(b_.status());
    std::vector<Output> out;
    for (const Output& o : wrt_) {
      const auto it = summed_.find(o);
      out.push_back(it == summed_.end() ? Output{} : it->second);
    }
    return out;
  }

 private:
  /// Marks the nodes through which a gradient can reach one of wrt.
  void mark_dependents() {
    const ir::Graph& graph = b_.graph();
    depends_.assign(last_ + 1, false);
    for (const Output& o : wrt_) {
      if (o.valid() && o.node.value <= last_ && is_real(b_.spec(o).dtype)) {
        depends_[o.node.value] = true;
      }
    }
    for (int32_t i = 0; i <= last_; ++i) {
      if (!depends_[i]) depends_[i] = has_dependent_input(graph.node(NodeId(i)));
    }
  }

  [[nodiscard]] bool has_dependent_input(const Node& node) const {
    for (const Output& input : node.inputs) {
      if (depends_[input.node.value] && is_real(b_.spec(input).dtype)) return true;
    }
    return false;
  }

  [[nodiscard]] std::vector<bool> wanted_inputs(const Node& node) const {
    std::vector<bool> out;
    for (const Output& input : node.inputs) {
      out.push_back(depends_[input.node.value] && is_real(b_.spec(input).dtype));
    }
    return out;
  }

  /// Sums what has come in for the outputs of `id` and passes it on to its inputs.
  Status visit(NodeId id) {
    // A copy: the rule adds nodes, which moves the graph's.
    const Node node = b_.graph().node(id);
    Builder::Scope scope = b_.scope(node.name + "_grad");
    std::vector<Output> output_grads(node.outputs.size());
    bool any = false;
    for (size_t k = 0; k < output_grads.size(); ++k) {
      const Output output{id, static_cast<int32_t>(k)};
      const auto it = pending_.find(output);
      if (it == pending_.end()) continue;
      output_grads[k] = it->second.size() == 1 ? it->second[0] : ops::add_n(b_, it->second);
      summed_[output] = output_grads[k];
      pending_.erase(it);
      any = true;
    }
    if (!any || !has_dependent_input(node)) return {};
    return apply_rule(node, output_grads);
  }

  Status apply_rule(const Node& node, const std::vector<Output>& output_grads) {
    const OpSchema* schema = b_.registry().find(node.op);
    if (schema == nullptr || !schema->differentiable || schema->gradient == nullptr) {
      return base::unimplemented(
          "{} '{}' lies between the loss and what it is differentiated by, and {} has no gradient; "
          "put StopGradient before or after it if none should flow",
          node.op, node.name, node.op);
    }
    std::vector<Output> input_grads(node.inputs.size());
    const std::vector<bool> wanted = wanted_inputs(node);
    ir::GradContext context{b_, node, output_grads, &input_grads, &wanted};
    Status status = is_control_flow(node.op) ? add_control_gradient(context, wanted)
                                             : schema->gradient(context);
    if (status.ok()) status = b_.status();
    if (!status.ok()) {
      return base::with_context(status, fmt::format("gradient of {} '{}'", node.op, node.name));
    }
    for (size_t i = 0; i < input_grads.size(); ++i) {
      const Output input = node.inputs[i];
      if (!input_grads[i].valid() || !depends_[input.node.value]) continue;
      SR_CHECK(b_.spec(input_grads[i]).dtype == b_.spec(input).dtype,
               "the gradient rule of {} changes the dtype", node.op);
      pending_[input].push_back(input_grads[i]);
    }
    return {};
  }

  Builder& b_;
  const std::vector<Output>& ys_;
  const std::vector<Output>& grad_ys_;
  const std::vector<Output>& wrt_;
  int32_t last_ = -1;
  std::vector<bool> depends_;
  std::map<Output, std::vector<Output>> pending_;
  std::map<Output, Output> summed_;
};

/// The reads of one variable and their gradients.
struct Reads {
  std::string variable;
  bool sparse = false;
  std::vector<Output> outputs;
  std::vector<Output> ids;
  std::vector<Output> grads;
};

/// The first node in `function`, or in one that it holds, that reads a trainable variable.
const Node* find_trained(const ir::Function& function, std::set<const ir::Function*>* seen) {
  if (!seen->insert(&function).second) return nullptr;
  for (const Node& node : function.body().nodes()) {
    if (node.op != "Lookup" && node.op != "ReadVariable") continue;
    const auto* variable =
        function.body().find_variable(ir::attr_or<std::string>(node.attrs, "var", ""));
    if (variable != nullptr && variable->trainable) return &node;
  }
  for (const ir::NamedFunction& held : function.body().functions()) {
    if (const Node* found = find_trained(*held.function, seen)) return found;
  }
  return nullptr;
}

/// Every ReadVariable and Lookup up to `last`, by variable, in the order they are first read.
std::vector<Reads> collect_reads(const ir::Graph& graph, NodeId last) {
  std::vector<Reads> out;
  std::map<std::string, size_t, std::less<>> index;
  for (int32_t i = 0; i <= last.value; ++i) {
    const Node& node = graph.node(NodeId(i));
    const bool sparse = node.op == "Lookup";
    if (!sparse && node.op != "ReadVariable") continue;
    const auto* name = ir::find_attr<std::string>(node.attrs, "var");
    if (name == nullptr) continue;
    const auto [it, added] = index.try_emplace(*name, out.size());
    if (added) out.push_back({*name, sparse, {}, {}, {}});
    Reads& reads = out[it->second];
    reads.outputs.push_back({node.id, 0});
    if (sparse) reads.ids.push_back(node.inputs[0]);
  }
  return out;
}

/// Ok when `loss` depends on no trainable variable that the body of a function reads: gradients do
/// not come out of there.
Status check_bodies(const ir::Graph& graph, Output loss, const ir::OpRegistry& registry) {
  std::vector<bool> leads(graph.size(), false);
  leads[loss.node.value] = true;
  std::set<const ir::Function*> seen;
  for (int32_t i = loss.node.value; i >= 0; --i) {
    if (!leads[i]) continue;
    const Node& node = graph.node(NodeId(i));
    for (const Output& input : node.inputs) leads[input.node.value] = true;
    if (!ir::runs_functions(node.op)) continue;
    for (const std::string& attr : ir::function_attrs(*registry.find(node.op))) {
      const auto function = graph.find_function(ir::attr_or<std::string>(node.attrs, attr, ""));
      const Node* inner = function == nullptr ? nullptr : find_trained(*function, &seen);
      if (inner == nullptr) continue;
      return base::unimplemented(
          "{} '{}': its function reads the trainable variable '{}' in node '{}'; to train it, read "
          "it outside and let the function capture its value",
          node.op, node.name, ir::attr_or<std::string>(inner->attrs, "var", ""), inner->name);
    }
  }
  return {};
}

/// Keeps the reads that a gradient reached. False when there are none.
bool keep_reached(Reads* reads) {
  Reads kept;
  for (size_t i = 0; i < reads->grads.size(); ++i) {
    if (!reads->grads[i].valid()) continue;
    kept.grads.push_back(reads->grads[i]);
    if (reads->sparse) kept.ids.push_back(reads->ids[i]);
  }
  reads->grads = std::move(kept.grads);
  reads->ids = std::move(kept.ids);
  return !reads->grads.empty();
}

VariableGradient join_dense(Builder& b, const Reads& reads) {
  const Output grad = reads.grads.size() == 1 ? reads.grads[0] : ops::add_n(b, reads.grads);
  return {.variable = reads.variable, .sparse = false, .grad = grad, .ids = {}};
}

VariableGradient join_sparse(Builder& b, const Reads& reads) {
  VariableGradient out{.variable = reads.variable, .sparse = true, .grad = {}, .ids = {}};
  if (reads.grads.size() == 1) {
    out.grad = reads.grads[0];
    out.ids = reads.ids[0];
    return out;
  }
  const int64_t dim = b.graph().find_variable(reads.variable)->shape.dim(1);
  std::vector<Output> ids;
  std::vector<Output> grads;
  for (size_t i = 0; i < reads.grads.size(); ++i) {
    ids.push_back(ops::reshape(b, reads.ids[i], {-1}));
    grads.push_back(ops::reshape(b, reads.grads[i], {-1, dim}));
  }
  out.ids = ops::concat(b, ids, 0);
  out.grad = ops::concat(b, grads, 0);
  return out;
}

void set_optimizer(ir::Graph* graph, const std::string& name, const ir::OptimizerDef& optimizer) {
  for (ir::VariableDef& variable : graph->mutable_variables()) {
    if (variable.name == name && variable.optimizer.kind.empty()) variable.optimizer = optimizer;
  }
}

}  // namespace

bool is_differentiable(DType dtype) { return tensor::is_floating(dtype); }

Result<std::vector<Output>> gradients(Builder& b, Output loss, const std::vector<Output>& wrt) {
  return gradients(b, {loss}, {Output{}}, wrt);
}

Result<std::vector<Output>> gradients(Builder& b, const std::vector<Output>& ys,
                                      const std::vector<Output>& grad_ys,
                                      const std::vector<Output>& wrt) {
  SR_CHECK(ys.size() == grad_ys.size(), "{} ys, {} grad_ys", ys.size(), grad_ys.size());
  for (size_t i = 0; i < ys.size(); ++i) {
    SR_RETURN_IF_ERROR(check_loss(b, ys[i]));
    if (!grad_ys[i].valid() || b.spec(grad_ys[i]).dtype == b.spec(ys[i]).dtype) continue;
    return base::invalid_argument("gradient {} is {} where the value is {}", i,
                                  ir::to_string(b.spec(grad_ys[i])), ir::to_string(b.spec(ys[i])));
  }
  return Reverse(&b, ys, grad_ys, wrt).run();
}

Result<std::vector<VariableGradient>> variable_gradients(Builder& b, Output loss) {
  SR_RETURN_IF_ERROR(check_loss(b, loss));
  SR_RETURN_IF_ERROR(check_bodies(b.graph(), loss, b.registry()));
  std::vector<Reads> all = collect_reads(b.graph(), loss.node);
  std::vector<Output> wrt;
  for (const Reads& reads : all) {
    wrt.insert(wrt.end(), reads.outputs.begin(), reads.outputs.end());
  }
  SR_ASSIGN_OR_RETURN(const std::vector<Output> grads, gradients(b, loss, wrt));
  std::vector<VariableGradient> out;
  Builder::Scope scope = b.scope("gradients");
  size_t at = 0;
  for (Reads& reads : all) {
    const auto first = grads.begin() + static_cast<std::ptrdiff_t>(at);
    at += reads.outputs.size();
    reads.grads.assign(first, first + static_cast<std::ptrdiff_t>(reads.outputs.size()));
    if (!keep_reached(&reads)) continue;
    Builder::Scope inner = b.scope(reads.variable);
    out.push_back(reads.sparse ? join_sparse(b, reads) : join_dense(b, reads));
  }
  SR_RETURN_IF_ERROR(b.status());
  return out;
}

Result<std::vector<NodeId>> minimize(Builder& b, Output loss, const ir::OptimizerDef& optimizer) {
  SR_ASSIGN_OR_RETURN(const std::vector<VariableGradient> grads, variable_gradients(b, loss));
  std::vector<NodeId> out;
  Builder::Scope scope = b.scope("apply");
  for (const VariableGradient& g : grads) {
    const ir::VariableDef* variable = b.graph().find_variable(g.variable);
    if (!variable->trainable) continue;
    if (variable->optimizer.kind.empty() && optimizer.kind.empty()) {
      return base::invalid_argument("no optimizer is given for variable '{}'", g.variable);
    }
    set_optimizer(&b.graph(), g.variable, optimizer);
    out.push_back(g.sparse ? ops::apply_sparse(b, g.variable, g.ids, g.grad, g.variable)
                           : ops::apply_dense(b, g.variable, g.grad, g.variable));
  }
  SR_RETURN_IF_ERROR(b.status());
  if (out.empty()) {
    return base::invalid_argument("'{}' depends on no trainable variable: nothing to minimize",
                                  b.graph().output_name(loss));
  }
  return out;
}

}  // namespace sidereal::autodiff
