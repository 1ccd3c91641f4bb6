#include "sidereal/partition/pull_push.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::partition {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;

constexpr int32_t kWorker = -1;

/// One call while it is being put together, in terms of the placed graph.
struct Group {
  ir::Location location;
  int32_t level = 0;
  std::vector<NodeId> nodes;
  std::set<Output> args;  ///< Made elsewhere, read here.
  std::set<Output> rets;  ///< Made here, read elsewhere.
  NodeId call;            ///< Its node in the worker's graph.
};

class LayerCutter {
 public:
  LayerCutter(const Graph& placed, const ir::OpRegistry& registry)
      : placed_(placed), registry_(registry) {}

  Result<PartitionedGraph> run(const std::vector<Output>& fetches,
                               const std::vector<NodeId>& targets) {
    SR_RETURN_IF_ERROR(check(fetches, targets));
    find_levels();
    find_groups();
    find_crossings(fetches);
    for (size_t c = 0; c < groups_.size(); ++c) SR_RETURN_IF_ERROR(build_remote(groups_[c]));
    SR_RETURN_IF_ERROR(build_worker());
    for (const Output& fetch : fetches) {
      out_.fetches.push_back(in_worker(fetch));
      out_.fetch_names.push_back(placed_.output_name(fetch));
    }
    for (const NodeId target : targets) out_.targets.push_back(in_worker(target));
    return std::move(out_);
  }

