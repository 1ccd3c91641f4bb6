#include "sidereal/partition/by_device.h"

#include <algorithm>
#include <utility>

#include "sidereal/ir/component_specs.h"
#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/verify.h"
#include "sidereal/partition/internal/regions.h"
#include "sidereal/partition/internal/tensor_groups.h"

// Why no device waits forever. Take the nodes of a region in the order of Region::order, and of
// each node all that is done for it on all devices: receiving what it reads, running, sending.
// Every device does this in the same order, leaving out what is not on it. A value or order that
// goes from node a to node b on another device gives b a higher level than a, so a stands before b.
// Hence the first node of the order that is not done anywhere can go on: what it receives was sent,
// and all devices it is on have come to it. A node that runs functions on several devices is one
// node here; its devices are all in it together, and what its functions exchange is a region again,
// with predicates (sent when home has them), gates (first of all) and acknowledgements (last of
// all) along the same order.
//
// In the whole graph, programs park what waits (program::Program::parks), so there the order only
// says what goes first. It is what functions run in.
//
// With tensor_fuse a device sends some of what it has later: when the last value of the tensor
// group is made. From the first value until then it does nothing that may wait, and needs nobody.
// So whoever waits for any part of a tensor group waits for no device that would not go on by
// itself, and if all devices waited, they would wait at the same nodes without tensor_fuse. In
// particular no value of a tensor group depends on what another one was sent for. And all values of
// a tensor group wait for the same at queues and accumulators, so none is held up there by another
// one.
namespace sidereal::partition {
namespace {

using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using ir::Tensor;

/// The part of a region that one device gets, while it is made.
struct Piece {
  Graph graph;
  std::map<NodeId, NodeId> nodes;   ///< By node of the region that runs here.
  std::map<Output, Output> values;  ///< By value that was taken or received.
  std::map<Deed, NodeId> orders;    ///< By what is waited for.
};
using Pieces = std::map<DeviceIndex, Piece>;

/// What is the same for all regions of one cut. Thread: core-local.
struct Cut {
  const ir::OpRegistry& registry;
  const ByDeviceOptions& options;
  std::vector<std::string> devices;
  int64_t next_edge = 0;
  std::map<DeviceIndex, std::vector<DeviceIndex>> peers = {};

  /// What `device` calls `other`: peers are numbered as they are first needed.
  int64_t peer_number(DeviceIndex device, DeviceIndex other) {
    std::vector<DeviceIndex>& known = peers[device];
    const auto found = std::find(known.begin(), known.end(), other);
    const int64_t number = found - known.begin();
    if (found == known.end()) known.push_back(other);
    return number;
  }
};

/// Fills the pieces of one region. Thread: core-local.
class RegionCutter {
 public:
  /// `pieces` hold the Args.
  RegionCutter(Cut* cut, const Region& region, Pieces* pieces)
      : cut_(*cut),
        region_(region),
        pieces_(*pieces),
        tensor_groups_(find_tensor_groups(
            region, {.fuse = cut->options.tensor_fuse, .bytes_max = cut->options.fused_bytes_max})),
        packed_(tensor_groups_.all.size()) {}

  Status run() {
    for (const Node& node : region_.graph->nodes()) {
      if (node.op == ir::kArgOp) SR_RETURN_IF_ERROR(send_results(node));
    }
    for (const NodeId id : region_.order) {
      if (region_.late.contains(id)) continue;
      const Node& node = region_.graph->node(id);
      const auto split = region_.split.find(id);
      if (split != region_.split.end()) {
        SR_RETURN_IF_ERROR(put_split(node, split->second));
      } else {
        SR_RETURN_IF_ERROR(put(node, region_.places[id.value][0]));
      }
      SR_RETURN_IF_ERROR(send_results(node));
    }
    return {};
  }

