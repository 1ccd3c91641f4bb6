#include "sidereal/passes/expand_lookups.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/internal/routes.h"

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

class LookupExpander {
 public:
  LookupExpander(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step),
        registry_(registry),
        rewriter_(step.graph),
        router_(step.graph, registry, &rewriter_, /*strict=*/true),
        readers_(readers_of(step.graph)) {}

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

  Result<Routed> route(const Remote& remote) {
    return router_.route(maker(remote.base), remote.base,
                         {.rows = remote.rows, .name = remote.table});
  }

  Status expand_lookup(const Node& node, const Remote& remote) {
    SR_ASSIGN_OR_RETURN(const Routed routed, route(remote));
    Node at_table = node;
    at_table.name = node.name + "/rows";
    at_table.inputs = {rewriter_.map(node.inputs[0]), routed.rows[0]};
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
    SR_ASSIGN_OR_RETURN(const NodeId sums,
                        rewriter_.add_beside(maker(remote.base), "SumParts",
                                             {rewriter_.map(node.inputs[2]), routed.position,
                                              routed.inverse, routed.rows[0]},
                                             {{"dim", remote.dim}}, node.name + "/sum", registry_));
    Node update = node;
    update.inputs = rewriter_.map(node.inputs);
    update.inputs[1] = routed.rows[0];
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
  Routes router_;
  std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

Result<StepGraph> expand_lookups(const StepGraph& step, const ir::OpRegistry& registry) {
  return LookupExpander(step, registry).run();
}

}  // namespace sidereal::passes
