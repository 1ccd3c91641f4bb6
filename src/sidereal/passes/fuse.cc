#include "sidereal/passes/fuse.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sidereal/ir/fused_code.h"
#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// By node: the node that reads it when that is the only one and it need not stay a node of its
/// own; else none.
std::vector<NodeId> sole_readers(const StepGraph& step) {
  std::vector<NodeId> readers(step.graph.size());
  std::vector<bool> shared = pinned_nodes(step);
  for (const Node& node : step.graph.nodes()) {
    for (const Output& input : node.inputs) {
      NodeId& reader = readers[input.node.value];
      if (reader.valid() && reader != node.id) shared[input.node.value] = true;
      reader = node.id;
    }
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    if (shared[i]) readers[i] = NodeId();
  }
  return readers;
}

bool is_real(ir::DType dtype) {
  return dtype == ir::DType::kFloat32 || dtype == ir::DType::kFloat64;
}

/// Steps that `node` is: one, or one for every further term of a sum; 0 when it is none.
size_t steps_of(const Node& node) {
  if (node.outputs.size() != 1 || !is_real(node.outputs[0].dtype) || !node.attrs.empty()) return 0;
  if (node.op == "AddN") return node.inputs.size() - 1;
  return ir::fusable_arity(node.op) > 0 ? 1 : 0;
}

/// True for a node that may be a part of a fused one. The last one may be pinned.
bool is_step(const Node& node) { return steps_of(node) > 0; }

class Fuser {
 public:
  Fuser(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step), registry_(registry), rewriter_(step.graph), reader_(sole_readers(step)) {}

  Result<StepGraph> run() {
    find_products();
    find_groups();
    for (const Node& node : step_.graph.nodes()) SR_RETURN_IF_ERROR(rewrite(node));
    return rewriter_.finish(step_);
  }

 private:
  [[nodiscard]] const Node& node(NodeId id) const { return step_.graph.node(id); }

  /// The node that makes `value` when nobody but `reader` needs it and it runs in the same place.
  [[nodiscard]] const Node* own_input(const Node& reader, Output value) const {
    const Node& made = node(value.node);
    const bool own = reader_[value.node.value] == reader.id && same_place(made, reader);
    return own ? &made : nullptr;
  }

  /// MatMul -> BiasAdd [-> Relu].
  void find_products() {
    product_.assign(step_.graph.size(), nullptr);
    swallowed_.assign(step_.graph.size(), false);
    for (const Node& bias : step_.graph.nodes()) {
      if (bias.op != "BiasAdd" || !bias.control_inputs.empty()) continue;
      const Node* product = own_input(bias, bias.inputs[0]);
      if (product == nullptr || product->op != "MatMul") continue;
      if (!is_real(product->outputs[0].dtype)) continue;
      if (!is_rank_two(product->inputs[0]) || !is_rank_two(product->inputs[1])) continue;
      const NodeId reader = reader_[bias.id.value];
      const bool with_relu = reader.valid() && node(reader).op == "Relu" &&
                             node(reader).control_inputs.empty() && same_place(node(reader), bias);
      const NodeId last = with_relu ? reader : bias.id;
      product_[last.value] = &bias;
      swallowed_[product->id.value] = true;
      if (with_relu) swallowed_[bias.id.value] = true;
    }
  }

  [[nodiscard]] bool is_rank_two(Output value) const {
    const ir::Shape& shape = step_.graph.spec(value).shape;
    return shape.has_rank() && shape.rank() == 2;
  }