  /// Where `value` is on `device`; receives it there when it is not.
  Result<Output> value_on(Output value, DeviceIndex device) {
    Piece& piece = pieces_.at(device);
    if (const auto known = piece.values.find(value); known != piece.values.end()) {
      return known->second;
    }
    const DeviceIndex home = region_.home_of(value);
    if (home == device) {
      SR_ASSIGN_OR_RETURN(const NodeId node, node_on(value.node, device));
      return Output{node, value.index};
    }
    SR_RETURN_IF_ERROR(unpack(tensor_groups_.of_value.at({value, device})));
    return piece.values.at(value);
  }

  /// Where a node of `device` is; puts it there when it is late.
  Result<NodeId> node_on(NodeId id, DeviceIndex device) {
    Piece& piece = pieces_.at(device);
    if (region_.late.contains(id) && !piece.nodes.contains(id)) {
      SR_RETURN_IF_ERROR(put(region_.graph->node(id), device));
    }
    return piece.nodes.at(id);
  }

  /// Lets home know when `device` is done with the iteration.
  Status acknowledge(DeviceIndex device) {
    SR_ASSIGN_OR_RETURN(const int64_t edge, send_nothing(device, {}, "iteration", region_.home));
    return receive(edge, device, region_.home, "^iteration", {kNothing}).status();
  }

  /// Lets no device but home begin before home does.
  Status open_gate(DeviceIndex device) {
    SR_ASSIGN_OR_RETURN(const int64_t edge, send_nothing(region_.home, {}, "iteration", device));
    return receive(edge, region_.home, device, "^iteration", {kNothing}).status();
  }

  /// Gives what home has under `value` to `device`.
  Result<Output> pass_on(Output value, const std::string& name, DeviceIndex device) {
    const ir::TensorSpec spec = pieces_.at(region_.home).graph.spec(value);
    SR_ASSIGN_OR_RETURN(const int64_t edge, send(region_.home, {value}, {}, name, device));
    return receive(edge, region_.home, device, name, {spec});
  }

 private:
  inline static const ir::TensorSpec kNothing{DType::kBool, Shape{0}};

  [[nodiscard]] std::string name_of(Output value) const {
    return fmt::format("{}:{}", region_.graph->node(value.node).name, value.index);
  }

  // --- Nodes of the cut's own.

  Result<NodeId> add(DeviceIndex device, Node node) {
    Graph& graph = pieces_.at(device).graph;
    const std::string wanted = node.name;
    for (int i = 1; region_.graph->find(node.name) != nullptr || graph.find(node.name) != nullptr;
         ++i) {
      node.name = fmt::format("{}_{}", wanted, i);
    }
    node.device = cut_.devices[device];
    SR_RETURN_IF_ERROR(ir::infer_node(graph, *cut_.registry.find(node.op), &node));
    return graph.append(std::move(node));
  }

  Result<Output> add(DeviceIndex device, const char* op, const std::string& name,
                     std::vector<Output> inputs, ir::AttrMap attrs,
                     std::vector<NodeId> controls = {}) {
    Node node;
    node.op = op;
    node.name = name;
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.control_inputs = std::move(controls);
    SR_ASSIGN_OR_RETURN(const NodeId id, add(device, std::move(node)));
    return Output{id, 0};
  }

  /// Of the end on `device` of an edge to or from `other`.
  ir::AttrMap edge_attrs(int64_t edge, DeviceIndex device, DeviceIndex other,
                         const std::string& name) {
    return {{"edge", edge}, {"peer", cut_.peer_number(device, other)}, {"tensor_name", name}};
  }

  /// A name for what is made for a value or node: without what names may not have.
  static std::string stem_of(std::string name) {
    if (name[0] == '^') name.erase(0, 1);
    return short_enough(name.substr(0, name.find(':')));
  }

  /// Leaves room for what is put behind.
  static std::string short_enough(const std::string& name) {
    return name.substr(0, ir::kMaxNameBytes - 64);
  }

