#include "sidereal/passes/feeds.h"

#include <map>
#include <utility>

namespace sidereal::passes {

using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

/// Copies nodes to a new graph, with Placeholders for what is fed.
class Cutter {
 public:
  explicit Cutter(const ir::Graph& graph) : graph_(graph), nodes_(graph.size()) {}

  Status mark(const std::vector<Output>& feeds) {
    for (const Output& feed : feeds) {
      if (!values_.emplace(feed, Output{}).second) {
        return base::invalid_argument("'{}' is fed twice", graph_.output_name(feed));
      }
    }
    return {};
  }

  FedGraph copy() {
    FedGraph out;
    out.graph.mutable_functions() = graph_.functions();
    for (const Node& node : graph_.nodes()) {
      if (node.op != "Placeholder") add_placeholders(node, &out.graph);
      Node made = node;
      for (Output& input : made.inputs) input = at(input);
      for (NodeId& control : made.control_inputs) control = nodes_[control.value];
      made.name = out.graph.unique_name(node.name);
      nodes_[node.id.value] = out.graph.append(std::move(made));
    }
    return out;
  }

  [[nodiscard]] Output at(Output value) const {
    const auto fed = values_.find(value);
    if (fed != values_.end() && fed->second.valid()) return fed->second;
    return {nodes_[value.node.value], value.index};
  }
  [[nodiscard]] NodeId at(NodeId node) const { return nodes_[node.value]; }

 private:
  void add_placeholders(const Node& node, ir::Graph* out) {
    for (auto it = values_.lower_bound({node.id, 0});
         it != values_.end() && it->first.node == node.id; ++it) {
      const ir::TensorSpec& spec = node.outputs[it->first.index];
      Node made;
      made.op = "Placeholder";
      made.name = out->unique_name(node.name + "/fed");
      made.attrs = {{"dtype", spec.dtype}, {"shape", spec.shape}};
      made.outputs = {spec};
      made.device = node.device;
      it->second = {out->append(std::move(made)), 0};
    }
  }

  const ir::Graph& graph_;
  std::vector<NodeId> nodes_;
  std::map<Output, Output> values_;  // By value that is fed: what is read in its place.
};

}  // namespace

Result<FedGraph> cut_at_feeds(const ir::Graph& graph, const std::vector<Output>& feeds,
                              const std::vector<Output>& fetches,
                              const std::vector<NodeId>& targets) {
  Cutter cutter(graph);
  SR_RETURN_IF_ERROR(cutter.mark(feeds));
  FedGraph out = cutter.copy();
  for (const Output& feed : feeds) out.feeds.push_back(cutter.at(feed));
  for (const Output& fetch : fetches) out.fetches.push_back(cutter.at(fetch));
  for (const NodeId target : targets) out.targets.push_back(cutter.at(target));
  return out;
}

}  // namespace sidereal::passes
