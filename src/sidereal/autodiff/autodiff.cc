#include "sidereal/autodiff/autodiff.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "sidereal/autodiff/internal/body_gradient.h"
#include "sidereal/autodiff/internal/control_flow.h"
#include "sidereal/base/check.h"
#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/needed.h"
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
  Output handle;
  bool sparse = false;
  int64_t dim = 0;  ///< Of a row of a table.
  std::vector<Output> outputs;
  std::vector<Output> ids;
  std::vector<Output> grads;
};

/// What reads a variable that gradients are wanted of.
class ReadCollector {
 public:
  ReadCollector(const ir::Graph& graph, const std::vector<Output>& handles) : graph_(graph) {
    for (const Output& handle : handles) wanted_.insert(handle);
  }

  /// Every VariableRead and EmbeddingLookup up to `last`, by variable, in the order they are first
  /// read. kInvalidArgument for a variable that is read whole and by rows.
  Result<std::vector<Reads>> collect(NodeId last) {
    for (int32_t i = 0; i <= last.value; ++i) {
      const Node& node = graph_.node(NodeId(i));
      const bool sparse = node.op == "EmbeddingLookup";
      if (!sparse && node.op != "VariableRead") continue;
      const Output handle = node.inputs[sparse ? 1 : 0];
      if (wanted_.contains(handle)) SR_RETURN_IF_ERROR(add(node, handle, sparse));
    }
    return std::move(reads_);
  }

  /// kUnimplemented when `loss` depends on a variable through a function that takes its handle:
  /// gradients do not come out of there.
  Status check_functions(Output loss) const {
    const std::vector<bool> leads =
        ir::needed_for(graph_, std::span(&loss, 1), {}, ir::Edges::kData);
    for (const Node& node : graph_.nodes()) {
      if (!leads[node.id.value] || !ir::runs_functions(node.op)) continue;
      for (const Output& input : node.inputs) {
        if (!wanted_.contains(input)) continue;
        return base::unimplemented(
            "{} '{}': its function reads the trainable variable '{}'; to train it, read it outside "
            "and let the function capture its value",
            node.op, node.name, graph_.node(input.node).name);
      }
    }
    return {};
  }

 private:
  Status add(const Node& node, Output handle, bool sparse) {
    const auto [at, is_new] = index_.try_emplace(handle, reads_.size());
    if (is_new) {
      const auto dim = ir::attr_or<int64_t>(node.attrs, "dim", 0);
      reads_.push_back({handle, sparse, dim, {}, {}, {}});
    }
    Reads& reads = reads_[at->second];
    if (reads.sparse != sparse) {
      return base::invalid_argument(
          "variable '{}' is read whole and by rows; gradients are taken of one kind of reads",
          graph_.node(handle.node).name);
    }
    reads.outputs.push_back({node.id, 0});
    if (sparse) reads.ids.push_back(node.inputs[0]);
    return {};
  }

  const ir::Graph& graph_;
  std::set<Output> wanted_;
  std::vector<Reads> reads_;
  std::map<Output, size_t> index_;
};

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
  return {.handle = reads.handle, .sparse = false, .grad = grad, .ids = {}};
}

VariableGradient join_sparse(Builder& b, const Reads& reads) {
  VariableGradient out{.handle = reads.handle, .sparse = true, .grad = {}, .ids = {}};
  if (reads.grads.size() == 1) {
    out.grad = reads.grads[0];
    out.ids = reads.ids[0];
    return out;
  }
  std::vector<Output> ids;
  std::vector<Output> grads;
  for (size_t i = 0; i < reads.grads.size(); ++i) {
    ids.push_back(ops::reshape(b, reads.ids[i], {-1}));
    grads.push_back(ops::reshape(b, reads.grads[i], {-1, reads.dim}));
  }
  out.ids = ops::concat(b, ids, 0);
  out.grad = ops::concat(b, grads, 0);
  return out;
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

Result<std::vector<VariableGradient>> variable_gradients(Builder& b, Output loss,
                                                         const std::vector<Output>& handles) {
  SR_RETURN_IF_ERROR(check_loss(b, loss));
  ReadCollector collector(b.graph(), handles);
  SR_RETURN_IF_ERROR(collector.check_functions(loss));
  SR_ASSIGN_OR_RETURN(std::vector<Reads> all, collector.collect(loss.node));
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
    Builder::Scope inner = b.scope(b.graph().node(reads.handle.node).name);
    out.push_back(reads.sparse ? join_sparse(b, reads) : join_dense(b, reads));
  }
  SR_RETURN_IF_ERROR(b.status());
  return out;
}

}  // namespace sidereal::autodiff