  /// Sends values after `waits`.
  Result<int64_t> send(DeviceIndex from, std::vector<Output> values, std::vector<NodeId> waits,
                       const std::string& name, DeviceIndex to) {
    const int64_t edge = cut_.next_edge++;
    SR_RETURN_IF_ERROR(add(from, "Send", fmt::format("{}/send_{}", stem_of(name), edge),
                           std::move(values), edge_attrs(edge, from, to, name), std::move(waits))
                           .status());
    return edge;
  }

  /// An empty tensor, made after `waits`.
  Result<int64_t> send_nothing(DeviceIndex from, std::vector<NodeId> waits, const std::string& name,
                               DeviceIndex to) {
    SR_ASSIGN_OR_RETURN(
        const Output empty,
        add(from, "Const", fmt::format("{}/done_{}", short_enough(name), cut_.next_edge), {},
            {{"value", Tensor::zeros(kNothing.dtype, kNothing.shape)}}, std::move(waits)));
    return send(from, {empty}, {}, "^" + name, to);
  }

  /// The first of what comes.
  Result<Output> receive(int64_t edge, DeviceIndex from, DeviceIndex to, const std::string& name,
                         const std::vector<ir::TensorSpec>& specs) {
    ir::AttrMap attrs = edge_attrs(edge, to, from, name);
    attrs.merge(ir::component_attrs(specs));
    return add(to, "Recv", fmt::format("{}/recv_{}", stem_of(name), edge), {}, std::move(attrs));
  }

  // --- Tensor groups.

  /// What stands in messages for all of it.
  [[nodiscard]] std::string name_of(const TensorGroup& tensor_group) const {
    if (!tensor_group.values.empty()) return name_of(tensor_group.values[0]);
    return "^" + region_.graph->node(tensor_group.orders[0].first).name;
  }

  /// Adds a value, or what was done, to a tensor group, which is sent when nothing is missing.
  Status pack(size_t index, Output value, NodeId done) {
    const TensorGroup& tensor_group = tensor_groups_.all[index];
    Packed& packed = packed_[index];
    if (value.valid()) packed.values.push_back(value);
    if (done.valid()) packed.done.push_back(done);
    if (packed.values.size() + packed.done.size() < tensor_group.size()) return {};
    const std::string name = name_of(tensor_group);
    if (packed.values.empty()) {
      SR_ASSIGN_OR_RETURN(packed.edge, send_nothing(tensor_group.from, std::move(packed.done),
                                                    name.substr(1), tensor_group.to));
    } else {
      SR_ASSIGN_OR_RETURN(packed.edge, send(tensor_group.from, std::move(packed.values),
                                            std::move(packed.done), name, tensor_group.to));
    }
    return {};
  }

  /// Receives a tensor group.
  Status unpack(size_t index) {
    const TensorGroup& tensor_group = tensor_groups_.all[index];
    std::vector<ir::TensorSpec> specs;
    for (const Output& value : tensor_group.values) specs.push_back(region_.graph->spec(value));
    if (specs.empty()) specs.push_back(kNothing);
    SR_ASSIGN_OR_RETURN(const Output first, receive(packed_[index].edge, tensor_group.from,
                                                    tensor_group.to, name_of(tensor_group), specs));
    Piece& piece = pieces_.at(tensor_group.to);
    for (size_t i = 0; i < tensor_group.values.size(); ++i) {
      piece.values[tensor_group.values[i]] = {first.node, static_cast<int32_t>(i)};
    }
    for (const Deed& done : tensor_group.orders) piece.orders[done] = first.node;
    return {};
  }

  // --- Nodes of the region.

