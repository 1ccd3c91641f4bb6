#include "sidereal/passes/place_devices.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/ir/colocation.h"
#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/function.h"

namespace sidereal::passes {
namespace {

using base::invalid_argument;
using ir::DeviceSpec;
using ir::FunctionPtr;
using ir::Node;
using ir::NodeId;
using ir::Output;

/// How many fields are set.
int precision(const DeviceSpec& spec) {
  return (spec.job ? 1 : 0) + (spec.replica ? 1 : 0) + (spec.task ? 1 : 0) +
         (spec.device_type ? 1 : 0) + (spec.device_index ? 1 : 0);
}

/// What needs no kernel, or is there wherever programs run.
bool runs_anywhere(const Node& node) {
  return ir::runs_functions(node.op) || node.op == "Placeholder" || node.op == "NoOp" ||
         node.op == ir::kArgOp;
}

/// Where a handle was made. Value type.
struct HandleOrigin {
  std::optional<DeviceSpec> device;  ///< Nothing for what cannot be a handle.
  bool is_override = false;          ///< It was moved there, whatever is asked for.
};

/// Where a body is called from.
struct Caller {
  DeviceSpec home;                 ///< Of the node that calls.
  std::vector<HandleOrigin> args;  ///< By Arg.
};

/// The tasks in the places of others. Thread: core-local, and then shared as it is.
class TaskOverrides {
 public:
  Status add(const std::string& from, const std::string& to) {
    SR_ASSIGN_OR_RETURN(const DeviceSpec before, DeviceSpec::parse(from));
    SR_ASSIGN_OR_RETURN(const DeviceSpec after, DeviceSpec::parse(to));
    tasks_.emplace_back(before, after);
    return {};
  }
  [[nodiscard]] DeviceSpec instead_of(const DeviceSpec& asked) const {
    for (const auto& [before, after] : tasks_) {
      const bool is_it = asked.job == before.job && asked.task == before.task &&
                         asked.replica.value_or(0) == before.replica.value_or(0);
      if (is_it) return asked.merged(after);
    }
    return asked;
  }

 private:
  std::vector<std::pair<DeviceSpec, DeviceSpec>> tasks_;
};

/// What is the same for the session's graph and all its bodies. Thread: core-local.
struct Setting {
  const Devices& devices;
  const ir::OpRegistry& registry;
  const TaskOverrides& tasks;
  /// Bodies that were placed, by function and what it depends on.
  std::map<std::tuple<const ir::Function*, std::string, std::string>, FunctionPtr> bodies = {};
};

/// Which devices run which ops, and which of them to take.
class Chooser {
 public:
  Chooser(const Devices& devices, const Caller* caller)
      : devices_(devices), near_(caller == nullptr ? devices.local : caller->home) {
    in_body_ = caller != nullptr;
  }

  /// The device for `nodes` of `graph`, of which `requester` stands for what they ask.
  Result<DeviceSpec> choose(const ir::Graph& graph, const std::vector<NodeId>& nodes,
                            const DeviceSpec& request, NodeId requester) const {
    SR_ASSIGN_OR_RETURN(const std::vector<DeviceSpec> able, able_of(graph, nodes));
    DeviceSpec wanted = request;
    std::vector<DeviceSpec> fits = fitting(able, wanted);
    if (fits.empty() && devices_.allow_soft_placement) {
      wanted.device_index.reset();
      fits = fitting(able, wanted);
      if (fits.empty()) {
        wanted.device_type.reset();
        fits = fitting(able, wanted);
      }
    }
    if (fits.empty()) return nothing_fits(graph.node(requester), request);
    return *std::min_element(fits.begin(), fits.end(), [&](const auto& a, const auto& b) {
      return order_of(a, request.empty()) < order_of(b, request.empty());
    });
  }

  /// True when a device that fits `request` runs `node`.
  [[nodiscard]] bool is_possible(const Node& node, const DeviceSpec& request) const {
    return std::any_of(devices_.all.begin(), devices_.all.end(), [&](const DeviceSpec& device) {
      return request.fits(device) && runs(node, device);
    });
  }

