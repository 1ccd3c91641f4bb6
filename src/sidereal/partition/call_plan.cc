#include <algorithm>

#include "sidereal/ir/control_ops.h"
#include "sidereal/partition/internal/call_plan.h"
#include "sidereal/partition/waiting.h"

namespace sidereal::partition {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

/// Constants that are copied to places other than their own.
constexpr size_t kSmallBytes = size_t{64} << 10;

/// Ops that only pass on, or make what is known: where they run is nobody's concern.
bool can_be_anywhere(std::string_view op) {
  return op == "Const" || op == "NoOp" || op == "Identity";
}

bool is_small(const Node& constant) {
  const auto* value = ir::find_attr<ir::Tensor>(constant.attrs, "value");
  if (value == nullptr) return false;
  size_t bytes = value->nbytes();
  if (value->dtype() == ir::DType::kString && bytes <= kSmallBytes) {
    for (const std::string_view s : value->data<const std::string_view>()) bytes += s.size();
  }
  return bytes <= kSmallBytes;
}

/// True when what is read at `place` is made there once more.
bool is_copied(const Made& made, PlaceIndex place) {
  if (made.node == nullptr) return false;
  if (made.place == place) return place != kDriver;
  return made.node->op == "Const" && is_small(*made.node);
}

/// How many of the first arguments of a node's functions are the node's own, in each iteration.
size_t changing_arguments(const Node& node) {
  if (!ir::is_loop(node.op)) return 0;
  return static_cast<size_t>(ir::attr_or<int64_t>(node.attrs, "variables", 0) +
                             ir::attr_or<int64_t>(node.attrs, "sequences", 0));
}

/// How `value` is read at `place`. Appends to `behind` what the reader must wait for instead of
/// nodes that it passes over.
Read read_at(const CallRegion& region, Output value, PlaceIndex place,
             std::vector<NodeId>* behind) {
  std::vector<NodeId> passed;
  const Made made = region.resolve(value, &passed);
  if (is_copied(made, place)) {
    behind->insert(behind->end(), passed.begin(), passed.end());
    return {.value = {}, .copy = made.node};
  }
  if (!region.rules->lite || place == kDriver) return {.value = value};
  // What the driver only passes on from here to here.
  passed.clear();
  Output source = value;
  while (region.places[source.node.value] == kDriver &&
         region.graph->node(source.node).op == "Identity") {
    const Node& node = region.graph->node(source.node);
    passed.insert(passed.end(), node.control_inputs.begin(), node.control_inputs.end());
    source = node.inputs[0];
  }
  if (region.places[source.node.value] != place) return {.value = value};
  behind->insert(behind->end(), passed.begin(), passed.end());
  return {.value = source};
}

/// True when `node` need not run if nobody reads it.
bool can_be_left_out(const CallRegion& region, const Node& node) {
  if (node.op == "Identity" && region.rules->lite) return true;
  if (!can_be_anywhere(node.op) && !makes_handle(node.op)) return false;
  return node.op != "NoOp" && region.resolve({node.id, 0}, nullptr).node != nullptr;
}

/// By node: whether it, or what it needs, may wait.
std::vector<bool> find_behind_waits(const CallRegion& region) {
  std::vector<bool> out(region.waits);
  for (const Node& node : region.graph->nodes()) {
    const size_t i = node.id.value;
    const auto add = [&](NodeId source) { out[i] = out[i] || out[source.value]; };
    if (region.is_arg(node.id)) continue;
    if (region.is_order(node.id)) {
      for (const NodeId source : region.order_of(node.id)) add(source);
      continue;
    }
    for (const Read& read : region.reads[i]) {
      if (read.value.valid()) add(read.value.node);
    }
    for (const NodeId source : region.after[i]) add(source);
  }
  return out;
}

}  // namespace

bool makes_handle(std::string_view op) {
  return op == "Variable" || op == "Queue" || op == "Accumulator" || op == "StepBarrier" ||
         op == "MutableTable";
}