  /// Sends what `node` makes, and that it has run, to those who wait for it.
  Status send_results(const Node& node) {
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Output value{node.id, static_cast<int32_t>(o)};
      const auto sent = region_.sent.find(value);
      if (sent == region_.sent.end()) continue;
      SR_ASSIGN_OR_RETURN(const Output here, value_on(value, region_.home_of(value)));
      for (const DeviceIndex to : sent->second) {
        SR_RETURN_IF_ERROR(pack(tensor_groups_.of_value.at({value, to}), here, {}));
      }
    }
    for (const DeviceIndex from : region_.places[node.id.value]) {
      const Deed done{node.id, from};
      const auto awaited = region_.awaited.find(done);
      if (awaited == region_.awaited.end()) continue;
      for (const DeviceIndex to : awaited->second) {
        SR_RETURN_IF_ERROR(
            pack(tensor_groups_.of_order.at({done, to}), {}, pieces_.at(from).nodes.at(node.id)));
      }
    }
    return {};
  }

  /// What `node` waits for on `device`.
  Result<std::vector<NodeId>> controls_on(const Node& node, DeviceIndex device) {
    std::vector<NodeId> out;
    Piece& piece = pieces_.at(device);
    for (const Deed& done : region_.waits[node.id.value]) {
      const auto [id, from] = done;
      if (from == device) {
        SR_ASSIGN_OR_RETURN(out.emplace_back(), node_on(id, device));
        continue;
      }
      if (!piece.orders.contains(done)) {
        SR_RETURN_IF_ERROR(unpack(tensor_groups_.of_order.at({done, device})));
      }
      out.push_back(piece.orders.at(done));
    }
    return out;
  }

  /// Holds the functions that a node names, under names of the piece.
  void hold_functions(Graph* graph, Node* node) const {
    for (const std::string& attr : ir::function_attrs(*cut_.registry.find(node->op))) {
      auto* name = std::get_if<std::string>(&node->attrs[attr]);
      if (name == nullptr) continue;
      const FunctionPtr function = region_.graph->find_function(*name);
      if (function != nullptr) *name = graph->hold_function(*name, function);
    }
  }

  /// Copies a node that runs in one place.
  Status put(const Node& node, DeviceIndex device) {
    Piece& piece = pieces_.at(device);
    Node made = node;
    made.inputs.clear();
    for (const Output& input : node.inputs) {
      if (region_.late.contains(input.node)) continue;
      SR_RETURN_IF_ERROR(value_on(input, device).status());
    }
    SR_ASSIGN_OR_RETURN(made.control_inputs, controls_on(node, device));
    // What is late is put now, behind all that the others wait for.
    for (const Output& input : node.inputs) {
      SR_ASSIGN_OR_RETURN(made.inputs.emplace_back(), value_on(input, device));
    }
    hold_functions(&piece.graph, &made);
    piece.nodes[node.id] = piece.graph.append(std::move(made));
    return {};
  }

  // --- Nodes that run functions on several devices.

  /// Puts a node that calls a part of the functions on each of its places.
  Status put_split(const Node& node, const SplitNode& split) {
    const std::vector<DeviceIndex>& places = region_.places[node.id.value];
    SR_ASSIGN_OR_RETURN(const Rows rows, rows_of(node));
    std::map<DeviceIndex, std::vector<FunctionPtr>> functions;
    for (size_t i = 0; i < split.regions.size(); ++i) {
      SR_ASSIGN_OR_RETURN(const auto parts,
                          cut_function(node, split, i, rows.sent.empty() ? 0 : 1));
      for (const auto& [device, part] : parts) functions[device].push_back(part);
    }
    for (const DeviceIndex device : places) {
      Piece& piece = pieces_.at(device);
      Node made;
      made.name = node.name;
      made.op = node.op;
      made.device = cut_.devices[device];
      made.attrs = device == places[0] ? node.attrs : attrs_elsewhere(node, rows);
      SR_ASSIGN_OR_RETURN(made.control_inputs, controls_on(node, device));
      if (const auto sent = rows.sent.find(device); sent != rows.sent.end()) {
        SR_ASSIGN_OR_RETURN(made.inputs.emplace_back(),
                            receive(sent->second, places[0], device, node.name, {rows.spec}));
      }
      for (const Output& input : reads_on(region_, node, device)) {
        SR_ASSIGN_OR_RETURN(made.inputs.emplace_back(), value_on(input, device));
      }
      for (size_t i = 0; i < split.attrs.size(); ++i) {
        const auto name = ir::attr_or<std::string>(node.attrs, split.attrs[i], "");
        made.attrs[split.attrs[i]] = piece.graph.hold_function(name, functions[device][i]);
      }
      SR_RETURN_IF_ERROR(ir::infer_node(piece.graph, *cut_.registry.find(made.op), &made));
      piece.nodes[node.id] = piece.graph.append(std::move(made));
    }
    return {};
  }