  [[nodiscard]] bool runs(const Node& node, const DeviceSpec& device) const {
    if (!devices_.has_kernel || runs_anywhere(node)) return true;
    if (devices_.has_kernel(node.op, *device.device_type)) return true;
    // What this task has no kernel for at all, others may have.
    return !ir::is_same_address_space(device, devices_.local) && !is_known(node);
  }

 private:
  [[nodiscard]] bool is_known(const Node& node) const {
    return std::any_of(devices_.all.begin(), devices_.all.end(), [&](const DeviceSpec& device) {
      return devices_.has_kernel(node.op, *device.device_type);
    });
  }

  /// The devices that run all `nodes`.
  Result<std::vector<DeviceSpec>> able_of(const ir::Graph& graph,
                                          const std::vector<NodeId>& nodes) const {
    std::vector<DeviceSpec> able = devices_.all;
    for (const NodeId id : nodes) {
      const Node& node = graph.node(id);
      std::erase_if(able, [&](const DeviceSpec& device) { return !runs(node, device); });
      if (!able.empty()) continue;
      if (!is_possible(node, {})) {
        return invalid_argument(
            "Cannot assign a device for operation '{}': no device has a kernel "
            "for op {}; available devices are {}",
            node.name, node.op, names());
      }
      return invalid_argument(
          "Cannot colocate nodes '{}' ({}) and '{}' ({}) because no device type supports both of "
          "those nodes and the other nodes colocated with them",
          node.name, node.op, graph.node(nodes[0]).name, graph.node(nodes[0]).op);
    }
    return able;
  }

  static std::vector<DeviceSpec> fitting(std::vector<DeviceSpec> able, const DeviceSpec& wanted) {
    std::erase_if(able, [&](const DeviceSpec& device) { return !wanted.fits(device); });
    return able;
  }

  [[nodiscard]] Status nothing_fits(const Node& node, const DeviceSpec& request) const {
    if (fitting(devices_.all, request).empty()) {
      return invalid_argument(
          "Cannot assign a device for operation '{}': '{}' was explicitly assigned to {} but "
          "available devices are {}. Make sure the device specification refers to a valid device",
          node.name, node.name, request.to_string(), names());
    }
    return invalid_argument(
        "Cannot assign a device for operation '{}': could not satisfy the explicit device "
        "specification '{}' because there is no kernel of op {} for that type of device",
        node.name, request.to_string(), node.op);
  }

  [[nodiscard]] std::string names() const {
    std::vector<std::string> out;
    for (const DeviceSpec& device : devices_.all) out.push_back(device.to_string());
    std::sort(out.begin(), out.end());
    return "[ " + base::join(out, ", ") + " ]";
  }

  using Order = std::tuple<bool, bool, bool, std::string, int, int, std::string, int>;
  [[nodiscard]] Order order_of(const DeviceSpec& d, bool asks_for_nothing) const {
    // In a body, what asks for nothing runs where its caller does.
    const bool elsewhere = in_body_ && asks_for_nothing && d != near_;
    return {elsewhere,
            !ir::is_same_address_space(d, near_),
            *d.device_type == "CPU",
            *d.job,
            *d.replica,
            *d.task,
            *d.device_type,
            *d.device_index};
  }

  const Devices& devices_;
  DeviceSpec near_;
  bool in_body_ = false;
};

/// Nodes that go to one device.
struct Group {
  std::vector<NodeId> nodes;
  DeviceSpec request;
  NodeId requester;  ///< The first whose request is in it.
  bool is_override = false;
  std::optional<DeviceSpec> device;
};

/// Places one graph or body. Thread: core-local.
class Placer {
 public:
  Placer(ir::Graph* graph, Setting* setting, const Caller* caller)
      : graph_(*graph), setting_(*setting), caller_(caller), chooser_(setting->devices, caller) {}