  /// Every step joins the group of the only node that reads it, last nodes first.
  void find_groups() {
    members_.resize(step_.graph.size());
    steps_.assign(step_.graph.size(), 0);
    for (auto i = static_cast<int32_t>(step_.graph.size()) - 1; i >= 0; --i) {
      const Node& made = node(NodeId(i));
      if (!is_step(made) || product_[i] != nullptr) continue;
      members_[i].push_back(made.id);
      steps_[i] = steps_of(made);
      if (!reader_[i].valid()) continue;
      const Node& reader = node(reader_[i]);
      if (!is_step(reader) || product_[reader.id.value] != nullptr) continue;
      if (!reader.control_inputs.empty() || !same_place(reader, made)) continue;
      if (reader.outputs[0] != made.outputs[0]) continue;
      const int32_t root = root_of(reader.id.value);
      if (steps_[root] + steps_[i] > ir::kFusedStepsMax) continue;
      steps_[root] += steps_[i];
      joined_[i] = root;
      members_[root].push_back(made.id);
      members_[i].clear();
    }
    for (std::vector<NodeId>& group : members_) std::sort(group.begin(), group.end());
  }

  [[nodiscard]] int32_t root_of(int32_t at) const {
    const auto it = joined_.find(at);
    return it == joined_.end() ? at : it->second;
  }

  Status rewrite(const Node& old) {
    const int32_t at = old.id.value;
    if (swallowed_[at]) return {};
    if (product_[at] != nullptr) return fuse_product(old, *product_[at]);
    if (joined_.contains(at)) return {};
    if (members_[at].size() > 1) return fuse_group(old, members_[at]);
    rewriter_.copy(old);
    return {};
  }

  Status put(const Node& last, Node made) {
    made.name = last.name;
    put_beside(last, &made);
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(made), registry_));
    rewriter_.replace(last.id, id);
    return {};
  }

  Status fuse_product(const Node& last, const Node& bias) {
    const Node& product = node(bias.inputs[0].node);
    Node made;
    made.op = "FusedMatMul";
    made.attrs = product.attrs;
    if (last.id != bias.id) made.attrs["relu"] = true;
    made.inputs = rewriter_.map({product.inputs[0], product.inputs[1], bias.inputs[1]});
    return put(last, std::move(made));
  }

  /// `group` is in the order of the graph, so its last is `root`.
  Status fuse_group(const Node& root, const std::vector<NodeId>& group) {
    std::map<Output, int32_t> values;
    std::vector<Output> inputs;
    const auto is_member = [&](NodeId id) {
      return std::binary_search(group.begin(), group.end(), id);
    };
    for (const NodeId id : group) {
      for (const Output& input : node(id).inputs) {
        if (is_member(input.node)) continue;
        if (values.try_emplace(input, static_cast<int32_t>(inputs.size())).second) {
          inputs.push_back(input);
        }
      }
    }
    if (inputs.size() > ir::kFusedInputsMax) return keep_all(group);
    std::vector<std::string> code;
    for (const NodeId id : group) {
      const Node& one = node(id);
      const auto last = [&] { return static_cast<int32_t>(inputs.size() + code.size()) - 1; };
      const bool is_sum = one.op == "AddN";
      ir::FusedStep step{.op = is_sum ? "AddSame" : one.op};
      for (size_t i = 0; i < one.inputs.size(); ++i) {
        step.args[std::min<size_t>(i, 1)] = values.at(one.inputs[i]);
        if (!is_sum || i == 0) continue;
        code.push_back(ir::to_text(step));
        step.args[0] = last();
      }
      if (!is_sum) code.push_back(ir::to_text(step));
      values[{id, 0}] = last();
    }
    Node made;
    made.op = "FusedElementwise";
    made.attrs = {{"code", std::move(code)}};
    made.inputs = rewriter_.map(inputs);
    made.control_inputs = rewriter_.map(root.control_inputs);
    return put(root, std::move(made));
  }

  Status keep_all(const std::vector<NodeId>& group) {
    for (const NodeId id : group) rewriter_.copy(node(id));
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::vector<NodeId> reader_;
  std::vector<const Node*> product_;   // By last node of a product: its BiasAdd.
  std::vector<bool> swallowed_;        // Part of a product, not its last node.
  std::map<int32_t, int32_t> joined_;  // Member of a group: its last node.
  std::vector<std::vector<NodeId>> members_;
  std::vector<size_t> steps_;  // Of the members.
};

}  // namespace

Result<StepGraph> fuse(const StepGraph& step, const ir::OpRegistry& registry) {
  return Fuser(step, registry).run();
}

}  // namespace sidereal::passes