std::vector<NodeId> CallRegion::order_of(NodeId id) const {
  const Node& node = graph->node(id);
  std::vector<NodeId> out = node.control_inputs;
  for (const Output& input : node.inputs) out.push_back(input.node);
  return out;
}

std::vector<NodeId> CallRegion::expand(const std::vector<NodeId>& from) const {
  std::set<NodeId> seen;
  std::vector<NodeId> left = from;
  std::vector<NodeId> out;
  while (!left.empty()) {
    const NodeId id = left.back();
    left.pop_back();
    if (is_arg(id) || !seen.insert(id).second) continue;
    if (!is_order(id)) {
      out.push_back(id);
      continue;
    }
    for (const NodeId behind : order_of(id)) left.push_back(behind);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Made CallRegion::resolve(Output value, std::vector<NodeId>* behind) const {
  std::vector<NodeId> passed;
  while (true) {
    const Node& node = graph->node(value.node);
    Made made;
    if (node.op == ir::kArgOp) {
      made = known[value.node.value];
    } else {
      passed.insert(passed.end(), node.control_inputs.begin(), node.control_inputs.end());
      if (node.op == "Identity") {
        value = node.inputs[0];
        continue;
      }
      if (node.op == "Const" || makes_handle(node.op)) made = {&node, rules->place_of(node)};
    }
    if (made.node != nullptr && behind != nullptr) {
      behind->insert(behind->end(), passed.begin(), passed.end());
    }
    return made;
  }
}

std::string CallRegion::resource_of(Output handle) const {
  const Made made = resolve(handle, nullptr);
  if (made.node != nullptr && makes_handle(made.node->op)) {
    return fmt::format("{}/{}/{}/{}", made.place, made.node->op,
                       ir::attr_or<std::string>(made.node->attrs, "container", ""),
                       ir::attr_or<std::string>(made.node->attrs, "shared_name", ""));
  }
  while (graph->node(handle.node).op == "Identity") handle = graph->node(handle.node).inputs[0];
  return fmt::format("?{}:{}", handle.node.value, handle.index);
}

std::set<std::string> CallRegion::awaited_by(const Node& node) const {
  std::set<std::string> out;
  const ir::OpSchema& schema = *rules->registry.find(node.op);
  if (schema.handle_inputs > 0 && schema.effect && !node.op.starts_with("Variable")) {
    out.insert(resource_of(node.inputs[0]));
  }
  if (!ir::runs_functions(node.op) || !waits[node.id.value]) return out;
  for (const Output& input : node.inputs) {
    if (graph->spec(input).dtype == ir::DType::kString) out.insert(resource_of(input));
  }
  return out;
}

const CallPlanner::Facts& CallPlanner::facts_of(const ir::FunctionPtr& function) {
  if (const auto known = facts_.find(function.get()); known != facts_.end()) return known->second;
  Facts facts;
  for (const Node& node : function->body().nodes()) {
    if (node.op == ir::kArgOp || can_be_anywhere(node.op)) continue;
    const Facts inner = facts_of(function->body(), node);
    facts.places.insert(inner.places.begin(), inner.places.end());
    facts.waits |= inner.waits;
  }
  return facts_[function.get()] = std::move(facts);
}

CallPlanner::Facts CallPlanner::facts_of(const Graph& graph, const Node& node) {
  Facts all;
  all.waits = may_wait(node.op);
  if (!ir::runs_functions(node.op)) {
    all.places = {rules_.place_of(node)};
    return all;
  }
  for (const std::string& attr : ir::function_attrs(*rules_.registry.find(node.op))) {
    const Facts& facts =
        facts_of(graph.find_function(ir::attr_or<std::string>(node.attrs, attr, "")));
    all.places.insert(facts.places.begin(), facts.places.end());
    all.waits |= facts.waits;
  }
  if (all.places.empty()) all.places = {rules_.place_of(node)};
  return all;
}

Result<std::unique_ptr<CallRegion>> CallPlanner::plan(const Graph& graph,
                                                      const std::vector<Output>& fetches,
                                                      const std::vector<NodeId>& targets) {
  auto region = std::make_unique<CallRegion>();
  region->graph = &graph;
  region->outputs = fetches;
  region->targets = targets;
  SR_RETURN_IF_ERROR(fill(region.get()));
  if (rules_.lite) {
    mark_async_pushes(region.get());
    mark_ahead(region.get());
  }
  return region;
}

Status CallPlanner::fill(CallRegion* region) {
  region->rules = &rules_;
  if (region->function != nullptr) function_nodes_ += region->graph->size();
  if (function_nodes_ > rules_.function_nodes_max) {
    return base::make_status(
        StatusCode::kResourceExhausted,
        fmt::format("functions that are on several devices are called so often that they would be "
                    "cut into more than {} nodes",
                    rules_.function_nodes_max));
  }
  find_places(region);
  SR_RETURN_IF_ERROR(find_reads(region));
  order_effects(region);
  if (region->function != nullptr) order_changes(region);
  if (!regroup(region, layers_of(*region))) return base::internal("layers wait for each other");
  merge_calls(region);
  return {};
}

void CallPlanner::find_places(CallRegion* region) {
  const Graph& graph = *region->graph;
  region->places.assign(graph.size(), kDriver);
  region->waits.assign(graph.size(), false);
  for (const Node& node : graph.nodes()) {
    // What is fed comes from the driver.
    if (node.op == ir::kArgOp || node.op == "Placeholder" || node.op == "NoOp") continue;
    const Facts facts = facts_of(graph, node);
    region->waits[node.id.value] = facts.waits;
    if (facts.places.size() == 1) {
      region->places[node.id.value] = *facts.places.begin();
    } else {
      region->split[node.id];
    }
  }
}

Status CallPlanner::split(CallRegion* region, const Node& node) {
  SplitControl& made = region->split.at(node.id);
  made.attrs = ir::function_attrs(*rules_.registry.find(node.op));
  const size_t first = ir::first_argument(node.op);
  for (const std::string& attr : made.attrs) {
    const ir::FunctionPtr function =
        region->graph->find_function(ir::attr_or<std::string>(node.attrs, attr, ""));
    auto inner = std::make_unique<CallRegion>();
    inner->graph = &function->body();
    inner->function = function.get();
    inner->outputs = function->outputs();
    inner->targets = function->targets();
    inner->known.resize(function->num_inputs());
    for (size_t i = changing_arguments(node); i < inner->known.size(); ++i) {
      inner->known[i] = region->resolve(node.inputs[first + i], nullptr);
    }
    SR_RETURN_IF_ERROR(fill(inner.get()));
    made.taken.resize(std::max(made.taken.size(), inner->known.size()), false);
    for (size_t i = 0; i < inner->known.size(); ++i) {
      if (i < changing_arguments(node) || inner->args_read[i]) made.taken[i] = true;
    }
    made.regions.push_back(std::move(inner));
  }
  return {};
}

Status CallPlanner::read_inputs(CallRegion* region, const Node& node) {
  const PlaceIndex place = region->places[node.id.value];
  std::vector<NodeId>& after = region->after[node.id.value];
  after = node.control_inputs;
  const auto split = region->split.find(node.id);
  if (split != region->split.end()) SR_RETURN_IF_ERROR(this->split(region, node));
  const size_t first = ir::first_argument(node.op);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Read& read = region->reads[node.id.value].emplace_back();
    if (split != region->split.end() && i >= first && !split->second.taken[i - first]) {
      // What is made in the functions again waits for what it waited for here.
      static_cast<void>(region->resolve(node.inputs[i], &after));
      continue;
    }
    read = read_at(*region, node.inputs[i], place, &after);
  }
  return {};
}

Status CallPlanner::find_reads(CallRegion* region) {
  const Graph& graph = *region->graph;
  region->reads.resize(graph.size());
  region->after.resize(graph.size());
  region->args_read.assign(region->known.size(), false);
  std::vector<bool> has_reader(graph.size(), false);
  for (const Node& node : graph.nodes()) {
    for (const Output& input : node.inputs) has_reader[input.node.value] = true;
  }
  for (const Node& node : graph.nodes()) {
    const bool is_unused = makes_handle(node.op) && !has_reader[node.id.value];
    region->live.push_back(is_unused || !can_be_left_out(*region, node));
  }
  const auto want = [&](const Read& read) {
    if (!read.value.valid()) return;
    region->live[read.value.node.value] = true;
    if (region->is_arg(read.value.node)) region->args_read[read.value.node.value] = true;
  };
  for (const NodeId target : region->targets) region->live[target.value] = true;
  std::vector<NodeId> behind;  // All have run when results are taken.
  for (const Output& output : region->outputs) {
    region->results.push_back(read_at(*region, output, kDriver, &behind));
    want(region->results.back());
  }
  for (size_t i = graph.size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (!region->live[i] || node.op == ir::kArgOp) continue;
    SR_RETURN_IF_ERROR(read_inputs(region, node));
    for (const Read& read : region->reads[i]) want(read);
  }
  return {};
}

/// In a function, what is done to one variable keeps the order of the program, as it does in one
/// program; and so does what is done to nobody knows what.
void CallPlanner::order_changes(CallRegion* region) {
  struct Last {
    NodeId change;
    std::vector<NodeId> reads;  ///< Since then.
  };
  std::map<std::string, Last> last_on;
  for (const Node& node : region->graph->nodes()) {
    const size_t i = static_cast<size_t>(node.id.value);
    if (!region->live[i] || node.op == ir::kArgOp || makes_handle(node.op)) continue;
    const bool changes = ir::has_effect(*region->graph, node, rules_.registry);
    const bool is_control = ir::runs_functions(node.op);
    std::set<std::string> touched;
    const bool may_touch = is_control || rules_.registry.find(node.op)->handle_inputs > 0;
    for (const Output& input : node.inputs) {
      const bool is_handle = region->graph->spec(input).dtype == ir::DType::kString;
      if (may_touch && is_handle) touched.insert(region->resource_of(input));
    }
    if (changes && touched.empty()) touched.insert("*");
    std::vector<NodeId>& after = region->after[i];
    for (const std::string& resource : touched) {
      Last& last = last_on[resource];
      if (last.change.valid()) after.push_back(last.change);
      if (!changes) {
        last.reads.push_back(node.id);
        continue;
      }
      after.insert(after.end(), last.reads.begin(), last.reads.end());
      last = {.change = node.id, .reads = {}};
    }
  }
}

/// What is done to one queue, accumulator or table keeps the graph's order in a function, which
/// runs in its order, and in a whole graph where that lets nothing wait. A driver that runs a
/// function waits behind all that waits before.
void CallPlanner::order_effects(CallRegion* region) {
  const bool is_whole = region->function == nullptr;
  const std::vector<bool> behind_waits = find_behind_waits(*region);
  std::map<std::string, NodeId> last_on;
  std::vector<NodeId> waiting;  // Up to and with the last one of the driver.
  for (const Node& node : region->graph->nodes()) {
    if (!region->live[node.id.value] || node.op == ir::kArgOp) continue;
    if (is_whole && behind_waits[node.id.value]) continue;
    for (const std::string& resource : region->awaited_by(node)) {
      NodeId& last = last_on[resource];
      if (last.valid()) region->after[node.id.value].push_back(last);
      last = node.id;
    }
    if (!region->waits[node.id.value]) continue;
    if (region->places[node.id.value] == kDriver) {
      std::vector<NodeId>& after = region->after[node.id.value];
      after.insert(after.end(), waiting.begin(), waiting.end());
      waiting.clear();
    }
    waiting.push_back(node.id);
  }
}

}  // namespace sidereal::partition