  Status run() {
    SR_RETURN_IF_ERROR(read_requests());
    SR_RETURN_IF_ERROR(join_classes());
    join_handles();
    make_groups();
    for (Group& group : groups_) SR_RETURN_IF_ERROR(merge_requests(&group));
    SR_RETURN_IF_ERROR(choose_devices());
    for (const Group& group : groups_) {
      for (const NodeId id : group.nodes) {
        graph_.mutable_node(id).device = group.device->to_string();
      }
    }
    return place_bodies();
  }

 private:
  [[nodiscard]] const ir::OpSchema& schema_of(const Node& node) const {
    return *setting_.registry.find(node.op);
  }

  Status read_requests() {
    for (const Node& node : graph_.nodes()) {
      if (setting_.registry.find(node.op) == nullptr) {
        return base::not_found("node '{}': there is no op named '{}'", node.name, node.op);
      }
      const Result<DeviceSpec> asked = DeviceSpec::parse(node.device);
      if (!asked.ok()) {
        return invalid_argument("Malformed device specification '{}' in node '{}' ({}): {}",
                                node.device, node.name, node.op, base::message_of(asked.status()));
      }
      requests_.push_back(setting_.tasks.instead_of(*asked));
      fixed_.emplace_back();
      overrides_.emplace_back();
      SR_RETURN_IF_ERROR(find_override(node));
      SR_RETURN_IF_ERROR(find_fixed(node));
    }
    return {};
  }

  /// What was decided elsewhere: by a step before, or for an Arg by the caller.
  Status find_fixed(const Node& node) {
    std::optional<DeviceSpec>& fixed = fixed_[node.id.value];
    if (caller_ != nullptr) {
      const auto at = static_cast<size_t>(node.id.value);
      if (node.op == ir::kArgOp && at < caller_->args.size()) fixed = caller_->args[at].device;
      return {};
    }
    const auto found = setting_.devices.assigned.find(node.name);
    if (found == setting_.devices.assigned.end()) return {};
    const Result<DeviceSpec> assigned = DeviceSpec::parse(found->second);
    if (assigned.ok()) fixed = setting_.tasks.instead_of(*assigned);
    const auto& all = setting_.devices.all;
    if (!fixed || std::find(all.begin(), all.end(), *fixed) == all.end()) {
      return base::internal(
          "the device '{}', which node '{}' is assigned to, does not match any "
          "device",
          found->second, node.name);
    }
    return {};
  }

  /// Where a variable was moved to, or for an Arg the one that its handle is of.
  Status find_override(const Node& node) {
    std::optional<DeviceSpec>& out = overrides_[node.id.value];
    if (caller_ != nullptr) {
      const auto at = static_cast<size_t>(node.id.value);
      if (node.op != ir::kArgOp || at >= caller_->args.size()) return {};
      if (caller_->args[at].is_override) out = caller_->args[at].device;
      return {};
    }
    const auto& variables = setting_.devices.overrides.variables;
    if (variables.empty() || node.op != "Variable") return {};
    if (!ir::attr_or<std::string>(node.attrs, "container", "").empty()) return {};
    const auto name = ir::attr_or<std::string>(node.attrs, "shared_name", "");
    const auto found = variables.find(name.empty() ? node.name : name);
    if (found == variables.end()) return {};
    SR_ASSIGN_OR_RETURN(out, DeviceSpec::parse(found->second));
    return {};
  }

  // --- Groups: a forest, each tree with its first node as root.

  size_t root_of(size_t at) {
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }

  void join(NodeId a, NodeId b) {
    const size_t x = root_of(static_cast<size_t>(a.value));
    const size_t y = root_of(static_cast<size_t>(b.value));
    parent_[std::max(x, y)] = std::min(x, y);
  }

