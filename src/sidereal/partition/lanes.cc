#include "sidereal/partition/lanes.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/part_name.h"
#include "sidereal/ir/control_ops.h"
#include "sidereal/partition/internal/call_plan.h"

namespace sidereal::partition {

using ir::Graph;
using ir::Node;
using ir::Output;

namespace {

constexpr std::string_view kLane = "/lane:";
/// Values up to this size pass between lanes, through the driver.
constexpr int64_t kSmallBytes = 1024;

/// The number after the last `mark` of a text, and what is before it; {text, 0} without one.
std::pair<std::string_view, int> split_number(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return {text, 0};
  const std::string_view digits = text.substr(at + mark.size());
  int number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end || number < 0) return {text, 0};
  return {text.substr(0, at), number};
}

bool is_small(const ir::TensorSpec& spec) {
  if (!spec.shape.is_fully_defined() || spec.dtype == ir::DType::kString) return false;
  return spec.shape.num_elements() * static_cast<int64_t>(tensor::size_of(spec.dtype)) <=
         kSmallBytes;
}

/// What a node that makes a handle names.
std::string name_of(const Node& node) {
  const auto container = ir::attr_or<std::string>(node.attrs, "container", "");
  const auto shared = ir::attr_or<std::string>(node.attrs, "shared_name", "");
  return (container.empty() ? "" : container + "|") + (shared.empty() ? node.name : shared);
}

/// The node that has made a handle, maybe passed through Identity; nullptr for other values.
const Node* handle_maker(const Graph& graph, Output value) {
  while (graph.node(value.node).op == "Identity") value = graph.node(value.node).inputs[0];
  const Node& made = graph.node(value.node);
  return makes_handle(made.op) ? &made : nullptr;
}

/// Whether an op goes to the lanes of its variables by itself, so that it holds none together.
bool goes_to_lanes(std::string_view op) {
  return op == "SaveVariables" || op == "RestoreVariables";
}

/// Nodes of a graph that must be on one lane.
class Groups {
 public:
  explicit Groups(Graph* graph) : graph_(*graph), parent_(graph->nodes().size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }

  void join_neighbours() {
    for (const Node& node : graph_.nodes()) {
      if (ir::runs_functions(node.op) || goes_to_lanes(node.op)) continue;
      for (const Output& input : node.inputs) {
        const Node& from = graph_.node(input.node);
        if (from.device != node.device || ir::runs_functions(from.op)) continue;
        // A handle is nothing to send, and where a constant is, is nobody's concern.
        const bool is_free = from.op == "Const" || is_small(graph_.spec(input));
        if (handle_maker(graph_, input) != nullptr || !is_free) {
          join(node.id.value, input.node.value);
        }
      }
    }
  }

  /// The lanes, by node.
  std::vector<int> lanes(const std::function<DeviceLanes(const std::string&)>& lanes_of,
                         const LeadingNames& leading) {
    std::map<size_t, std::string> first;  // By group: the first name in it.
    for (const Node& node : graph_.nodes()) {
      if (!makes_handle(node.op)) continue;
      std::string name = name_of(node);
      const auto leads = leading.find(name);
      if (leads != leading.end()) name = leads->second;
      const auto [at, is_new] = first.try_emplace(root(node.id.value), name);
      if (!is_new && name < at->second) at->second = std::move(name);
    }
    std::vector<int> out(parent_.size(), 0);
    for (const Node& node : graph_.nodes()) {
      const auto found = first.find(root(node.id.value));
      if (found == first.end()) continue;
      const DeviceLanes device = lanes_of(node.device);
      out[node.id.value] = base::lane_of_name(found->second, device.lanes, device.tasks);
    }
    return out;
  }

 private:
  size_t root(size_t i) {
    while (parent_[i] != i) {
      parent_[i] = parent_[parent_[i]];
      i = parent_[i];
    }
    return i;
  }
  void join(size_t a, size_t b) { parent_[root(a)] = root(b); }

  const Graph& graph_;
  std::vector<size_t> parent_;
};

}  // namespace

std::string on_lane(std::string_view device, int lane) {
  std::string out(device);
  if (lane > 0) out += std::string(kLane) + std::to_string(lane);
  return out;
}

int lane_of(std::string_view name) { return split_number(name, kLane).second; }

LeadingNames leading_names(const Graph& graph) {
  LeadingNames out;
  for (const Node& node : graph.nodes()) {
    if (ir::runs_functions(node.op) || goes_to_lanes(node.op)) continue;
    std::vector<std::string> names;
    for (const Output& input : node.inputs) {
      const Node* const from = handle_maker(graph, input);
      if (from != nullptr && from->device == node.device) names.push_back(name_of(*from));
    }
    if (names.size() < 2) continue;
    for (const std::string& name : names) {
      const auto [at, is_new] = out.try_emplace(name, names[0]);
      if (!is_new && names[0] < at->second) at->second = names[0];
    }
  }
  // A slot of two weights leads from one to the other.
  for (auto& [name, leader] : out) {
    for (auto at = out.find(leader); at != out.end() && at->second < leader;) {
      leader = at->second;
      at = out.find(leader);
    }
  }
  return out;
}

void assign_lanes(Graph* placed,
                  const std::function<DeviceLanes(const std::string& device)>& lanes_of,
                  const LeadingNames& leading) {
  absl::flat_hash_map<std::string, DeviceLanes> known;
  bool any = false;
  for (const Node& node : placed->nodes()) {
    const auto [at, is_new] = known.try_emplace(node.device);
    if (is_new) at->second = lanes_of(node.device);
    any = any || at->second.lanes > 1;
  }
  if (!any) return;
  Groups groups(placed);
  groups.join_neighbours();
  const std::vector<int> lanes =
      groups.lanes([&](const std::string& device) { return known[device]; }, leading);
  for (size_t i = 0; i < lanes.size(); ++i) {
    Node& node = placed->mutable_node(ir::NodeId(static_cast<int32_t>(i)));
    if (!ir::runs_functions(node.op)) node.device = on_lane(node.device, lanes[i]);
  }
}

}  // namespace sidereal::partition
