#pragma once

#include <cstdint>
#include <map>
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

/// Where a node runs: a lane of a ps task, or the worker that drives the step.
struct Location {
  int32_t task = -1;  ///< ps task index; -1: the worker itself.
  int32_t lane = 0;   ///< Lane of that task; 0 for the worker.
  [[nodiscard]] bool is_worker() const { return task < 0; }
  friend auto operator<=>(const Location&, const Location&) = default;
};

/// "worker" or "ps:1/lane:0".
std::string to_string(const Location& location);

/// One operation. Owned by its Graph.
struct Node {
  NodeId id;
  std::string name;                    ///< Unique in the graph; [A-Za-z0-9.][A-Za-z0-9_.\\/>-]*.
  std::string op;                      ///< Name of an OpSchema.
  std::vector<Output> inputs;          ///< Data edges.
  std::vector<NodeId> control_inputs;  ///< Must have run before this node runs.
  AttrMap attrs;
  std::string device;               ///< What the user asked for ("" = anywhere).
  Location location;                ///< What the place pass decided.
  std::vector<TensorSpec> outputs;  ///< One per output, from the schema's inference.
};

/// How a variable's first value is made; see kernels::Initializer for the formulas.
struct InitializerDef {
  std::string kind = "zeros";  ///< zeros constant uniform normal truncated_normal glorot_uniform
  double a = 0;                ///< constant: value; uniform: low; normal: mean.
  double b = 0;                ///< uniform: high; normal: standard deviation.
  uint64_t seed = 0;           ///< The value depends on (seed, variable name, element index) only.
  friend bool operator==(const InitializerDef&, const InitializerDef&) = default;
};

/// How a variable is updated where it lives. `kind` "" means the variable is never trained.
struct OptimizerDef {
  std::string kind;  ///< sgd momentum adagrad adam ftrl
  std::map<std::string, double, std::less<>>
      parameters;  ///< e.g. learning_rate; defaults in store.
  friend bool operator==(const OptimizerDef&, const OptimizerDef&) = default;
};

/// A value that outlives steps and lives on parameter servers.
struct VariableDef {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;             ///< Fully defined. Embeddings: [rows, dim].
  bool embedding = false;  ///< Split by rows over all ps lanes, read by Lookup only.
  InitializerDef initializer;
  OptimizerDef optimizer;
  bool trainable = true;  ///< False: autodiff's minimize() leaves it alone.
  friend bool operator==(const VariableDef&, const VariableDef&) = default;
};

class Function;
using FunctionPtr = std::shared_ptr<const Function>;

/// A function under the name that nodes of one graph call it by.
struct NamedFunction {
  std::string name;
  FunctionPtr function;
};

/// A dataflow graph: nodes in an order in which every node follows its inputs, and the variables
/// and functions they use. Value type (copying copies everything but functions, which are immutable
/// and shared). Loops are not edges: see function.h.
/// Thread: core-local; immutable once shared.
class Graph {
 public:
  /// Appends a node as it is; ids are indices. Checks nothing: use Builder, or verify() after.
  NodeId append(Node node);
  /// Adds a variable, or kAlreadyExists when one of that name differs from `def`.
  Status add_variable(VariableDef def);

  [[nodiscard]] size_t size() const { return nodes_.size(); }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id.value]; }
  [[nodiscard]] Node& mutable_node(NodeId id) { return nodes_[id.value]; }
  /// The node of that name, or nullptr.
  [[nodiscard]] const Node* find(std::string_view name) const;
  [[nodiscard]] const TensorSpec& spec(Output o) const { return node(o.node).outputs[o.index]; }

  [[nodiscard]] const std::vector<VariableDef>& variables() const { return variables_; }
  [[nodiscard]] std::vector<VariableDef>& mutable_variables() { return variables_; }
  /// The variable of that name, or nullptr.
  [[nodiscard]] const VariableDef* find_variable(std::string_view name) const;

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
  std::vector<VariableDef> variables_;
  std::vector<NamedFunction> functions_;
  absl::flat_hash_map<std::string, NodeId> by_name_;
  absl::flat_hash_map<std::string, int64_t> name_uses_;
  absl::flat_hash_map<std::string, size_t> variable_index_;
};

}  // namespace sidereal::ir
