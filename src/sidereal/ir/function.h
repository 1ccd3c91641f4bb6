#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// The op of a function's inputs, with attributes "index", "dtype" and "shape".
inline constexpr std::string_view kArgOp = "Arg";

/// How deep functions may nest: a function that holds none has depth 1.
inline constexpr int kMaxFunctionDepth = 32;

/// A graph that other nodes run: its first nodes are the inputs (`Arg` 0, 1, ...), some of its
/// values are the outputs. What it takes from around it are inputs as well. A function exists
/// before a graph can hold it, so none calls itself.
/// Thread: immutable.
class Function {
 public:
  /// kInvalidArgument when the Args of `body` are not its first nodes, numbered from 0, when an
  /// output or target is not in it, or when functions nest too deep. `targets` are nodes to run for
  /// what they do. Does not verify() the nodes.
  static Result<FunctionPtr> make(Graph body, std::vector<Output> outputs,
                                  std::vector<NodeId> targets = {});

  [[nodiscard]] const Graph& body() const { return body_; }
  [[nodiscard]] const std::vector<Output>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<NodeId>& targets() const { return targets_; }

  [[nodiscard]] size_t num_inputs() const { return num_inputs_; }
  /// Dtype and shape of input `i`, the shape possibly partly unknown.
  [[nodiscard]] const TensorSpec& input(size_t i) const { return body_.nodes()[i].outputs[0]; }
  [[nodiscard]] size_t num_outputs() const { return outputs_.size(); }
  [[nodiscard]] const TensorSpec& output(size_t i) const { return body_.spec(outputs_[i]); }
  /// 1, or one more than the deepest function it holds.
  [[nodiscard]] int depth() const { return depth_; }

 private:
  Function() = default;

  Graph body_;
  std::vector<Output> outputs_;
  std::vector<NodeId> targets_;
  size_t num_inputs_ = 0;
  int depth_ = 1;
};

/// Appends `Arg` number `index` to a body under construction; Args come first, in order.
Result<Output> add_arg(Graph* body, const OpRegistry& registry, const TensorSpec& spec,
                       std::string_view name = "arg");

/// What became of a function that was copied into a graph.
struct Inlined {
  std::vector<Output> inputs;   ///< What stands for the Args.
  std::vector<NodeId> nodes;    ///< By node of the body; invalid for Args.
  std::vector<Output> outputs;  ///< The function's outputs.
  std::vector<NodeId> targets;  ///< The function's targets.
  /// Where a value of the body is now.
  [[nodiscard]] Output map(Output in_body) const {
    const auto at = static_cast<size_t>(in_body.node.value);
    return at < inputs.size() ? inputs[at] : Output{nodes[at], in_body.index};
  }
};

/// Copies the body of `function` to the end of `graph` with `inputs` in the place of its Args.
/// Names get `prefix` and are made unique; shapes are inferred again. Stateful nodes run after
/// `after`. kInvalidArgument when the inputs do not fit.
Result<Inlined> inline_function(const Function& function, const std::vector<Output>& inputs,
                                const OpRegistry& registry, std::string_view prefix, Graph* graph,
                                const std::vector<NodeId>& after = {});

/// One input of a function that is cut out of a graph.
struct CutInput {
  Output value;     ///< The value that it stands for; invalid: an input that nothing reads.
  TensorSpec spec;  ///< What the function's Arg says of it.
};

/// What to cut out of a graph. Value type.
struct Cut {
  std::vector<CutInput> inputs;  ///< Args of the function, in this order.
  std::vector<Output> outputs;
  std::vector<NodeId> targets = {};
  /// Nodes that run only because a node of the function waits for them come along. False: such
  /// edges are dropped.
  bool with_controls = true;
};

/// The function that calculates `cut.outputs` from `cut.inputs`, with all nodes of `graph` between
/// them. kInvalidArgument names an Arg or Placeholder that it would need besides.
Result<FunctionPtr> cut_function(const Graph& graph, const Cut& cut, const OpRegistry& registry);

/// Names of the functions that a node of `op`'s schema calls, by attribute name.
std::vector<std::string> function_attrs(const OpSchema& schema);

/// True when `node` is stateful by its schema, or calls a function with such a node in it.
bool is_stateful(const Graph& graph, const Node& node, const OpRegistry& registry);

/// True when `node` has an effect by its schema, or calls a function with such a node in it.
bool has_effect(const Graph& graph, const Node& node, const OpRegistry& registry);

/// Identity of a function or graph: a 64-bit hash of its text. Equal for equal text only.
uint64_t content_hash(const Graph& graph);
uint64_t content_hash(const Function& function);

}  // namespace sidereal::ir
