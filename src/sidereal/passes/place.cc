#include "sidereal/passes/place.h"

#include <string>

#include "sidereal/ir/function.h"
#include "sidereal/passes/functions.h"

namespace sidereal::passes {
namespace {

Result<ir::Location> location_of(const ir::Node& node, const Placement& placement) {
  const std::string* variable = ir::find_attr<std::string>(node.attrs, "var");
  if (variable == nullptr) {
    return base::invalid_argument("node '{}' ({}) names no variable", node.name, node.op);
  }
  const auto found = placement.find(*variable);
  if (found == placement.end()) {
    return base::not_found("node '{}' ({}) uses variable '{}', which has no place", node.name,
                           node.op, *variable);
  }
  const VariablePlacement& place = found->second;
  const int64_t* shard = ir::find_attr<int64_t>(node.attrs, "shard");
  if (shard == nullptr) {
    if (place.shards.empty()) return place.location;
    return base::invalid_argument(
        "node '{}' ({}) uses the whole of '{}', an embedding; use Lookup and ApplySparse",
        node.name, node.op, *variable);
  }
  if (*shard < 0 || static_cast<size_t>(*shard) >= place.shards.size()) {
    return base::invalid_argument("node '{}' ({}) uses shard {} of '{}', which has {} shards",
                                  node.name, node.op, *shard, *variable, place.shards.size());
  }
  return place.shards[*shard].location;
}

/// Bodies run on the worker, from the first instruction to the last: what a ps owns is read around
/// them.
Status check_bodies(const ir::Graph& graph, const ir::Node& node, const ir::OpRegistry& registry) {
  for (const std::string& attr : ir::function_attrs(*registry.find(node.op))) {
    const auto* name = ir::find_attr<std::string>(node.attrs, attr);
    const ir::FunctionPtr function = name == nullptr ? nullptr : graph.find_function(*name);
    if (function == nullptr) continue;
    const ir::Node* inner = find_parameter_node(*function, registry);
    if (inner == nullptr) continue;
    return base::unimplemented(
        "node '{}' ({}): node '{}' ({}) in its function '{}' uses variable '{}', which lives on a "
        "ps; bodies of branches and loops cannot do that yet. Read the variable outside and let "
        "the body capture its value",
        node.name, node.op, inner->name, inner->op, *name,
        ir::attr_or<std::string>(inner->attrs, "var", ""));
  }
  return {};
}

}  // namespace

Status place(ir::Graph* graph, const Placement& placement, const ir::OpRegistry& registry) {
  for (const ir::Node& node : graph->nodes()) {
    const ir::OpSchema* schema = registry.find(node.op);
    if (schema == nullptr) {
      return base::not_found("node '{}': there is no op named '{}'", node.name, node.op);
    }
    SR_RETURN_IF_ERROR(check_bodies(*graph, node, registry));
    ir::Location location;
    if (schema->on_ps) {
      SR_ASSIGN_OR_RETURN(location, location_of(node, placement));
    }
    graph->mutable_node(node.id).location = location;
  }
  return {};
}

}  // namespace sidereal::passes
