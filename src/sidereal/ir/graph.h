#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/ids.h"
#include "sidereal/ir/attr.h"

namespace sidereal::ir {

struct NodeTag;
/// Index of a node in its graph.
using NodeId = base::StrongId<NodeTag, int32_t>;

/// One output of one node. The default Output is "none".
struct Output {
  NodeId node;
  int32_t index = 0;
  [[nodiscard]] bool valid() const { return node.valid(); }
  friend auto operator<=>(const Output&, const Output&) = default;
};

/// What is known of a value before it is computed. Unknown extents are -1.
struct TensorSpec {
  DType dtype = DType::kInvalid;
  Shape shape;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// "float32[?,8]".
std::string to_string(const TensorSpec& spec);

/// One operation. Owned by its Graph.
struct Node {
  NodeId id;
  std::string name;                    ///< Unique in the graph; [A-Za-z0-9.][A-Za-z0-9_.\\/>-]*.
  std::string op;                      ///< Name of an OpSchema.
  std::vector<Output> inputs;          ///< Data edges.
  std::vector<NodeId> control_inputs;  ///< Must have run before this node runs.
  AttrMap attrs;
  std::string device;               ///< Where it runs, or what the user asked for ("" = anywhere).
  std::vector<TensorSpec> outputs;  ///< One per output, from the schema's inference.
};

class Function;
using FunctionPtr = std::shared_ptr<const Function>;

/// A function under the name that nodes of one graph call it by.
struct NamedFunction {
  std::string name;
  FunctionPtr function;
};

/// A dataflow graph: nodes in an order in which every node follows its inputs, and the functions
/// they use. Value type (copying copies everything but functions, which are immutable and shared).
/// Loops are not edges: see function.h.
/// Thread: core-local; immutable once shared.
class Graph {
 public:
  /// Appends a node as it is; ids are indices. Checks nothing: use Builder, or verify() after.
  NodeId append(Node node);

  [[nodiscard]] size_t size() const { return nodes_.size(); }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id.value]; }
  [[nodiscard]] Node& mutable_node(NodeId id) { return nodes_[id.value]; }
  /// The node of that name, or nullptr.
  [[nodiscard]] const Node* find(std::string_view name) const;
  [[nodiscard]] const TensorSpec& spec(Output o) const { return node(o.node).outputs[o.index]; }

  /// Holds `function` under `name`, or kAlreadyExists when another one has that name here.
  Status add_function(std::string_view name, FunctionPtr function);
  /// Holds `function` under `wanted` or, where that name is taken, `wanted_1`, ...; the name. A
  /// function that the graph holds already keeps its name.
  std::string hold_function(std::string_view wanted, const FunctionPtr& function);
  /// Functions in the order they were added.
  [[nodiscard]] const std::vector<NamedFunction>& functions() const { return functions_; }
  [[nodiscard]] std::vector<NamedFunction>& mutable_functions() { return functions_; }
  /// The function called `name`, or nullptr.
  [[nodiscard]] FunctionPtr find_function(std::string_view name) const;

  /// "name:index" as people write it; ":0" is left out.
  [[nodiscard]] std::string output_name(Output o) const;
  /// The output called "name" or "name:index", or kNotFound / kInvalidArgument.
  [[nodiscard]] Result<Output> find_output(std::string_view name) const;
  /// A node name not yet used: `wanted`, or `wanted_1`, `wanted_2`, ...
  [[nodiscard]] std::string unique_name(std::string_view wanted);

 private:
  std::vector<Node> nodes_;
  std::vector<NamedFunction> functions_;
  absl::flat_hash_map<std::string, NodeId> by_name_;
  absl::flat_hash_map<std::string, int64_t> name_uses_;
};

}  // namespace sidereal::ir