  /// `_class` = ["loc:@name"]: with the node of that name, and all others that name it.
  Status join_classes() {
    parent_.resize(graph_.size());
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    std::map<std::string, NodeId, std::less<>> first;
    for (const Node& node : graph_.nodes()) {
      const auto attr = node.attrs.find(ir::kColocation);
      if (attr == node.attrs.end()) continue;
      const auto* classes = std::get_if<std::vector<std::string>>(&attr->second);
      if (classes == nullptr) {
        return invalid_argument(
            "node '{}' ({}): the attribute '{}' is of type {}; it must be strings such as "
            "\"{}name\"",
            node.name, node.op, ir::kColocation, ir::attr_type_name(attr->second),
            ir::kColocatedWith);
      }
      for (const std::string& one : *classes) {
        if (!one.starts_with(ir::kColocatedWith)) continue;
        const std::string name = one.substr(ir::kColocatedWith.size());
        const Node* named = graph_.find(name);
        const auto known = first.try_emplace(name, named == nullptr ? node.id : named->id).first;
        join(known->second, node.id);
      }
    }
    return {};
  }

  /// The handles that a node takes, those of an optimizer's slots too.
  [[nodiscard]] std::vector<Output> handles_of(const Node& node) const {
    const auto first = static_cast<size_t>(schema_of(node).handle_inputs);
    const bool has_slots = node.op.starts_with("VariableUpdate");
    std::vector<Output> out;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool is_slot = has_slots && graph_.spec(node.inputs[i]).dtype == ir::DType::kString;
      if (i < first || is_slot) out.push_back(node.inputs[i]);
    }
    return out;
  }

  /// What takes a handle goes where it was made; what passes it on, too.
  void join_handles() {
    makes_.assign(graph_.size(), false);
    std::vector<bool> carries(graph_.size(), false);
    for (size_t i = graph_.size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      std::vector<Output> handles = handles_of(node);
      if (carries[i]) {
        const bool passes_on = node.op == "Identity" || node.op == "StopGradient";
        makes_[i] = node.inputs.empty();
        handles.clear();
        if (passes_on) handles.push_back(node.inputs[0]);
      }
      for (const Output& handle : handles) {
        const NodeId from = handle.node;
        join(from, node.id);
        carries[from.value] = true;
      }
    }
  }

  void make_groups() {
    group_of_.resize(graph_.size());
    std::map<size_t, size_t> index;
    for (size_t i = 0; i < graph_.size(); ++i) {
      const auto [at, is_new] = index.try_emplace(root_of(i), groups_.size());
      if (is_new) groups_.emplace_back();
      group_of_[i] = at->second;
      groups_[at->second].nodes.emplace_back(static_cast<int32_t>(i));
    }
  }

  /// What was decided first, then what makes a resource, then the most precise.
  [[nodiscard]] std::tuple<int, int> rank(NodeId id) const {
    const auto i = static_cast<size_t>(id.value);
    const int kind = fixed_[i].has_value() ? 0 : makes_[i] ? 1 : 2;
    return {kind, -precision(requests_[i])};
  }

  [[nodiscard]] const DeviceSpec& asked_by(NodeId id) const {
    const auto i = static_cast<size_t>(id.value);
    return fixed_[i].has_value() ? *fixed_[i] : requests_[i];
  }

  /// Where what is in the group was moved to, if it was.
  Status take_override(Group* group) {
    for (const NodeId id : group->nodes) {
      const std::optional<DeviceSpec>& moved = overrides_[id.value];
      if (!moved) continue;
      if (group->is_override && *moved != group->request) {
        return invalid_argument(
            "Cannot colocate nodes '{}' and '{}': they were moved to {} and to {}",
            graph_.node(group->requester).name, graph_.node(id).name, group->request.to_string(),
            moved->to_string());
      }
      if (std::exchange(group->is_override, true)) continue;
      group->requester = id;
      group->request = *moved;
    }
    return {};
  }