  /// How devices other than its home know how often a Scan runs.
  struct Rows {
    int64_t known = -1;
    std::map<DeviceIndex, int64_t> sent;  ///< Edges of a tensor of as many rows, when not known.
    ir::TensorSpec spec{DType::kBool, Shape{-1, 0}};
  };

  Result<Rows> rows_of(const Node& node) {
    Rows rows;
    if (node.op != "Scan") return rows;
    rows.known = ir::attr_or<int64_t>(node.attrs, "length", -1);
    const auto first = static_cast<size_t>(ir::attr_or<int64_t>(node.attrs, "variables", 0));
    const auto count = static_cast<size_t>(ir::attr_or<int64_t>(node.attrs, "sequences", 0));
    for (size_t i = first; rows.known < 0 && i < first + count; ++i) {
      const Shape& shape = region_.graph->spec(node.inputs[i]).shape;
      if (shape.has_rank() && shape.rank() > 0) rows.known = shape.dim(0);
    }
    if (rows.known >= 0) return rows;
    const std::vector<DeviceIndex>& places = region_.places[node.id.value];
    const DeviceIndex home = places[0];
    const std::string name = short_enough(node.name) + "/rows";
    SR_ASSIGN_OR_RETURN(const Output sequence, value_on(node.inputs[first], home));
    SR_ASSIGN_OR_RETURN(const Output shape,
                        add(home, "Shape", name, {sequence}, {{"out_type", DType::kInt64}}));
    SR_ASSIGN_OR_RETURN(const Output height,
                        add(home, "SliceAxis", name, {shape},
                            {{"axis", int64_t{0}}, {"begin", int64_t{0}}, {"size", int64_t{1}}}));
    SR_ASSIGN_OR_RETURN(const Output zero, add(home, "Const", name, {},
                                               {{"value", Tensor::zeros(DType::kInt64, {1})}}));
    SR_ASSIGN_OR_RETURN(const Output whole,
                        add(home, "Concat", name, {height, zero}, {{"axis", int64_t{0}}}));
    SR_ASSIGN_OR_RETURN(const Output flag, add(home, "Const", name, {},
                                               {{"value", Tensor::zeros(DType::kBool, Shape())}}));
    SR_ASSIGN_OR_RETURN(const Output empty, add(home, "Fill", name, {flag, whole}, {}));
    for (const DeviceIndex to : places) {
      if (to == home) continue;
      SR_ASSIGN_OR_RETURN(rows.sent[to], send(home, {empty}, {}, node.name, to));
    }
    return rows;
  }

  /// Attributes, but for functions, of the node that runs with `node` on other devices.
  static ir::AttrMap attrs_elsewhere(const Node& node, const Rows& rows) {
    ir::AttrMap out;
    if (!ir::is_loop(node.op)) return out;
    out["variables"] = int64_t{0};
    for (const char* same : {"maximum_iterations", "reverse"}) {
      if (const auto found = node.attrs.find(same); found != node.attrs.end()) out.insert(*found);
    }
    if (node.op != "Scan") return out;
    out["sequences"] = static_cast<int64_t>(rows.sent.empty() ? 0 : 1);
    if (rows.known >= 0) out["length"] = rows.known;
    return out;
  }

