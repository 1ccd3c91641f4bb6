#include "sidereal/partition/internal/call_graphs.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/verify.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::partition {
namespace {

using ir::FunctionPtr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;

/// A graph while it is made of nodes of a region. Thread: core-local.
class Part {
 public:
  Part(const CallRegion& region, const ir::OpRegistry& registry, Graph* graph)
      : region_(region), registry_(registry), graph_(*graph) {}

  /// Adds a node of the cut's own, under a name that is free in the region and here.
  Result<NodeId> add(Node node) {
    const std::string wanted = node.name.substr(0, ir::kMaxNameBytes - 16);
    node.name = wanted;
    for (int i = 1; region_.graph->find(node.name) != nullptr || graph_.find(node.name) != nullptr;
         ++i) {
      node.name = fmt::format("{}_{}", wanted, i);
    }
    SR_RETURN_IF_ERROR(ir::infer_node(graph_, *registry_.find(node.op), &node));
    return graph_.append(std::move(node));
  }

  /// Copies a node of the region, whose inputs are found by now.
  void copy(const Node& node, std::vector<Output> inputs, std::vector<NodeId> controls) {
    Node made = node;
    made.inputs = std::move(inputs);
    made.control_inputs = std::move(controls);
    hold_functions(*region_.graph, &made);
    nodes[node.id] = graph_.append(std::move(made));
  }

  /// The copy here of a node that has no inputs, under its own name if that is free.
  NodeId copy_of(const Node* made, const Node& reader) {
    const auto known = copies_.find(made);
    if (known != copies_.end()) return known->second;
    Node node = *made;
    node.control_inputs.clear();
    node.device = reader.device;
    const auto is_taken = [&](const std::string& name) {
      const Node* other = region_.graph->find(name);
      return graph_.find(name) != nullptr || (other != nullptr && other != made);
    };
    const std::string wanted = node.name.substr(0, ir::kMaxNameBytes - 16);
    for (int i = 1; is_taken(node.name); ++i) node.name = fmt::format("{}_{}", wanted, i);
    return copies_[made] = graph_.append(std::move(node));
  }

  std::map<NodeId, NodeId> nodes;  ///< By node of the region.

 private:
  /// Holds the functions that `node` names in `from`.
  void hold_functions(const Graph& from, Node* node) {
    for (const std::string& attr : ir::function_attrs(*registry_.find(node->op))) {
      auto* name = std::get_if<std::string>(&node->attrs[attr]);
      if (name == nullptr) continue;
      const FunctionPtr function = from.find_function(*name);
      if (function != nullptr) *name = graph_.hold_function(*name, function);
    }
  }

  const CallRegion& region_;
  const ir::OpRegistry& registry_;
  Graph& graph_;
  std::map<const Node*, NodeId> copies_;
};

}  // namespace

/// Makes the graphs of one region. Thread: core-local.
class CallGraphs::Maker {
 public:
  Maker(CallGraphs* all, const CallRegion& region, Graph* driver)
      : all_(*all),
        registry_(region.rules->registry),
        region_(region),
        driver_graph_(*driver),
        driver_(region, registry_, driver),
        calls_(region.groups.size()) {}

  Status run() {
    SR_RETURN_IF_ERROR(add_args());
    for (const auto& [when, item] : in_order()) {
      const auto nodes = static_cast<int32_t>(region_.graph->size());
      if (item < nodes) {
        SR_RETURN_IF_ERROR(put(region_.graph->nodes()[item]));
      } else {
        SR_RETURN_IF_ERROR(put_call(item - nodes));
      }
    }
    return {};
  }

  /// Where the driver has what it reads of `read`.
  Output in_driver(const Read& read, const Node& reader) {
    if (read.copy != nullptr) return {driver_.copy_of(read.copy, reader), 0};
    const int32_t group = region_.owner[read.value.node.value];
    if (group < 0) return {driver_.nodes.at(read.value.node), read.value.index};
    const std::set<Output>& rets = region_.groups[group].rets;
    const auto position = std::distance(rets.begin(), rets.find(read.value));
    return {calls_[group], static_cast<int32_t>(position)};
  }

  /// The node of the driver after which `id` has run.
  [[nodiscard]] NodeId after(NodeId id) const {
    const int32_t group = region_.owner[id.value];
    return group < 0 ? driver_.nodes.at(id) : calls_[group];
  }

