#include "sidereal/passes/expand_lookups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// With so few ids a step loses more by two more tensors and three more nodes for each table than
/// duplicates cost it (W&D of 96 columns with batches of 64: 0.9 times the steps; with 1024 skewed
/// ids 1.1 to 1.3 times).
constexpr int64_t kFewIds = 128;

/// Ids of a table that another device has.
struct Remote {
  Output ids;   ///< As the node reads them.
  Output base;  ///< The value that they are a shape of, on the same device.
  int64_t rows = 0;
  int64_t dim = 0;
  std::string table;  ///< For errors: the name of the variable.
};

/// The outputs of a Unique and of a Route of one part.
struct Routed {
  Output inverse;
  Output rows;
  Output position;
};

class LookupExpander {
 public:
  LookupExpander(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step), registry_(registry), rewriter_(step.graph), readers_(readers_of(step.graph)) {}

  Result<StepGraph> run() {
    for (const Node& node : step_.graph.nodes()) {
      Status status;
      if (const std::optional<Remote> lookup = lookup_of(node)) {
        status = expand_lookup(node, *lookup);
      } else if (const std::optional<Remote> update = update_of(node)) {
        status = expand_update(node, *update);
      } else {
        rewriter_.copy(node);
      }
      SR_RETURN_IF_ERROR(
          base::with_context(status, fmt::format("node '{}' ({})", node.name, node.op)));
    }
    return rewriter_.finish(step_);
  }

 private:
  [[nodiscard]] const Node& maker(Output value) const { return step_.graph.node(value.node); }

  /// The value that `value` is another shape of, as far as one device made both.
  [[nodiscard]] Output base_of(Output value) const {
    while (true) {
      const Node& node = maker(value);
      const bool is_view = node.op == "Reshape" || node.op == "ReshapeLike" ||
                           node.op == "ExpandDims" || node.op == "Squeeze" || node.op == "Identity";
      if (!is_view || !same_place(node, maker(node.inputs[0]))) return value;
      value = node.inputs[0];
    }
  }

  /// `ids` of rows of a table of `spec` on the device of `node`, when another device has them.
  [[nodiscard]] std::optional<Remote> remote(const Node& node, Output ids, ir::DType dtype,
                                             const ir::Shape& shape, std::string table) const {
    const Output base = base_of(ids);
    // Those of a Route are distinct.
    const bool is_remote = maker(base).op != "Route" && !node.device.empty() &&
                           !maker(base).device.empty() && maker(base).device != node.device &&
                           maker(ids).device == maker(base).device;
    const bool is_index = step_.graph.spec(base).dtype == ir::DType::kInt64 ||
                          step_.graph.spec(base).dtype == ir::DType::kInt32;
    const int64_t count = step_.graph.spec(base).shape.num_elements();
    const bool are_few = count >= 0 && count <= kFewIds;
    const bool is_table = dtype == ir::DType::kFloat32 && shape.has_rank() && shape.rank() == 2 &&
                          shape.dim(0) > 0 && shape.dim(1) > 0;
    if (!is_remote || !is_index || !is_table || are_few) return {};
    return Remote{ids, base, shape.dim(0), shape.dim(1), std::move(table)};
  }

  [[nodiscard]] std::optional<Remote> lookup_of(const Node& node) const {
    if (node.op != "Gather" || ir::attr_or<int64_t>(node.attrs, "axis", 0) != 0 ||
        ir::attr_or<int64_t>(node.attrs, "batch_dims", 0) != 0) {
      return {};
    }
    const Node& read = maker(node.inputs[0]);
    if (read.op != "VariableRead" || !same_place(read, node)) return {};
    const ir::TensorSpec& spec = step_.graph.spec(node.inputs[0]);
    std::optional<Remote> found =
        remote(node, node.inputs[1], spec.dtype, spec.shape, name_of(maker(read.inputs[0])));
    if (!found.has_value()) return {};
    const std::string& wanted = maker(found->base).device;
    const auto is_elsewhere = [&](NodeId id) { return step_.graph.node(id).device != wanted; };
    const std::vector<NodeId>& readers = readers_[node.id.value];
    if (std::any_of(readers.begin(), readers.end(), is_elsewhere)) return {};
    return found;
  }

