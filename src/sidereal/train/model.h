#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/optimizers.h"

namespace sidereal::train {

using ops::Initializer;

/// How a variable of a model is kept and trained. Value type.
struct VariableOptions {
  Initializer initializer = {};
  /// What it starts as, in the place of `initializer`; of its dtype and shape.
  std::shared_ptr<const ir::Tensor> value = nullptr;
  Parameters parameters = {};  ///< On top of those of the model's optimizer.
  /// float32 or float64; of those that are not trained, int32 and int64 too. Tables are float32.
  ir::DType dtype = ir::DType::kFloat32;
  /// [rows, dim], read by EmbeddingLookup alone, and spread by rows over all lanes of all ps.
  bool is_table = false;
  bool trainable = true;
  friend bool operator==(const VariableOptions&, const VariableOptions&) = default;
};

/// What an optimizer keeps beside a variable. Value type.
struct SlotVariable {
  std::string name;  ///< "w/accumulator".
  ir::Shape shape;
  double first = 0;  ///< What it is full of at first.
};

/// A variable of a model, whose handle is the node of its name. Value type.
struct ModelVariable {
  std::string name;
  ir::Shape shape;
  VariableOptions options = {};
  OptimizerDef optimizer = {};           ///< Once compiled, of those that are trained.
  std::vector<SlotVariable> slots = {};  ///< As `optimizer`.
  std::string update = {};               ///< The node that updates it, likewise.
  std::string gradient = {};             ///< Output: before it is clipped.
  std::string ids = {};                  ///< Output, of tables: the rows of `gradient`.
};

/// How the number of the step comes into a graph. Value type.
struct StepCount {
  ir::Output handle = {};  ///< kGlobalStep.
  ir::Output done = {};    ///< int64: steps before this one.
};

/// A model ready to be trained: one graph with everything in it. Made by Model::compile().
struct CompiledModel {
  ir::Graph graph;
  std::vector<ModelVariable> variables;
  std::string loss;                  ///< Output: scalar float32, what is minimized.
  std::string prediction;            ///< Output: float32, one row for each of the batch.
  Clipping clipping = {};            ///< Of gradients.
  bool is_binary = false;            ///< The prediction is the probability of label 1.
  std::vector<std::string> targets;  ///< Nodes that update variables.
  std::vector<std::string> updates;  ///< Nodes of Model::add_update().
  std::vector<std::string>
      inputs;  ///< Placeholders: "label", "dense", "ids", "weights" or columns.

  /// The variable of that name, or nullptr.
  [[nodiscard]] const ModelVariable* find_variable(std::string_view name) const;
};

/// The placeholders that some outputs of `graph` depend on. kNotFound for one that is not there.
Result<std::vector<std::string>> placeholders_of(const ir::Graph& graph,
                                                 const std::vector<std::string>& outputs);

/// A float64 scalar that learning rates are multiplied by, fed in each step.
inline constexpr const char* kLearningRateScale = "learning_rate_scale";
/// The int64 variable that counts steps, in models whose optimizers use their number.
inline constexpr const char* kGlobalStep = "global_step";

/// A model under construction: its graph, and layers that add to it (see layers.h). Errors stick in
/// the builder and come out of compile().
/// Thread: core-local.
class Model {
 public:
  explicit Model(uint64_t seed = 0);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// A value fed per row of a batch: `shape` without the batch dimension; -1 for an extent that
  /// differs from batch to batch.
  ir::Output input(const std::string& name, ir::DType dtype, const ir::Shape& shape);
  /// The handle of a variable called `name` in the present scope, made unless there is one,
  /// which must be the same.
  ir::Output variable(const std::string& name, const ir::Shape& shape,
                      const VariableOptions& options);
  /// In the order in which they were made.
  [[nodiscard]] const std::vector<ModelVariable>& variables() const { return variables_; }
  [[nodiscard]] ir::Builder& builder() { return builder_; }
  /// A seed for the next initializer or dropout, different each time, the same in every run.
  uint64_t next_seed();
  /// `how` with a seed of its own, if it draws numbers and has none.
  Initializer seeded(Initializer how);
  /// A name for a layer that was given none: `kind`, then kind_1, kind_2, ...
  std::string layer_name(const std::string& kind);

  /// int64 scalar: steps, or updates of replicas in step, before this one. For set_learning_rate().
  ir::Output steps_done();
  /// Before compile(): the learning rate, a float64 scalar that may follow from steps_done(), in
  /// the place of the optimizer's number.
  void set_learning_rate(ir::Output rate) { learning_rate_ = rate; }

  /// Before compile(): each step of training runs `node` too, for what it does, such as an enqueue.
  /// Queues, accumulators and mutable tables that are nodes of the graph belong to each worker.
  void add_update(ir::NodeId node) { updates_.push_back(node); }

  /// Finishes: sigmoid cross entropy of `logit` ([batch, 1] or [batch]) against the input "label"
  /// (float32 [batch]), gradients, and updates by `optimizer`. Of a model with an input
  /// "sample_weight" (float32 [batch]) the loss of each row is multiplied by it, and the mean is
  /// over the rows. A model compiles once.
  Result<CompiledModel> compile(ir::Output logit, const OptimizerDef& optimizer);
  /// Finishes with a loss of the model's own, a float32 scalar, such as the mean of the squared
  /// differences of `prediction` (float32 [batch, ...]) and an input.
  Result<CompiledModel> compile(ir::Output prediction, ir::Output loss,
                                const OptimizerDef& optimizer);

 private:
  Status begin_compile(const OptimizerDef& optimizer);
  Result<CompiledModel> finish(ir::Output prediction, ir::Output loss, bool is_binary,
                               const OptimizerDef& optimizer);
  Result<std::vector<std::string>> add_updates(ir::Output loss, const Clipping& clipping);

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder builder_;
  uint64_t seed_;
  uint64_t seeds_given_ = 0;
  std::vector<std::string> inputs_;
  std::vector<ModelVariable> variables_;
  std::map<std::string, int64_t> layer_names_;
  StepCount steps_;
  ir::Output learning_rate_;
  std::vector<ir::NodeId> updates_;
  bool compiled_ = false;
};

}  // namespace sidereal::train