 private:
  /// Items in the order in which they stand in the driver's graph: by round, calls first.
  [[nodiscard]] std::vector<std::pair<std::tuple<int32_t, int32_t>, int32_t>> in_order() const {
    std::vector<std::pair<std::tuple<int32_t, int32_t>, int32_t>> out;
    for (const Node& node : region_.graph->nodes()) {
      const int32_t i = node.id.value;
      if (!region_.live[i] || region_.is_arg(node.id) || region_.owner[i] >= 0) continue;
      out.push_back({{2 * region_.rounds[i], i}, i});
    }
    const auto nodes = static_cast<int32_t>(region_.graph->size());
    for (size_t g = 0; g < region_.groups.size(); ++g) {
      const CallGroup& group = region_.groups[g];
      out.push_back({{2 * group.round - 1, group.place}, nodes + static_cast<int32_t>(g)});
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  /// The Args that the function still has.
  Status add_args() {
    if (region_.function == nullptr) return {};
    for (size_t i = 0; i < region_.function->num_inputs(); ++i) {
      if (!all_.taken_->at(i)) continue;
      const Node& arg = region_.graph->nodes()[i];
      SR_ASSIGN_OR_RETURN(const Output made,
                          ir::add_arg(&driver_graph_, registry_, arg.outputs[0], arg.name));
      driver_.nodes[arg.id] = made.node;
    }
    return {};
  }

  /// Copies a node that the driver runs.
  Status put(const Node& node) {
    const size_t i = node.id.value;
    std::vector<Output> inputs;
    for (const Read& read : region_.reads[i]) {
      if (read.value.valid() || read.copy != nullptr) inputs.push_back(in_driver(read, node));
    }
    std::vector<NodeId> sources;
    for (const NodeId source : region_.after[i]) {
      if (region_.is_arg(source)) continue;
      if (region_.live[source.value]) {
        sources.push_back(source);
      } else {
        const std::vector<NodeId> behind = region_.expand({source});
        sources.insert(sources.end(), behind.begin(), behind.end());
      }
    }
    std::vector<NodeId> controls;
    for (const NodeId source : sources) controls.push_back(after(source));
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    const auto split = region_.split.find(node.id);
    if (split == region_.split.end()) {
      driver_.copy(node, std::move(inputs), std::move(controls));
      return {};
    }
    Node made = node;
    for (size_t f = 0; f < split->second.attrs.size(); ++f) {
      SR_ASSIGN_OR_RETURN(const FunctionPtr function,
                          all_.cut_function(*split->second.regions[f], split->second.taken, node));
      const std::string& attr = split->second.attrs[f];
      const auto name = ir::attr_or<std::string>(node.attrs, attr, "");
      made.attrs[attr] = driver_graph_.hold_function(name, function);
    }
    made.inputs = std::move(inputs);
    made.control_inputs = std::move(controls);
    driver_.nodes[node.id] = driver_graph_.append(std::move(made));
    return {};
  }

  Status put_call(int32_t g) {
    const CallGroup& group = region_.groups[g];
    const auto call = static_cast<int64_t>(all_.out_.remotes.size());
    SR_RETURN_IF_ERROR(make_remote(group));
    const RemoteGraph& remote = all_.out_.remotes[call];
    Node node;
    node.op = "Call";
    node.name = fmt::format("call_{}", call);
    node.device = all_.driver_;
    std::vector<std::string> dtypes;
    std::vector<std::string> shapes;
    for (const Output& ret : group.rets) {
      dtypes.emplace_back(tensor::name_of(region_.graph->spec(ret).dtype));
      shapes.push_back(region_.graph->spec(ret).shape.to_string());
    }
    node.attrs = {{"call", call},
                  {"device", remote.device},
                  {"output_dtypes", std::move(dtypes)},
                  {"output_shapes", std::move(shapes)}};
    if (remote.waits) node.attrs["waits"] = true;
    if (remote.async_push) node.attrs["async_push"] = true;
    if (remote.ahead) node.attrs["ahead"] = true;
    if (remote.repeatable) node.attrs["repeatable"] = true;
    std::set<NodeId> sources;
    for (const Output& arg : group.args) {
      node.inputs.push_back(in_driver({.value = arg}, node));
      sources.insert(node.inputs.back().node);
    }
    const auto nodes = static_cast<int32_t>(region_.graph->size());
    for (const int32_t from : region_.before[nodes + g]) {
      const NodeId source = from < nodes ? driver_.nodes.at(NodeId(from)) : calls_[from - nodes];
      if (sources.insert(source).second) node.control_inputs.push_back(source);
    }
    std::sort(node.control_inputs.begin(), node.control_inputs.end());
    SR_ASSIGN_OR_RETURN(calls_[g], driver_.add(std::move(node)));
    return {};
  }

  /// The nodes of `part` after which a node of `group` runs; what only passes order on is copied.
  Result<std::vector<NodeId>> local_order(const CallGroup& group, const Node& node, Part* part,
                                          std::map<NodeId, NodeId>* orders) const {
    // All that orders `node`, before what it orders.
    std::set<NodeId> passing;
    std::vector<NodeId> left = region_.after[node.id.value];
    while (!left.empty()) {
      const NodeId id = left.back();
      left.pop_back();
      if (region_.is_arg(id) || !region_.is_order(id) || orders->contains(id)) continue;
      if (!passing.insert(id).second) continue;
      for (const NodeId behind : region_.order_of(id)) left.push_back(behind);
    }
    const auto local = [&](const std::vector<NodeId>& sources) {
      std::set<NodeId> out;
      for (const NodeId source : sources) {
        if (const auto here = part->nodes.find(source); here != part->nodes.end()) {
          out.insert(here->second);
        } else if (const auto order = orders->find(source); order != orders->end()) {
          if (order->second.valid()) out.insert(order->second);
        }
      }
      return std::vector<NodeId>(out.begin(), out.end());
    };
    for (const NodeId id : passing) {
      std::vector<NodeId> behind = local(region_.order_of(id));
      NodeId& order = (*orders)[id];
      if (behind.size() <= 1) {
        if (!behind.empty()) order = behind[0];
        continue;
      }
      Node made;
      made.op = "NoOp";
      made.name = region_.graph->node(id).op == "NoOp" ? "order" : region_.graph->node(id).name;
      made.control_inputs = std::move(behind);
      made.device = all_.devices_[group.place];
      SR_ASSIGN_OR_RETURN(order, part->add(std::move(made)));
    }
    return local(region_.after[node.id.value]);
  }

  Status make_remote(const CallGroup& group) {
    const std::string& device = all_.devices_[group.place];
    RemoteGraph& remote = all_.out_.remotes.emplace_back();
    remote.device = device;
    remote.level = group.round;
    remote.waits = group.waits;
    remote.async_push = group.async_push;
    remote.ahead = group.ahead;
    remote.repeatable = !group.waits && only_reads(region_, group);
    remote.within = all_.within_;
    Part part(region_, registry_, &remote.graph);
    std::map<Output, Output> args;
    std::map<NodeId, NodeId> orders;
    const auto add = [&](std::string_view op, int64_t index) {
      Node node;
      node.op = op;
      node.name = fmt::format("{}_{}", op == "Arg" ? "arg" : "ret", index);
      node.device = device;
      node.attrs = {{"index", index}};
      return node;
    };
    for (const Output& arg : group.args) {
      Node node = add("Arg", static_cast<int64_t>(args.size()));
      node.attrs["dtype"] = region_.graph->spec(arg).dtype;
      node.attrs["shape"] = region_.graph->spec(arg).shape;
      SR_ASSIGN_OR_RETURN(const NodeId id, part.add(std::move(node)));
      args[arg] = {id, 0};
    }
    for (const NodeId id : group.nodes) {
      const Node& node = region_.graph->node(id);
      std::vector<Output> inputs;
      for (const Read& read : region_.reads[id.value]) {
        if (read.copy != nullptr) {
          inputs.push_back({part.copy_of(read.copy, node), 0});
        } else if (const auto arg = args.find(read.value); arg != args.end()) {
          inputs.push_back(arg->second);
        } else {
          inputs.push_back({part.nodes.at(read.value.node), read.value.index});
        }
      }
      SR_ASSIGN_OR_RETURN(auto controls, local_order(group, node, &part, &orders));
      part.copy(node, std::move(inputs), std::move(controls));
    }
    int64_t index = 0;
    for (const Output& ret : group.rets) {
      Node node = add("Ret", index++);
      node.inputs = {{part.nodes.at(ret.node), ret.index}};
      SR_RETURN_IF_ERROR(part.add(std::move(node)).status());
    }
    return {};
  }

  CallGraphs& all_;
  const ir::OpRegistry& registry_;
  const CallRegion& region_;
  Graph& driver_graph_;
  Part driver_;
  std::vector<NodeId> calls_;  // By group.
};

Result<FunctionPtr> CallGraphs::cut_function(const CallRegion& region,
                                             const std::vector<bool>& taken, const Node& caller) {
  const std::vector<bool>* outer = std::exchange(taken_, &taken);
  const std::string within = within_;
  within_ += (within.empty() ? "" : "/") + caller.name;
  Graph body;
  Maker maker(this, region, &body);
  const Status made = maker.run();
  taken_ = outer;
  within_ = within;
  SR_RETURN_IF_ERROR(base::with_context(made, fmt::format("node '{}'", caller.name)));
  std::vector<Output> outputs;
  for (const Read& result : region.results) outputs.push_back(maker.in_driver(result, caller));
  std::vector<NodeId> targets;
  for (const NodeId target : region.targets) targets.push_back(maker.after(target));
  return ir::Function::make(std::move(body), std::move(outputs), std::move(targets));
}

Result<PartitionedGraph> CallGraphs::run(const CallRegion& region) {
  Graph driver;
  Maker maker(this, region, &driver);
  SR_RETURN_IF_ERROR(maker.run());
  Node reader;
  reader.device = driver_;
  for (size_t i = 0; i < region.results.size(); ++i) {
    out_.fetches.push_back(maker.in_driver(region.results[i], reader));
    out_.fetch_names.push_back(region.graph->output_name(region.outputs[i]));
  }
  for (const NodeId target : region.targets) out_.targets.push_back(maker.after(target));
  out_.worker = std::move(driver);
  return std::move(out_);
}

}  // namespace sidereal::partition