  Status merge_requests(Group* group) {
    SR_RETURN_IF_ERROR(take_override(group));
    if (group->is_override) return {};
    std::vector<NodeId> requesters = group->nodes;
    std::stable_sort(requesters.begin(), requesters.end(),
                     [&](NodeId a, NodeId b) { return rank(a) < rank(b); });
    group->requester = requesters[0];
    for (const NodeId id : requesters) {
      const DeviceSpec& asked = asked_by(id);
      if (asked.empty()) continue;
      const Result<DeviceSpec> both = ir::merge_devices(group->request, asked);
      const Node& node = graph_.node(id);
      // What makes the resource has said where; who uses it cannot ask for what is not there.
      const bool is_user = std::get<0>(rank(id)) == 2;
      const bool has_maker = !group->request.empty() && std::get<0>(rank(group->requester)) < 2;
      if (is_user && has_maker && !chooser_.is_possible(node, both.ok() ? *both : asked)) continue;
      if (both.ok()) {
        if (group->request.empty()) group->requester = id;
        group->request = *both;
        continue;
      }
      if (setting_.devices.allow_soft_placement) continue;
      const Node& first = graph_.node(group->requester);
      return invalid_argument("Cannot colocate nodes '{}' ({}) and '{}' ({}): {}", first.name,
                              first.op, node.name, node.op, base::message_of(both.status()));
    }
    return {};
  }

  // --- Devices.

  [[nodiscard]] const Group& group_of(NodeId id) const { return groups_[group_of_[id.value]]; }

  Status choose_devices() {
    const std::vector<NodeId> only_reader = only_readers();
    const auto follows = [&](const Group& group) {
      const Node& node = graph_.node(group.nodes[0]);
      const bool is_source = node.inputs.empty() && node.outputs.size() == 1 &&
                             !schema_of(node).effect && node.op != ir::kArgOp;
      return group.nodes.size() == 1 && is_source && only_reader[node.id.value].valid() &&
             !fixed_[node.id.value].has_value();
    };
    for (Group& group : groups_) {
      if (follows(group)) continue;
      const Node& node = graph_.node(group.nodes[0]);
      const bool is_metadata = node.op == "Shape" || node.op == "Size" || node.op == "Rank";
      if (is_metadata && group.nodes.size() == 1 && !node.inputs.empty()) {
        take_if_possible(group_of(node.inputs[0].node).device, &group);
      }
      SR_RETURN_IF_ERROR(choose(&group));
    }
    for (Group& group : groups_) {
      if (group.device.has_value()) continue;
      take_if_possible(group_of(only_reader[group.nodes[0].value]).device, &group);
      SR_RETURN_IF_ERROR(choose(&group));
    }
    return {};
  }

  /// By node: the only one that reads it, and only once.
  [[nodiscard]] std::vector<NodeId> only_readers() const {
    std::vector<NodeId> out(graph_.size());
    std::vector<int> count(graph_.size(), 0);
    for (const Node& node : graph_.nodes()) {
      for (const Output& input : node.inputs) {
        out[input.node.value] = ++count[input.node.value] == 1 ? node.id : NodeId();
      }
    }
    return out;
  }

  void take_if_possible(const std::optional<DeviceSpec>& device, Group* group) const {
    const Node& node = graph_.node(group->nodes[0]);
    if (!device.has_value() || group->device.has_value()) return;
    if (group->request.fits(*device) && chooser_.runs(node, *device)) group->device = device;
  }

  Status choose(Group* group) const {
    if (group->device.has_value()) return {};
    SR_ASSIGN_OR_RETURN(group->device,
                        chooser_.choose(graph_, group->nodes, group->request, group->requester));
    return {};
  }

  // --- Bodies.

