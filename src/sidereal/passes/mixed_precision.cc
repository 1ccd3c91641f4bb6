#include "sidereal/passes/mixed_precision.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/ir/fused_code.h"
#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/prune.h"

namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::Output;

bool is_only_output(const Node& node, DType dtype) {
  return node.outputs.size() == 1 && node.outputs[0].dtype == dtype;
}

/// An element-wise node that the fuse pass knows, of floats.
bool is_elementwise(const Node& node) {
  return ir::fusable_arity(node.op) > 0 && node.attrs.empty() &&
         is_only_output(node, DType::kFloat32);
}

bool is_vector(const ir::Graph& graph, Output value, bool transposed, bool of_columns) {
  const ir::Shape& shape = graph.spec(value).shape;
  return shape.has_rank() && shape.dim(transposed == of_columns ? -2 : -1) == 1;
}

/// A product that is to read bfloat16.
bool is_lowered(const ir::Graph& graph, const Node& node) {
  if (node.op != "MatMul" || !is_only_output(node, DType::kFloat32)) return false;
  if (graph.spec(node.inputs[0]).dtype != DType::kFloat32) return false;
  const ir::Shape& a = graph.spec(node.inputs[0]).shape;
  const ir::Shape& b = graph.spec(node.inputs[1]).shape;
  const bool is_stack = a.has_rank() && b.has_rank() && a.rank() > 2 && b.rank() > 2;
  if (!is_stack) return true;
  const bool ta = ir::attr_or(node.attrs, "transpose_a", false);
  const bool tb = ir::attr_or(node.attrs, "transpose_b", false);
  // Rows of op(a), columns of op(b).
  return !is_vector(graph, node.inputs[0], ta, false) &&
         !is_vector(graph, node.inputs[1], tb, true);
}

/// How many of its first inputs an op only moves to its output; -1: all.
int moved_inputs(const Node& node) {
  if (!is_only_output(node, DType::kFloat32)) return 0;
  if (node.op == "Concat" || node.op == "Stack") return -1;
  constexpr std::array<std::string_view, 6> kOps = {"Reshape", "ReshapeLike", "ExpandDims",
                                                    "Squeeze", "Transpose",   "SliceAxis"};
  return std::find(kOps.begin(), kOps.end(), node.op) != kOps.end() ? 1 : 0;
}

/// Puts Casts in front of products and chooses what lives in bfloat16.
class Lowering {
 public:
  Lowering(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step),
        registry_(registry),
        rewriter_(step.graph),
        readers_(readers_of(step.graph)),
        pinned_(pinned_nodes(step)),
        lowered_(step.graph.size()),
        moves_(step.graph.size()),
        lives_(step.graph.size()) {}

  Result<StepGraph> run() {
    for (const Node& node : step_.graph.nodes()) {
      lowered_[node.id.value] = is_lowered(step_.graph, node);
    }
    if (std::find(lowered_.begin(), lowered_.end(), true) == lowered_.end()) return step_;
    choose();
    for (const Node& node : step_.graph.nodes()) SR_RETURN_IF_ERROR(rewrite(node));
    return prune(rewriter_.finish(step_));
  }

 private:
  [[nodiscard]] const Node& node(NodeId id) const { return step_.graph.node(id); }
  [[nodiscard]] bool is_lowered_id(NodeId id) const { return lowered_[id.value]; }

  /// Sets lives_: the nodes whose value is kept in bfloat16 only.
  void choose() {
    std::vector<bool> from_product(step_.graph.size());
    for (const Node& one : step_.graph.nodes()) {
      from_product[one.id.value] =
          is_lowered_id(one.id) ||
          std::any_of(one.inputs.begin(), one.inputs.end(),
                      [&](const Output& input) { return from_product[input.node.value]; });
    }
    for (auto i = static_cast<int32_t>(step_.graph.size()) - 1; i >= 0; --i) {
      const Node& one = node(NodeId(i));
      if (pinned_[i]) continue;
      moves_[i] = moved_inputs(one) != 0 && is_read_narrow_only(one);
      if (!from_product[i] || !may_live(one)) continue;
      lives_[i] = is_read_by_products(one) || leads_to_bfloat(one);
    }
    for (const Node& one : step_.graph.nodes()) {
      for (size_t i = 0; i < one.inputs.size(); ++i) {
        if (reads_narrow(one, i)) needed_.try_emplace(one.inputs[i], one.id);
      }
    }
  }

  /// True when `one` reads bfloat16 as its input `i`.
  [[nodiscard]] bool reads_narrow(const Node& one, size_t i) const {
    if (is_lowered_id(one.id)) return true;
    if (one.op == "BiasAddGrad") return lives_[one.inputs[i].node.value];
    const int moved = moved_inputs(one);
    return moves_[one.id.value] && (moved < 0 || i < static_cast<size_t>(moved));
  }

