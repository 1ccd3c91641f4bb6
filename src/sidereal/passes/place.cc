#include "sidereal/passes/place.h"

#include <map>
#include <string>
#include <utility>

#include "sidereal/ir/function.h"

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

/// Places graphs and the bodies of their functions, each function once. Thread: core-local.
class Placer {
 public:
  Placer(const Placement& placement, const ir::OpRegistry& registry)
      : placement_(placement), registry_(registry) {}

  Status run(ir::Graph* graph) {
    for (ir::NamedFunction& held : graph->mutable_functions()) {
      SR_ASSIGN_OR_RETURN(held.function, placed(held.function));
    }
    for (const ir::Node& node : graph->nodes()) {
      const ir::OpSchema* schema = registry_.find(node.op);
      if (schema == nullptr) {
        return base::not_found("node '{}': there is no op named '{}'", node.name, node.op);
      }
      ir::Location location;
      if (schema->on_ps) {
        SR_ASSIGN_OR_RETURN(location, location_of(node, placement_));
      }
      graph->mutable_node(node.id).location = location;
    }
    return {};
  }

 private:
  Result<ir::FunctionPtr> placed(const ir::FunctionPtr& function) {
    if (const auto known = made_.find(function.get()); known != made_.end()) return known->second;
    ir::Graph body = function->body();
    SR_RETURN_IF_ERROR(run(&body));
    SR_ASSIGN_OR_RETURN(
        ir::FunctionPtr made,
        ir::Function::make(std::move(body), function->outputs(), function->targets()));
    return made_[function.get()] = std::move(made);
  }

  const Placement& placement_;
  const ir::OpRegistry& registry_;
  std::map<const ir::Function*, ir::FunctionPtr> made_;
};

}  // namespace

Status place(ir::Graph* graph, const Placement& placement, const ir::OpRegistry& registry) {
  return Placer(placement, registry).run(graph);
}

}  // namespace sidereal::passes
