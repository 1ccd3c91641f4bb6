#include "sidereal/partition/cost.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/ir/function.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::partition {

using ir::Graph;
using ir::Node;

namespace {

void add_value(const ir::TensorSpec& spec, StepCost* cost) {
  ++cost->values;
  if (spec.dtype == ir::DType::kString || !spec.shape.is_fully_defined()) {
    ++cost->unknown_values;
  } else {
    cost->known_bytes +=
        spec.shape.num_elements() * static_cast<int64_t>(tensor::size_of(spec.dtype));
  }
}

/// Calls `f(node)` for the nodes of a graph and of the functions it holds, each once.
template <class F>
void for_each_node(const Graph& graph, std::set<const ir::Function*>* seen, const F& f) {
  for (const Node& node : graph.nodes()) f(node);
  for (const ir::NamedFunction& held : graph.functions()) {
    if (seen->insert(held.function.get()).second) for_each_node(held.function->body(), seen, f);
  }
}

/// The longest chain of tensors passed between the graphs of `parts`.
int64_t longest_chain(const std::vector<DevicePartition>& parts) {
  std::map<int64_t, int64_t> arrives;  // By edge: how many have been passed when it is sent.
  int64_t longest = 0;
  // Each time at least one more edge is known, or nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (const DevicePartition& part : parts) {
      std::vector<int64_t> passed(part.graph.size(), 0);
      for (const Node& node : part.graph.nodes()) {
        int64_t& own = passed[node.id.value];
        for (const ir::Output& input : node.inputs) own = std::max(own, passed[input.node.value]);
        for (const ir::NodeId control : node.control_inputs) {
          own = std::max(own, passed[control.value]);
        }
        const auto edge = ir::attr_or<int64_t>(node.attrs, "edge", -1);
        if (node.op == "Recv" && arrives.contains(edge)) own = std::max(own, arrives[edge] + 1);
        longest = std::max(longest, own);
        if (node.op != "Send") continue;
        const auto [known, is_new] = arrives.try_emplace(edge, own);
        changed = changed || is_new || known->second < own;
        known->second = std::max(known->second, own);
      }
    }
  }
  return longest;
}

}  // namespace

StepCost cost_of(const PartitionedGraph& partitioned) {
  StepCost cost;
  for (const RemoteGraph& remote : partitioned.remotes) {
    ++cost.calls;
    cost.messages += remote.async_push ? 1 : 2;
    if (remote.within.empty()) cost.rounds = std::max<int64_t>(cost.rounds, remote.level);
    for (const Node& node : remote.graph.nodes()) {
      if (node.op == "Arg") add_value(node.outputs[0], &cost);
      if (node.op == "Ret") add_value(remote.graph.spec(node.inputs[0]), &cost);
    }
  }
  return cost;
}

StepCost cost_of(const std::vector<DevicePartition>& parts) {
  StepCost cost;
  cost.calls = static_cast<int64_t>(parts.size());
  cost.messages = 2 * cost.calls;
  for (const DevicePartition& part : parts) {
    std::set<const ir::Function*> seen;
    for_each_node(part.graph, &seen, [&](const Node& node) {
      if (node.op != "Recv") return;
      cost.messages += 2;
      for (const ir::TensorSpec& spec : node.outputs) add_value(spec, &cost);
    });
  }
  cost.rounds = longest_chain(parts);
  return cost;
}

std::string to_text(const StepCost& cost) {
  return fmt::format("{} calls in {} rounds: {} messages, {} values, {} known, {} of unknown size",
                     cost.calls, cost.rounds, cost.messages, cost.values,
                     base::human_bytes(static_cast<double>(cost.known_bytes)), cost.unknown_values);
}

std::string summary(const std::vector<DevicePartition>& parts) {
  std::string out;
  for (const DevicePartition& part : parts) {
    std::map<std::pair<std::string, std::string>, std::pair<int, int>> tensors;  // Outside, inside.
    std::map<std::string, std::pair<size_t, size_t>>
        fused;  // By source: messages, tensors in them.
    size_t nodes = 0;
    std::set<const ir::Function*> seen;
    const auto count = [&](const Node& node, bool inside) {
      if (node.op == "Send") return;
      if (node.op != "Recv") {
        ++nodes;
        return;
      }
      const std::string& source = part.peers.at(ir::attr_or<int64_t>(node.attrs, "peer", 0));
      for (const ir::TensorSpec& spec : node.outputs) {
        auto& number = tensors[{source, ir::to_string(spec)}];
        ++(inside ? number.second : number.first);
      }
      if (node.outputs.size() == 1) return;
      ++fused[source].first;
      fused[source].second += node.outputs.size();
    };
    for (const Node& node : part.graph.nodes()) count(node, false);
    for (const ir::NamedFunction& held : part.graph.functions()) {
      if (!seen.insert(held.function.get()).second) continue;
      for_each_node(held.function->body(), &seen, [&](const Node& node) { count(node, true); });
    }
    out += fmt::format("{}\n  {} nodes\n", part.device, nodes);
    for (const auto& [what, number] : tensors) {
      const auto& [from, spec] = what;
      if (number.first > 0) out += fmt::format("  {} {} from {}\n", number.first, spec, from);
      if (number.second == 0) continue;
      out += fmt::format("  {} {} from {}, in bodies\n", number.second, spec, from);
    }
    for (const auto& [from, number] : fused) {
      out += fmt::format("  fused: {} of them in {} from {}\n", number.second, number.first, from);
    }
  }
  return out;
}

}  // namespace sidereal::partition