  /// Read, and in bfloat16 every time.
  [[nodiscard]] bool is_read_narrow_only(const Node& one) const {
    const std::vector<NodeId>& readers = readers_[one.id.value];
    return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId id) {
      return node(id).op != "BiasAddGrad" && reads_only_narrow(node(id), one.id);
    });
  }

  [[nodiscard]] bool reads_only_narrow(const Node& reader, NodeId from) const {
    for (size_t i = 0; i < reader.inputs.size(); ++i) {
      if (reader.inputs[i].node == from && !reads_narrow(reader, i)) return false;
    }
    return true;
  }

  [[nodiscard]] bool may_live(const Node& one) const {
    return is_lowered_id(one.id) || is_elementwise(one) ||
           (one.op == "BiasAdd" && is_only_output(one, DType::kFloat32));
  }

  /// Read by a product, and by nothing that needs more than bfloat16.
  [[nodiscard]] bool is_read_by_products(const Node& one) const {
    const std::vector<NodeId>& readers = readers_[one.id.value];
    const auto is_narrow = [&](NodeId id) {
      return is_lowered_id(id) || (moves_[id.value] && reads_only_narrow(node(id), one.id));
    };
    const auto tolerates = [&](NodeId id) {
      return is_narrow(id) || is_elementwise(node(id)) || node(id).op == "BiasAddGrad";
    };
    return std::any_of(readers.begin(), readers.end(), is_narrow) &&
           std::all_of(readers.begin(), readers.end(), tolerates);
  }

  /// Only element-wise nodes read it, and their results live in bfloat16: memory traffic on the way
  /// from a product to the next one. Not where the fuse pass makes one node of the two.
  [[nodiscard]] bool leads_to_bfloat(const Node& one) const {
    const std::vector<NodeId>& readers = readers_[one.id.value];
    if (readers.empty() || is_elementwise(one)) return false;
    if (one.op == "BiasAdd" && readers.size() == 1 && node(readers[0]).op == "Relu") return false;
    return std::all_of(readers.begin(), readers.end(),
                       [&](NodeId id) { return is_elementwise(node(id)) && lives_[id.value]; });
  }

  Result<Output> cast(Output value, const Node& beside, DType dtype) {
    Node made;
    made.op = "Cast";
    made.name = fmt::format("{}/{}", beside.name, tensor::name_of(dtype));
    put_beside(beside, &made);
    made.attrs = {{"dtype", dtype}};
    made.inputs = {value};
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add(std::move(made), registry_));
    return Output{id, 0};
  }

  /// Adds `old` as it is but for the dtypes of its inputs and, with `out_type`, of its output.
  Result<NodeId> add_narrow(const Node& old) {
    Node made = old;
    for (size_t i = 0; i < old.inputs.size(); ++i) {
      const Output input = old.inputs[i];
      made.inputs[i] = reads_narrow(old, i) ? narrow_.at(input) : rewriter_.map(input);
    }
    made.control_inputs = rewriter_.map(old.control_inputs);
    made.outputs.clear();
    if (!moves_[old.id.value]) made.attrs["out_type"] = DType::kFloat32;
    return rewriter_.add_as(std::move(made), registry_);
  }

  Status rewrite(const Node& old) {
    const int32_t i = old.id.value;
    if (moves_[i]) {
      SR_ASSIGN_OR_RETURN(const NodeId id, add_narrow(old));
      narrow_[{old.id, 0}] = {id, 0};
      return {};
    }
    if (is_lowered_id(old.id) || (old.op == "BiasAddGrad" && lives_[old.inputs[0].node.value])) {
      SR_ASSIGN_OR_RETURN(const NodeId id, add_narrow(old));
      rewriter_.replace(old.id, id);
    } else {
      rewriter_.copy(old);
    }
    // Rounded as soon as it is there, while it is in the cache.
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      const Output value{old.id, static_cast<int32_t>(o)};
      const auto reader = needed_.find(value);
      if (!lives_[i] && reader == needed_.end()) continue;
      // Where it is read: what a ps holds is sent once, as it is.
      Node beside = lives_[i] ? old : node(reader->second);
      beside.name = old.name;
      SR_ASSIGN_OR_RETURN(narrow_[value], cast(rewriter_.map(value), beside, DType::kBFloat16));
    }
    if (!lives_[i]) return {};
    const Output value{old.id, 0};
    SR_ASSIGN_OR_RETURN(const Output wide, cast(narrow_.at(value), old, DType::kFloat32));
    rewriter_.replace(value, wide);
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> pinned_;
  std::vector<bool> lowered_;        // Products that read bfloat16.
  std::vector<bool> moves_;          // Nodes that move bfloat16 from place to place.
  std::vector<bool> lives_;          // Nodes whose value is kept in bfloat16 only.
  std::map<Output, NodeId> needed_;  // Old values that are read in bfloat16, and who does first.
  std::map<Output, Output> narrow_;  // By old value: the new one in bfloat16.
};

