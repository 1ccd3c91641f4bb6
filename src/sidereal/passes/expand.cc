#include "sidereal/passes/expand.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

/// Outputs of a Route: the rows of each shard, then where each unique id went.
struct Routed {
  ir::Output inverse;
  std::vector<ir::Output> rows;
  ir::Output position;
};

/// The embedding one abstract node works on.
struct Table {
  const ir::VariableDef* variable;
  const VariablePlacement* placement;
  [[nodiscard]] int64_t rows() const { return variable->shape.dim(0); }
  [[nodiscard]] int64_t dim() const { return variable->shape.dim(1); }
};

class Expander {
 public:
  Expander(const StepGraph& step, const Topology& topology, const Placement& placement,
           const ir::OpRegistry& registry)
      : step_(step),
        topology_(topology),
        placement_(placement),
        registry_(registry),
        rewriter_(step.graph) {}

  Result<StepGraph> run() {
    for (const ir::Node& node : step_.graph.nodes()) {
      Status status;
      if (node.op == "Lookup") {
        status = expand_lookup(node);
      } else if (node.op == "ApplySparse") {
        status = expand_apply(node);
      } else {
        rewriter_.copy(node);
      }
      SR_RETURN_IF_ERROR(
          base::with_context(status, fmt::format("node '{}' ({})", node.name, node.op)));
    }
    return rewriter_.finish(step_);
  }

 private:
  Result<Table> table_of(const ir::Node& node) const {
    SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(node.attrs, "var"));
    const ir::VariableDef* variable = step_.graph.find_variable(name);
    const auto place = placement_.find(name);
    if (variable == nullptr || place == placement_.end()) {
      return base::not_found("variable '{}' is not declared or has no place", name);
    }
    if (!variable->embedding || place->second.shards.empty()) {
      return base::invalid_argument(
          "variable '{}' is not an embedding; declare it with embedding=true", name);
    }
    return Table{variable, &place->second};
  }

  Result<ir::NodeId> add(std::string op, std::vector<ir::Output> inputs, ir::AttrMap attrs,
                         std::string name, ir::Location location = {},
                         std::vector<ir::NodeId> controls = {}) {
    ir::Node node;
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.name = std::move(name);
    node.location = location;
    node.control_inputs = std::move(controls);
    return rewriter_.add(std::move(node), registry_);
  }

  Result<Routed> route(ir::Output ids, const Table& table) {
    std::string stem = rewriter_.graph().output_name(ids);
    if (const size_t colon = stem.rfind(':'); colon != std::string::npos) stem[colon] = '_';
    if (!uniques_.contains(ids)) {
      SR_ASSIGN_OR_RETURN(uniques_[ids], add("Unique", {ids}, {}, stem + "/unique"));
    }
    const ir::NodeId unique = uniques_[ids];
    const auto key = std::make_pair(ids, table.rows());
    if (!routes_.contains(key)) {
      const std::vector<int64_t> lanes(topology_.lanes.begin(), topology_.lanes.end());
      SR_ASSIGN_OR_RETURN(
          routes_[key],
          add("Route", {{unique, 0}},
              {{"rows", table.rows()}, {"lanes", lanes}, {"var", table.variable->name}},
              fmt::format("{}/route_{}", stem, table.rows())));
    }
    const ir::NodeId node = routes_[key];
    const auto shards = static_cast<int32_t>(table.placement->shards.size());
    Routed routed;
    routed.inverse = {unique, 1};
    for (int32_t s = 0; s < shards; ++s) routed.rows.push_back({node, s});
    routed.position = {node, shards};
    return routed;
  }

  ir::AttrMap shard_attrs(const Table& table, const ShardRows& shard) const {
    return {{"var", table.variable->name},
            {"shard", static_cast<int64_t>(shard.shard)},
            {"dim", table.dim()}};
  }

  Status expand_lookup(const ir::Node& node) {
    SR_ASSIGN_OR_RETURN(const Table table, table_of(node));
    const ir::Output ids = rewriter_.map(node.inputs[0]);
    SR_ASSIGN_OR_RETURN(const Routed routed, route(ids, table));
    std::vector<ir::Output> inputs = {ids, routed.position, routed.inverse};
    for (const ShardRows& shard : table.placement->shards) {
      SR_ASSIGN_OR_RETURN(const ir::NodeId gather,
                          add("ShardGather", {routed.rows[shard.shard]}, shard_attrs(table, shard),
                              fmt::format("{}/gather_{}", node.name, shard.shard), shard.location,
                              rewriter_.map(node.control_inputs)));
      inputs.push_back({gather, 0});
    }
    return finish_node(node, "GatherParts", std::move(inputs), {{"dim", table.dim()}}, {});
  }

  Status expand_apply(const ir::Node& node) {
    SR_ASSIGN_OR_RETURN(const Table table, table_of(node));
    const ir::Output ids = rewriter_.map(node.inputs[0]);
    SR_ASSIGN_OR_RETURN(const Routed routed, route(ids, table));
    std::vector<ir::Output> inputs = {rewriter_.map(node.inputs[1]), routed.position,
                                      routed.inverse};
    inputs.insert(inputs.end(), routed.rows.begin(), routed.rows.end());
    SR_ASSIGN_OR_RETURN(const ir::NodeId sums, add("SumParts", std::move(inputs),
                                                   {{"dim", table.dim()}}, node.name + "/sum"));
    std::vector<ir::NodeId> applies;
    for (const ShardRows& shard : table.placement->shards) {
      SR_ASSIGN_OR_RETURN(
          const ir::NodeId apply,
          add("ShardApply", {routed.rows[shard.shard], {sums, shard.shard}},
              shard_attrs(table, shard), fmt::format("{}/apply_{}", node.name, shard.shard),
              shard.location, rewriter_.map(node.control_inputs)));
      applies.push_back(apply);
    }
    return finish_node(node, "NoOp", {}, {}, std::move(applies));
  }

  /// Puts the last node of a rewrite in the place of `old`, under its name.
  Status finish_node(const ir::Node& old, std::string op, std::vector<ir::Output> inputs,
                     ir::AttrMap attrs, std::vector<ir::NodeId> controls) {
    ir::Node node;
    node.name = old.name;
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.control_inputs = std::move(controls);
    node.device = old.device;
    SR_ASSIGN_OR_RETURN(const ir::NodeId id, rewriter_.add_as(std::move(node), registry_));
    rewriter_.replace(old.id, id);
    return {};
  }

  const StepGraph& step_;
  const Topology& topology_;
  const Placement& placement_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::map<ir::Output, ir::NodeId> uniques_;
  std::map<std::pair<ir::Output, int64_t>, ir::NodeId> routes_;
};

}  // namespace

Result<StepGraph> expand(const StepGraph& step, const Topology& topology,
                         const Placement& placement, const ir::OpRegistry& registry) {
  return Expander(step, topology, placement, registry).run();
}

}  // namespace sidereal::passes
