#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// Adds checked nodes to a graph. The first error sticks: later calls do nothing and return an
/// invalid Output, so that model code needs no check after every line; ask status() at the end.
/// Thread: core-local. Borrows the graph and the registry.
class Builder {
 public:
  Builder(Graph* graph, const OpRegistry* registry) : graph_(graph), registry_(registry) {}

  /// Adds a node of `op` and returns its first output. An invalid input makes the result invalid.
  Output add(std::string_view op, const std::vector<Output>& inputs, AttrMap attrs = {},
             std::string_view name = {});
  /// As add(), for ops with any number of outputs.
  NodeId add_node(std::string_view op, const std::vector<Output>& inputs, AttrMap attrs = {},
                  const std::vector<NodeId>& control_inputs = {}, std::string_view name = {});

  /// Names made until the scope object dies start with `name`/.
  class Scope {
   public:
    Scope(Builder* builder, std::string_view name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Builder* builder_;
    std::string before_;
  };
  [[nodiscard]] Scope scope(std::string_view name) { return {this, name}; }
  /// `name` as a node of the present scope gets it, if it is free.
  [[nodiscard]] std::string full_name(std::string_view name) const {
    return prefix_ + std::string(name);
  }

  /// Records an error of the caller's own (kept only if it is the first).
  void fail(const Status& status);
  [[nodiscard]] const Status& status() const { return status_; }
  /// Forgets the error, for a caller that has told somebody of it. The graph is as it was before
  /// the call that failed.
  void clear_status() { status_ = {}; }

  [[nodiscard]] Graph& graph() { return *graph_; }
  [[nodiscard]] const OpRegistry& registry() const { return *registry_; }
  /// The spec of `o`; an invalid spec for an invalid output.
  [[nodiscard]] TensorSpec spec(Output o) const;

 private:
  Graph* graph_;
  const OpRegistry* registry_;
  std::string prefix_;
  Status status_;
};

}  // namespace sidereal::ir