bool is_cast(const ir::Graph& graph, const Node& node, DType from, DType to) {
  return node.op == "Cast" && is_only_output(node, to) && graph.spec(node.inputs[0]).dtype == from;
}

/// Merges Casts into their neighbours.
class Absorber {
 public:
  Absorber(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step), registry_(registry), rewriter_(step.graph), absorbed_(step.graph.size()) {}

  Result<StepGraph> run() {
    const std::vector<std::vector<NodeId>> readers = readers_of(step_.graph);
    const std::vector<bool> pinned = pinned_nodes(step_);
    for (const Node& one : step_.graph.nodes()) {
      const auto i = static_cast<size_t>(one.id.value);
      if (pinned[i] || readers[i].size() != 1 || !may_round(one)) continue;
      const Node& reader = step_.graph.node(readers[i][0]);
      absorbed_[i] = is_cast(step_.graph, reader, DType::kFloat32, DType::kBFloat16) &&
                     same_place(reader, one) && reader.control_inputs.empty();
    }
    for (const Node& one : step_.graph.nodes()) SR_RETURN_IF_ERROR(rewrite(one));
    return prune(rewriter_.finish(step_));
  }

 private:
  [[nodiscard]] bool is_mixable(const Node& one) const {
    return is_elementwise(one) ||
           (one.op == "FusedElementwise" && is_only_output(one, DType::kFloat32));
  }

  /// True for a node that can give bfloat16 for float32.
  [[nodiscard]] bool may_round(const Node& one) const {
    if (is_mixable(one)) return true;
    if (one.op == "Gather") return is_only_output(one, DType::kFloat32);
    return (one.op == "MatMul" || one.op == "FusedMatMul") &&
           is_only_output(one, DType::kFloat32) &&
           step_.graph.spec(one.inputs[0]).dtype == DType::kBFloat16;
  }

  Status rewrite(const Node& old) {
    if (absorbed_[old.id.value]) return {};
    if (old.op == "Cast" && absorbed_[old.inputs[0].node.value]) {
      return put(step_.graph.node(old.inputs[0].node), old, DType::kBFloat16);
    }
    if (is_mixable(old) && reads_widened(old)) return put(old, old, DType::kFloat32);
    rewriter_.copy(old);
    return {};
  }

  [[nodiscard]] const Node& maker(Output value) const { return step_.graph.node(value.node); }

  [[nodiscard]] bool is_widened(Output value) const {
    return is_cast(step_.graph, maker(value), DType::kBFloat16, DType::kFloat32);
  }

  [[nodiscard]] bool reads_widened(const Node& one) const {
    return std::any_of(one.inputs.begin(), one.inputs.end(),
                       [&](const Output& input) { return is_widened(input); });
  }

  /// Adds what `one` computes, with an output of `dtype`, in the place of `last`.
  Status put(const Node& one, const Node& last, DType dtype) {
    Node made;
    made.op = one.op;
    made.name = last.name;
    put_beside(last, &made);
    made.attrs = one.attrs;
    for (const Output& input : one.inputs) {
      const bool skips = is_mixable(one) && is_widened(input);
      made.inputs.push_back(rewriter_.map(skips ? maker(input).inputs[0] : input));
    }
    made.control_inputs = rewriter_.map(last.control_inputs);
    if (is_elementwise(one)) {
      made.op = "FusedElementwise";
      const bool has_two = one.inputs.size() > 1;
      made.attrs["code"] = std::vector<std::string>{
          ir::to_text(ir::FusedStep{.op = one.op, .args = {0, has_two ? 1 : -1}})};
    }
    made.attrs["out_type"] = dtype;
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(made), registry_));
    rewriter_.replace(last.id, id);
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::vector<bool> absorbed_;  // Nodes that are made in the place of the Cast that reads them.
};

}  // namespace

Result<StepGraph> lower_products(const StepGraph& step, const ir::OpRegistry& registry) {
  return Lowering(step, registry).run();
}

Result<StepGraph> absorb_casts(const StepGraph& step, const ir::OpRegistry& registry) {
  return Absorber(step, registry).run();
}

}  // namespace sidereal::passes
