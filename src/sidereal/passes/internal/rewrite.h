#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Builds a graph from another one, node by node in its order, and remembers what became of what.
/// Thread: core-local. Borrows the old graph.
class Rewriter {
 public:
  /// Starts with the functions of `from` and no nodes.
  explicit Rewriter(const ir::Graph& from);

  /// Copies `node` of the old graph; what it reads must have been copied or replaced already.
  ir::NodeId copy(const ir::Node& node);
  /// Makes readers of the old node `from` read the new node `to`, output by output.
  void replace(ir::NodeId from, ir::NodeId to) { map_[from.value] = to; }
  /// Makes readers of the old value `from` read the new value `to`, whatever became of its node.
  void replace(ir::Output from, ir::Output to) { values_[from] = to; }
  /// Adds a node of the pass's own; its name, unlike that of copied nodes, is made unique.
  Result<ir::NodeId> add(ir::Node node, const ir::OpRegistry& registry);
  /// Adds a node of the pass's own where the old node `like` is.
  Result<ir::NodeId> add_beside(const ir::Node& like, std::string op,
                                std::vector<ir::Output> inputs, ir::AttrMap attrs, std::string name,
                                const ir::OpRegistry& registry,
                                std::vector<ir::NodeId> controls = {});
  /// As add(), but keeps the name, which must be that of the old node it stands for.
  Result<ir::NodeId> add_as(ir::Node node, const ir::OpRegistry& registry);

  /// What an old value or node is in the new graph. It must be there.
  [[nodiscard]] ir::Output map(ir::Output old) const;
  [[nodiscard]] ir::NodeId map(ir::NodeId old) const;
  [[nodiscard]] std::vector<ir::Output> map(const std::vector<ir::Output>& old) const;
  /// Without repeats.
  [[nodiscard]] std::vector<ir::NodeId> map(const std::vector<ir::NodeId>& old) const;

  [[nodiscard]] const ir::Graph& graph() const { return to_; }
  /// For what builds nodes by itself; they must not take names of old nodes.
  [[nodiscard]] ir::Graph* mutable_graph() { return &to_; }
  /// The new graph with the fetches and targets of `step`, holding the functions that its nodes
  /// name. The rewriter is empty afterwards.
  StepGraph finish(const StepGraph& step);

 private:
  const ir::Graph& from_;
  ir::Graph to_;
  std::vector<ir::NodeId> map_;
  std::map<ir::Output, ir::Output> values_;
};

/// By node: the nodes that read it, each as often as it does.
std::vector<std::vector<ir::NodeId>> readers_of(const ir::Graph& graph);

/// True when both are on one device, or ask for the same one.
bool same_place(const ir::Node& a, const ir::Node& b);

/// Puts `made`, which stands for `like` or a part of it, where `like` runs.
void put_beside(const ir::Node& like, ir::Node* made);

/// By node: true when it must stay a node of its own, because it is fetched, is a target, or is an
/// end of a control edge.
std::vector<bool> pinned_nodes(const StepGraph& step);

}  // namespace sidereal::passes