  /// Replaces the functions that nodes run by placed ones, and drops those that nobody names.
  Status place_bodies() {
    const std::vector<ir::NamedFunction> before = std::move(graph_.mutable_functions());
    graph_.mutable_functions().clear();
    for (size_t i = 0; i < graph_.size(); ++i) {
      Node& node = graph_.mutable_node(NodeId(static_cast<int32_t>(i)));
      for (const std::string& attr : ir::function_attrs(schema_of(node))) {
        const auto held = node.attrs.find(attr);
        if (held == node.attrs.end()) continue;
        auto* name = std::get_if<std::string>(&held->second);
        const auto found = std::find_if(before.begin(), before.end(), [&](const auto& one) {
          return name != nullptr && one.name == *name;
        });
        if (found == before.end()) {
          return invalid_argument("node '{}' ({}): attribute '{}' names no function of the graph",
                                  node.name, node.op, attr);
        }
        FunctionPtr function = found->function;
        if (ir::runs_functions(node.op)) {
          SR_ASSIGN_OR_RETURN(function, placed(node, function));
        }
        *name = graph_.hold_function(*name, function);
      }
    }
    return {};
  }

  /// Where the handle `value` was made; nothing for what cannot be a handle.
  [[nodiscard]] HandleOrigin origin_of(Output value) const {
    const ir::TensorSpec& spec = graph_.spec(value);
    const bool may_be =
        spec.dtype == ir::DType::kString && (!spec.shape.has_rank() || spec.shape.rank() == 0);
    if (!may_be) return {};
    const Node* node = &graph_.node(value.node);
    while (node->op == "Identity") node = &graph_.node(node->inputs[0].node);
    // Only what is known of an Arg says where a handle that it gives was made.
    if (node->op == ir::kArgOp && !fixed_[node->id.value].has_value()) return {};
    const Group& group = group_of(node->id);
    return {.device = group.device, .is_override = group.is_override};
  }

  Result<FunctionPtr> placed(const Node& node, const FunctionPtr& function) {
    Caller caller{*group_of(node.id).device, {}};
    std::string origins;
    for (size_t i = ir::first_argument(node.op); i < node.inputs.size(); ++i) {
      const HandleOrigin origin = origin_of(node.inputs[i]);
      origins += (origin.device.has_value() ? origin.device->to_string() : "");
      origins += origin.is_override ? "!;" : ";";
      caller.args.push_back(origin);
    }
    const auto key = std::make_tuple(function.get(), caller.home.to_string(), origins);
    if (const auto known = setting_.bodies.find(key); known != setting_.bodies.end()) {
      return known->second;
    }
    ir::Graph body = function->body();
    const Status status = Placer(&body, &setting_, &caller).run();
    if (!status.ok()) {
      return base::with_context(status, fmt::format("node '{}' ({})", node.name, node.op));
    }
    SR_ASSIGN_OR_RETURN(FunctionPtr made, ir::Function::make(std::move(body), function->outputs(),
                                                             function->targets()));
    setting_.bodies.emplace(key, made);
    return made;
  }

  ir::Graph& graph_;
  Setting& setting_;
  const Caller* caller_;
  Chooser chooser_;
  std::vector<DeviceSpec> requests_;              // By node, as all below.
  std::vector<std::optional<DeviceSpec>> fixed_;  // What was decided elsewhere.
  std::vector<std::optional<DeviceSpec>> overrides_;
  std::vector<size_t> parent_;
  std::vector<bool> makes_;  // Makes a handle that is used here.
  std::vector<size_t> group_of_;
  std::vector<Group> groups_;
};

Status check_devices(const Devices& devices) {
  if (devices.all.empty()) return invalid_argument("No devices are registered");
  for (const DeviceSpec& device : devices.all) {
    if (device.is_full()) continue;
    return invalid_argument("'{}' is not the full name of a device", device.to_string());
  }
  return {};
}

}  // namespace

Status place_devices(ir::Graph* graph, const Devices& devices, const ir::OpRegistry& registry) {
  SR_RETURN_IF_ERROR(check_devices(devices));
  ir::Graph placed = *graph;
  TaskOverrides tasks;
  for (const auto& [from, to] : devices.overrides.tasks) SR_RETURN_IF_ERROR(tasks.add(from, to));
  Setting setting{devices, registry, tasks};
  SR_RETURN_IF_ERROR(Placer(&placed, &setting, nullptr).run());
  *graph = std::move(placed);
  return {};
}

}  // namespace sidereal::passes