  [[nodiscard]] std::optional<Remote> update_of(const Node& node) const {
    if (node.op != "VariableUpdateRows") return {};
    const Node& handle = maker(node.inputs[0]);
    const auto* shape = ir::find_attr<ir::Shape>(handle.attrs, "shape");
    const auto* dtype = ir::find_attr<ir::DType>(handle.attrs, "dtype");
    if (handle.op != "Variable" || shape == nullptr || dtype == nullptr) return {};
    std::optional<Remote> found = remote(node, node.inputs[1], *dtype, *shape, name_of(handle));
    if (!found.has_value()) return {};
    const Output values = node.inputs[2];
    const ir::Shape& given = step_.graph.spec(values).shape;
    if (maker(values).device != maker(found->base).device || !given.has_rank() ||
        given.rank() < 1 || given.dim(-1) != found->dim) {
      return {};
    }
    return found;
  }

  static std::string name_of(const Node& handle) {
    return ir::attr_or<std::string>(handle.attrs, "shared_name", handle.name);
  }

  /// Adds a node beside what made `base`, which is not ordered by control edges.
  Result<NodeId> add_beside(Output base, std::string op, std::vector<Output> inputs,
                            ir::AttrMap attrs, std::string name) {
    Node made;
    made.op = std::move(op);
    made.name = std::move(name);
    made.inputs = std::move(inputs);
    made.attrs = std::move(attrs);
    put_beside(maker(base), &made);
    return rewriter_.add(std::move(made), registry_);
  }

  Result<Routed> route(const Remote& remote) {
    std::string stem = step_.graph.output_name(remote.base);
    if (const size_t colon = stem.rfind(':'); colon != std::string::npos) stem[colon] = '_';
    auto unique = uniques_.find(remote.base);
    if (unique == uniques_.end()) {
      Output ids = rewriter_.map(remote.base);
      if (step_.graph.spec(remote.base).dtype != ir::DType::kInt64) {
        SR_ASSIGN_OR_RETURN(const NodeId wide,
                            add_beside(remote.base, "Cast", {ids}, {{"dtype", ir::DType::kInt64}},
                                       stem + "/int64"));
        ids = {wide, 0};
      }
      SR_ASSIGN_OR_RETURN(const NodeId made, add_beside(remote.base, "Unique", {ids},
                                                        {{"strict", true}}, stem + "/unique"));
      unique = uniques_.emplace(remote.base, made).first;
    }
    const auto key = std::pair(remote.base, remote.rows);
    auto routed = routes_.find(key);
    if (routed == routes_.end()) {
      SR_ASSIGN_OR_RETURN(
          const NodeId made,
          add_beside(
              remote.base, "Route", {{unique->second, 0}},
              {{"rows", remote.rows}, {"lanes", std::vector<int64_t>{1}}, {"var", remote.table}},
              fmt::format("{}/route_{}", stem, remote.rows)));
      routed = routes_.emplace(key, made).first;
    }
    return Routed{{unique->second, 1}, {routed->second, 0}, {routed->second, 1}};
  }

  Status expand_lookup(const Node& node, const Remote& remote) {
    SR_ASSIGN_OR_RETURN(const Routed routed, route(remote));
    Node at_table = node;
    at_table.name = node.name + "/rows";
    at_table.inputs = {rewriter_.map(node.inputs[0]), routed.rows};
    at_table.control_inputs = rewriter_.map(node.control_inputs);
    SR_ASSIGN_OR_RETURN(const NodeId rows, rewriter_.add(std::move(at_table), registry_));
    Node placed;
    placed.op = "GatherParts";
    placed.name = node.name;
    placed.inputs = {rewriter_.map(remote.ids), routed.position, routed.inverse, {rows, 0}};
    placed.attrs = {{"dim", remote.dim}};
    put_beside(maker(remote.base), &placed);
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(placed), registry_));
    rewriter_.replace(node.id, id);
    return {};
  }

  Status expand_update(const Node& node, const Remote& remote) {
    SR_ASSIGN_OR_RETURN(const Routed routed, route(remote));
    SR_ASSIGN_OR_RETURN(
        const NodeId sums,
        add_beside(remote.base, "SumParts",
                   {rewriter_.map(node.inputs[2]), routed.position, routed.inverse, routed.rows},
                   {{"dim", remote.dim}}, node.name + "/sum"));
    Node update = node;
    update.inputs = rewriter_.map(node.inputs);
    update.inputs[1] = routed.rows;
    update.inputs[2] = {sums, 0};
    update.attrs["distinct"] = true;
    update.control_inputs = rewriter_.map(node.control_inputs);
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(update), registry_));
    rewriter_.replace(node.id, id);
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::vector<std::vector<NodeId>> readers_;
  std::map<Output, NodeId> uniques_;                     // By ids.
  std::map<std::pair<Output, int64_t>, NodeId> routes_;  // By ids and rows of the table.
};

}  // namespace

Result<StepGraph> expand_lookups(const StepGraph& step, const ir::OpRegistry& registry) {
  return LookupExpander(step, registry).run();
}

}  // namespace sidereal::passes