 private:
  Status check(const std::vector<Output>& fetches, const std::vector<NodeId>& targets) const {
    const auto exists = [&](NodeId id) {
      return id.value >= 0 && static_cast<size_t>(id.value) < placed_.size();
    };
    for (size_t i = 0; i < fetches.size(); ++i) {
      if (!exists(fetches[i].node) || fetches[i].index < 0 ||
          static_cast<size_t>(fetches[i].index) >= placed_.node(fetches[i].node).outputs.size()) {
        return base::invalid_argument("fetch {} is not an output of the graph", i);
      }
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!exists(targets[i])) {
        return base::invalid_argument("target {} is not a node of the graph", i);
      }
    }
    for (const Node& node : placed_.nodes()) {
      if (node.op == "Lookup" || node.op == "ApplySparse") {
        return base::invalid_argument("node '{}' ({}) must be expanded before partitioning",
                                      node.name, node.op);
      }
      if (node.op == "Call" || node.op == "Arg" || node.op == "Ret") {
        return base::invalid_argument("node '{}' ({}): the graph is partitioned already", node.name,
                                      node.op);
      }
      if (node.op == "Placeholder" && !node.location.is_worker()) {
        return base::invalid_argument("node '{}' is fed but placed on {}", node.name,
                                      ir::to_string(node.location));
      }
    }
    return {};
  }

  template <class F>
  static void for_each_source(const Node& node, F f) {
    for (const Output& input : node.inputs) f(input.node);
    for (const NodeId control : node.control_inputs) f(control);
  }

  void find_levels() {
    level_.resize(placed_.size(), 0);
    for (const Node& node : placed_.nodes()) {
      const bool on_worker = node.location.is_worker();
      int32_t level = on_worker ? 0 : 1;
      for_each_source(node, [&](NodeId id) {
        // One more round trip, unless the value is already where it is needed.
        const bool here = on_worker || placed_.node(id).location == node.location;
        level = std::max(level, level_[id.value] + (here ? 0 : 1));
      });
      level_[node.id.value] = level;
    }
  }

  void find_groups() {
    std::map<std::pair<int32_t, ir::Location>, int32_t> index;
    for (const Node& node : placed_.nodes()) {
      if (!node.location.is_worker()) index[{level_[node.id.value], node.location}] = 0;
    }
    for (auto& [key, call] : index) {
      call = static_cast<int32_t>(groups_.size());
      groups_.emplace_back();
      groups_.back().location = key.second;
      groups_.back().level = key.first;
    }
    owner_.resize(placed_.size(), kWorker);
    for (const Node& node : placed_.nodes()) {
      if (node.location.is_worker()) continue;
      const int32_t call = index[{level_[node.id.value], node.location}];
      owner_[node.id.value] = call;
      groups_[call].nodes.push_back(node.id);
    }
  }

  [[nodiscard]] int32_t owner(NodeId id) const { return owner_[id.value]; }

  void find_crossings(const std::vector<Output>& fetches) {
    for (const Node& node : placed_.nodes()) {
      for (const Output& input : node.inputs) {
        if (owner(input.node) == owner(node.id)) continue;
        if (owner(input.node) != kWorker) groups_[owner(input.node)].rets.insert(input);
        if (owner(node.id) != kWorker) groups_[owner(node.id)].args.insert(input);
      }
    }
    for (const Output& fetch : fetches) {
      if (owner(fetch.node) != kWorker) groups_[owner(fetch.node)].rets.insert(fetch);
    }
  }

  /// A name that no node of the placed graph has, so that it is free in every part of it.
  std::string fresh_name(const std::string& wanted) const {
    std::string name = wanted;
    for (int i = 1; placed_.find(name) != nullptr; ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  Result<NodeId> add(Graph* graph, Node node) const {
    const ir::OpSchema* schema = registry_.find(node.op);
    if (schema == nullptr) return base::not_found("there is no op named '{}'", node.op);
    SR_RETURN_IF_ERROR(ir::infer_node(*graph, *schema, &node));
    return graph->append(std::move(node));
  }

  /// Declares the variable that `node` names, if any.
  void add_variable_of(const Node& node, Graph* graph) const {
    const auto* name = ir::find_attr<std::string>(node.attrs, "var");
    const ir::VariableDef* variable = name == nullptr ? nullptr : placed_.find_variable(*name);
    if (variable == nullptr) return;
    const Status added = graph->add_variable(*variable);
    SR_CHECK(added.ok(), "{}", base::message_of(added));
  }

  Status build_remote(const Group& group) {
    RemoteGraph remote;
    remote.location = group.location;
    remote.level = group.level;
    std::map<Output, Output> values;
    std::map<NodeId, NodeId> nodes;
    int64_t index = 0;
    for (const Output& arg : group.args) {
      Node node;
      node.op = "Arg";
      node.name = fresh_name(fmt::format("arg_{}", index));
      node.location = group.location;
      const ir::TensorSpec& spec = placed_.spec(arg);
      node.attrs = {{"index", index++}, {"dtype", spec.dtype}, {"shape", spec.shape}};
      SR_ASSIGN_OR_RETURN(const NodeId id, add(&remote.graph, std::move(node)));
      values[arg] = {id, 0};
    }
    for (const NodeId old : group.nodes) {
      Node node = placed_.node(old);
      add_variable_of(node, &remote.graph);
      for (Output& input : node.inputs) {
        const auto arg = values.find(input);
        input = arg != values.end() ? arg->second : Output{nodes.at(input.node), input.index};
      }
      std::vector<NodeId> controls;
      for (const NodeId control : node.control_inputs) {
        if (const auto found = nodes.find(control); found != nodes.end()) {
          controls.push_back(found->second);
        }
      }
      node.control_inputs = std::move(controls);
      nodes[old] = remote.graph.append(std::move(node));
    }
    index = 0;
    for (const Output& ret : group.rets) {
      Node node;
      node.op = "Ret";
      node.name = fresh_name(fmt::format("ret_{}", index));
      node.location = group.location;
      node.attrs = {{"index", index++}};
      node.inputs = {{nodes.at(ret.node), ret.index}};
      SR_RETURN_IF_ERROR(add(&remote.graph, std::move(node)).status());
    }
    out_.remotes.push_back(std::move(remote));
    return {};
  }

  /// Where the worker finds a value of the placed graph.
  [[nodiscard]] Output in_worker(Output old) const {
    if (owner(old.node) == kWorker) return {worker_nodes_[old.node.value], old.index};
    const Group& group = groups_[owner(old.node)];
    const auto position = std::distance(group.rets.begin(), group.rets.find(old));
    return {group.call, static_cast<int32_t>(position)};
  }

  /// The node of the worker's graph after which `old` has run.
  [[nodiscard]] NodeId in_worker(NodeId old) const {
    return owner(old) == kWorker ? worker_nodes_[old.value] : groups_[owner(old)].call;
  }

  Status build_worker() {
    worker_nodes_.resize(placed_.size());
    // Functions run where they are called, which is on the worker.
    out_.worker.mutable_functions() = placed_.functions();
    int32_t last = 0;
    for (const int32_t level : level_) last = std::max(last, level);
    std::vector<std::vector<NodeId>> by_level(last + 1);
    for (const Node& node : placed_.nodes()) {
      if (node.location.is_worker()) by_level[level_[node.id.value]].push_back(node.id);
    }
    size_t call = 0;
    for (int32_t level = 0; level <= last; ++level) {
      for (const NodeId id : by_level[level]) copy_to_worker(placed_.node(id));
      for (; call < groups_.size() && groups_[call].level == level + 1; ++call) {
        SR_RETURN_IF_ERROR(add_call(call));
      }
    }
    return {};
  }

  std::vector<NodeId> controls_in_worker(const std::set<NodeId>& old) const {
    std::set<NodeId> controls;
    for (const NodeId id : old) controls.insert(in_worker(id));
    return {controls.begin(), controls.end()};
  }

  void copy_to_worker(const Node& node) {
    Node made = node;
    add_variable_of(node, &out_.worker);
    for (Output& input : made.inputs) input = in_worker(input);
    made.control_inputs =
        controls_in_worker({node.control_inputs.begin(), node.control_inputs.end()});
    worker_nodes_[node.id.value] = out_.worker.append(std::move(made));
  }

  Status add_call(size_t call) {
    Group& group = groups_[call];
    Node node;
    node.op = "Call";
    node.name = fresh_name(fmt::format("call_{}", call));
    std::set<NodeId> controls;
    for (const NodeId id : group.nodes) {
      for (const NodeId control : placed_.node(id).control_inputs) {
        if (owner(control) != static_cast<int32_t>(call)) controls.insert(control);
      }
    }
    node.control_inputs = controls_in_worker(controls);
    for (const Output& arg : group.args) node.inputs.push_back(in_worker(arg));
    std::vector<std::string> dtypes;
    std::vector<std::string> shapes;
    for (const Output& ret : group.rets) {
      dtypes.emplace_back(tensor::name_of(placed_.spec(ret).dtype));
      shapes.push_back(placed_.spec(ret).shape.to_string());
    }
    node.attrs = {{"call", static_cast<int64_t>(call)},
                  {"task", static_cast<int64_t>(group.location.task)},
                  {"lane", static_cast<int64_t>(group.location.lane)},
                  {"output_dtypes", std::move(dtypes)},
                  {"output_shapes", std::move(shapes)}};
    SR_ASSIGN_OR_RETURN(group.call, add(&out_.worker, std::move(node)));
    return {};
  }

  const Graph& placed_;
  const ir::OpRegistry& registry_;
  std::vector<int32_t> level_;  // By node.
  std::vector<int32_t> owner_;  // By node: its group, or kWorker.
  std::vector<Group> groups_;   // By level, then location.
  std::vector<NodeId> worker_nodes_;
  PartitionedGraph out_;
};

}  // namespace

Result<PartitionedGraph> pull_push_by_layers(const Graph& placed,
                                             const std::vector<Output>& fetches,
                                             const std::vector<NodeId>& targets,
                                             const ir::OpRegistry& registry) {
  return LayerCutter(placed, registry).run(fetches, targets);
}

}  // namespace sidereal::partition