  /// The Args of a function on `device`; `extra` ones, which nobody reads, first of all elsewhere.
  Status add_args(const SplitNode& split, const Region& inner, DeviceIndex device, size_t extra,
                  Piece* piece) const {
    const bool at_home = device == inner.home;
    const ir::TensorSpec row{DType::kBool, Shape{0}};
    for (size_t i = 0; !at_home && i < extra; ++i) {
      SR_RETURN_IF_ERROR(ir::add_arg(&piece->graph, cut_.registry, row, "row").status());
    }
    const auto taken = split.taken.find(device);
    for (size_t i = 0; i < inner.captured.size(); ++i) {
      const bool takes = taken != split.taken.end() && taken->second.contains(i);
      if (inner.captured[i] ? !takes : !at_home) continue;
      const Node& arg = inner.graph->nodes()[i];
      SR_ASSIGN_OR_RETURN(const Output made,
                          ir::add_arg(&piece->graph, cut_.registry, arg.outputs[0], arg.name));
      piece->nodes[arg.id] = made.node;
      piece->values[Output{arg.id, 0}] = made;
    }
    return {};
  }

  /// The parts of function `i` of a node, by device.
  Result<std::map<DeviceIndex, FunctionPtr>> cut_function(const Node& node, const SplitNode& split,
                                                          size_t i, size_t extra) {
    const Region& inner = *split.regions[i];
    const std::vector<DeviceIndex>& places = region_.places[node.id.value];
    Pieces pieces;
    for (const DeviceIndex device : places) {
      SR_RETURN_IF_ERROR(add_args(split, inner, device, extra, &pieces[device]));
    }
    RegionCutter cutter(&cut_, inner, &pieces);
    const bool is_condition = split.attrs[i] == "cond";
    const bool is_loop_body = ir::is_loop(node.op) && !is_condition;
    for (const DeviceIndex device : places) {
      const bool gated = node.op == "Scan" && device != inner.home;
      if (gated && !inner.passes(inner.home, device)) SR_RETURN_IF_ERROR(cutter.open_gate(device));
    }
    SR_RETURN_IF_ERROR(cutter.run());
    std::map<DeviceIndex, std::vector<Output>> outputs;
    for (const Output& output : inner.function->outputs()) {
      SR_ASSIGN_OR_RETURN(outputs[inner.home].emplace_back(), cutter.value_on(output, inner.home));
    }
    for (const DeviceIndex device : places) {
      if (device == inner.home) continue;
      if (is_condition) {
        SR_ASSIGN_OR_RETURN(
            outputs[device].emplace_back(),
            cutter.pass_on(outputs[inner.home][0], short_enough(node.name) + "/predicate", device));
      } else if (is_loop_body && !inner.passes(device, inner.home)) {
        SR_RETURN_IF_ERROR(cutter.acknowledge(device));
      }
    }
    std::map<DeviceIndex, FunctionPtr> out;
    for (auto& [device, piece] : pieces) {
      std::vector<NodeId> targets;
      for (const NodeId target : inner.function->targets()) {
        const auto here = piece.nodes.find(target);
        if (here != piece.nodes.end()) targets.push_back(here->second);
      }
      SR_ASSIGN_OR_RETURN(out[device],
                          ir::Function::make(std::move(piece.graph), std::move(outputs[device]),
                                             std::move(targets)));
    }
    return out;
  }

