#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/ir/graph.h"

namespace sidereal::ir {

class Builder;
struct OpSchema;

/// Limits every shape in a graph keeps, so that counting its elements cannot overflow.
inline constexpr int kMaxRank = 16;
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

/// Ok when `shape` keeps the limits and its extents are -1 (unknown) or more.
Status check_shape(const Shape& shape);

/// What a schema's inference function sees of the node being made.
struct InferContext {
  const Graph& graph;
  const OpSchema& schema;
  const std::string& node_name;
  const std::vector<TensorSpec>& inputs;
  const AttrMap& attrs;
  std::vector<TensorSpec>* outputs;            ///< To be filled: one spec per output.
  const std::vector<Output>* edges = nullptr;  ///< The node's inputs; nullptr when not in a graph.

  /// The value of input `i` when a Const node makes it, else nullptr. What inference learns from a
  /// value may only make a shape more precise: passes may turn constants into other nodes and back.
  [[nodiscard]] const Tensor* constant(size_t i) const;
  /// "MatMul 'tower/0/mat_mul' (float32[?,8], float32[9,4])", for error messages.
  [[nodiscard]] std::string describe() const;
};

/// What a gradient rule sees: the node, the gradients of its outputs (invalid = zero), and where to
/// put the gradients of its inputs (invalid = none flows).
struct GradContext {
  Builder& builder;
  const Node& node;  ///< A copy: stays valid while the rule adds nodes.
  const std::vector<Output>& output_grads;
  std::vector<Output>* input_grads;           ///< Sized like node.inputs, all invalid at first.
  const std::vector<bool>* wanted = nullptr;  ///< Inputs whose gradients are used; nullptr: all.

  /// False when a rule may leave out the gradient of input `i`. Rules need not ask.
  [[nodiscard]] bool wants(size_t i) const { return wanted == nullptr || (*wanted)[i]; }
};

/// One attribute an op takes. Those that is_note() tells need none.
struct AttrSpec {
  std::string name;
  std::string type;  ///< As attr_type_name() says; "function": a string, the name of a function
                     ///< that the graph holds.
  bool required = false;
  std::string doc;
};

/// Everything the engine knows of an op, in one place.
struct OpSchema {
  std::string name;
  std::string doc = {};
  int min_inputs = 0;
  int max_inputs = 0;  ///< -1: any number.
  std::vector<AttrSpec> attrs = {};
  /// Fills outputs or says what is wrong with inputs and attributes. Must not trust either.
  std::function<Status(const InferContext&)> infer = nullptr;
  /// Builds the gradients; empty when the op has none (see `differentiable`).
  std::function<Status(GradContext&)> gradient = nullptr;
  bool differentiable = true;  ///< False: asking for a gradient through it is an error.
  bool stateful = false;       ///< Reads or writes a variable, or draws random numbers: no merging.
  /// Changes, or waits for, what lies outside of the graph. In a function it runs in the order of
  /// the program, also when nobody reads its outputs.
  bool effect = false;
  /// How many of the first inputs are handles of resources; it runs where those were made.
  int handle_inputs = 0;
};

/// The op schemas by name. An explicit object: there is no global table.
/// Thread: immutable once filled.
class OpRegistry {
 public:
  /// Adds a schema; two of one name is a bug.
  void add(OpSchema schema);
  /// The schema, or nullptr.
  [[nodiscard]] const OpSchema* find(std::string_view name) const;
  /// All names, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  absl::flat_hash_map<std::string, OpSchema> schemas_;
};

/// Checks arity and attributes against `schema` and runs its inference. Errors name the node, the
/// op, the input shapes and what is wrong. The node's inputs must exist in `graph`.
Status infer_node(const Graph& graph, const OpSchema& schema, Node* node);

}  // namespace sidereal::ir