  Cut& cut_;
  const Region& region_;
  Pieces& pieces_;
  const TensorGroups tensor_groups_;
  /// What of a tensor group was made, and its edge once it was sent.
  struct Packed {
    std::vector<Output> values = {};
    std::vector<NodeId> done = {};
    int64_t edge = -1;
  };
  std::vector<Packed> packed_;
};

/// Refuses the nodes of `ops`.
Status check_without(const Graph& graph, std::initializer_list<std::string_view> ops) {
  for (const Node& node : graph.nodes()) {
    if (std::find(ops.begin(), ops.end(), node.op) == ops.end()) continue;
    return base::invalid_argument("node '{}' ({}) has no place in a whole graph", node.name,
                                  node.op);
  }
  return {};
}

/// Refuses bodies that were cut already.
Status check_bodies(const Graph& graph, std::set<const ir::Function*>* seen) {
  for (const ir::NamedFunction& held : graph.functions()) {
    if (!seen->insert(held.function.get()).second) continue;
    SR_RETURN_IF_ERROR(check_without(held.function->body(), {"Send", "Recv"}));
    SR_RETURN_IF_ERROR(check_bodies(held.function->body(), seen));
  }
  return {};
}

/// Checks what the caller asks for, and that nothing is there that only a graph that was cut has.
Status check(const Graph& graph, const std::vector<Output>& fetches,
             const std::vector<NodeId>& targets, const ir::OpRegistry& registry) {
  SR_RETURN_IF_ERROR(ir::verify(graph, registry));
  SR_RETURN_IF_ERROR(check_without(graph, {"Arg", "Ret", "Call", "Send", "Recv"}));
  std::set<const ir::Function*> seen;
  SR_RETURN_IF_ERROR(check_bodies(graph, &seen));
  const auto exists = [&](NodeId id) {
    return id.value >= 0 && static_cast<size_t>(id.value) < graph.size();
  };
  for (size_t i = 0; i < fetches.size(); ++i) {
    const Output fetch = fetches[i];
    if (!exists(fetch.node) || fetch.index < 0 ||
        static_cast<size_t>(fetch.index) >= graph.node(fetch.node).outputs.size()) {
      return base::invalid_argument("fetch {} is not an output of the graph", i);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!exists(targets[i])) {
      return base::invalid_argument("target {} is not a node of the graph", i);
    }
  }
  return {};
}

}  // namespace

DevicePartition undivided(Graph graph, std::vector<Output> fetches, std::vector<NodeId> targets) {
  DevicePartition out;
  for (size_t i = 0; i < fetches.size(); ++i) {
    out.fetch_indices.push_back(i);
    out.fetch_names.push_back(graph.output_name(fetches[i]));
  }
  out.graph = std::move(graph);
  out.fetches = std::move(fetches);
  out.targets = std::move(targets);
  return out;
}

Result<std::vector<DevicePartition>> by_device(const Graph& placed,
                                               const std::vector<Output>& fetches,
                                               const std::vector<NodeId>& targets,
                                               const ir::OpRegistry& registry,
                                               const ByDeviceOptions& options) {
  SR_RETURN_IF_ERROR(check(placed, fetches, targets, registry));
  RegionFinder finder(registry, options.function_nodes_max);
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<Region> region, finder.find(placed));
  Cut cut{registry, options, finder.devices()};
  Pieces pieces;
  for (size_t d = 0; d < cut.devices.size(); ++d) pieces[static_cast<DeviceIndex>(d)];
  SR_RETURN_IF_ERROR(RegionCutter(&cut, *region, &pieces).run());
  std::vector<DevicePartition> out;
  for (auto& [device, piece] : pieces) {
    DevicePartition& part = out.emplace_back();
    part.device = cut.devices[device];
    for (size_t i = 0; i < fetches.size(); ++i) {
      if (region->home_of(fetches[i]) != device) continue;
      part.fetches.push_back({piece.nodes.at(fetches[i].node), fetches[i].index});
      part.fetch_indices.push_back(i);
      part.fetch_names.push_back(placed.output_name(fetches[i]));
    }
    for (const NodeId target : targets) {
      const auto here = piece.nodes.find(target);
      if (here != piece.nodes.end()) part.targets.push_back(here->second);
    }
    for (const DeviceIndex peer : cut.peers[device]) part.peers.push_back(cut.devices[peer]);
    part.graph = std::move(piece.graph);
  }
  return out;
}

}  // namespace sidereal::partition
