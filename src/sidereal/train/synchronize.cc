#include "sidereal/train/synchronize.h"

#include <utility>

#include "sidereal/ir/builder.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/ops/ops.h"

namespace sidereal::train {

using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

/// Where the number of the step is.
constexpr const char* kHome = "/job:ps/task:0";

/// Inputs of an EmbeddingUpdate before its handles.
constexpr size_t kBeforeHandles = 4;

class Synchronizer {
 public:
  Synchronizer(const DistributedModel& model, const std::vector<std::string>& targets,
               bool has_spares, const ir::OpRegistry& registry)
      : model_(model), targets_(targets), has_spares_(has_spares), b_(&out_.graph, &registry) {}

  Result<SynchronousModel> run() {
    out_.graph.mutable_functions() = model_.graph.functions();
    add_step();
    copy_model();
    for (const std::string& target : targets_) {
      const Node* const found = out_.graph.find(target);
      if (found == nullptr) return base::internal("the model has no target '{}'", target);
      // Building moves nodes.
      const Node node = *found;
      if (node.op == "VariableUpdateDense") {
        add_variable(node);
      } else if (node.op == "EmbeddingUpdate") {
        add_table(node);
      } else if (node.op == "VariableAssignAdd") {
        counters_.push_back(node);
      } else {
        return base::internal("target '{}' is {}, which is no update", target, node.op);
      }
    }
    add_ends();
    SR_RETURN_IF_ERROR(b_.status());
    return std::move(out_);
  }

 private:
  /// What comes before all else.
  void add_step() {
    step_ = at_home(ops::variable(b_, "synchronous/step", DType::kInt64, {}));
    local_step_ = ops::variable_read(b_, step_, "synchronous/local_step");
    if (local_step_.valid()) out_.step = out_.graph.output_name(local_step_);
  }

  /// The model's nodes, behind those that are there.
  void copy_model() {
    const auto before = static_cast<int32_t>(out_.graph.size());
    const auto moved = [before](NodeId id) { return NodeId(id.value + before); };
    for (const Node& node : model_.graph.nodes()) {
      Node made = node;
      for (Output& input : made.inputs) input.node = moved(input.node);
      for (NodeId& control : made.control_inputs) control = moved(control);
      const bool reads = node.op == "VariableRead" || node.op == "EmbeddingLookup";
      if (has_spares_ && reads) made.control_inputs.push_back(local_step_.node);
      out_.graph.append(std::move(made));
    }
  }

  /// A variable is updated as a whole.
  void add_variable(const Node& update) {
    const Output handle = update.inputs[0];
    const Output sum = accumulator(handle, /*is_sparse=*/false);
    if (!sum.valid()) return;
    pushes_.push_back(b_.add_node("AccumulatorApply", {sum, local_step_, update.inputs[1]}, {}, {},
                                  "contribute/" + name_of(handle)));
    std::vector<Output> inputs = update.inputs;
    inputs[1] = b_.add("AccumulatorTake", {sum, to_aggregate()},
                       ir::component_attrs({{DType::kFloat32, shape_of(handle)}}),
                       "mean/" + name_of(handle));
    updates_.push_back(
        b_.add_node(update.op, inputs, update.attrs, {}, "synchronous/" + update.name));
  }

  /// Of a table each part is updated by itself, in the rows that there are means of.
  void add_table(const Node& update) {
    const auto parts = static_cast<size_t>(std::get<int64_t>(update.attrs.at("parts")));
    const size_t each = (update.inputs.size() - kBeforeHandles) / parts;
    std::vector<Output> pushed = {update.inputs[0], update.inputs[1], local_step_};
    ir::AttrMap attrs = update.attrs;
    for (const char* const of_tables : {"rows", "dim", "parts"}) attrs.erase(of_tables);
    attrs["distinct"] = true;
    for (size_t k = 0; k < parts; ++k) {
      const auto first =
          update.inputs.begin() + static_cast<std::ptrdiff_t>(kBeforeHandles + k * each);
      const Output sum = accumulator(*first, /*is_sparse=*/true);
      if (!sum.valid()) return;
      pushed.push_back(sum);
      ir::Shape rows = shape_of(*first);
      rows.set_dim(0, -1);
      const NodeId mean =
          b_.add_node("AccumulatorTake", {sum, to_aggregate()},
                      ir::component_attrs({{DType::kInt64, {-1}}, {DType::kFloat32, rows}}), {},
                      "mean/" + name_of(*first));
      std::vector<Output> inputs = {
          *first, {mean, 0}, {mean, 1}, update.inputs[2], update.inputs[3]};
      inputs.insert(inputs.end(), first + 1, first + static_cast<std::ptrdiff_t>(each));
      updates_.push_back(b_.add_node("VariableUpdateRows", inputs, attrs, {},
                                     fmt::format("synchronous/{}/part_{}", update.name, k)));
    }
    pushes_.push_back(
        b_.add_node("EmbeddingAccumulate", pushed,
                    {{"rows", update.attrs.at("rows")}, {"dim", update.attrs.at("dim")}}, {},
                    "contribute/" + update.name));
  }

  /// The accumulator beside a variable, "w/gradient".
  Output accumulator(Output handle, bool is_sparse) {
    if (!b_.status().ok()) return {};
    ir::AttrMap attrs = ir::component_attrs({{DType::kFloat32, shape_of(handle)}});
    attrs["sparse"] = is_sparse;
    attrs["reduction"] = std::string("mean_of_all");
    const Output made = named("Accumulator", std::move(attrs), name_of(handle) + "/gradient");
    if (!made.valid()) return made;
    out_.graph.mutable_node(made.node).device = out_.graph.node(handle.node).device;
    accumulators_.push_back(made);
    return made;
  }

  void add_ends() {
    const Output barrier = at_home(
        named("Accumulator", ir::component_attrs({{DType::kFloat32, {}}}), "synchronous/barrier"));
    const NodeId waits = b_.add_node("AccumulatorAwaitStep", {barrier, local_step_}, {}, pushes_,
                                     "synchronous/await");
    add_next_step(barrier);
    const Output replicas = ops::placeholder(b_, kReplicas, DType::kInt64, {});
    const Output first = ops::placeholder(b_, kFirstStep, DType::kInt64, {});
    const Output one = ops::scalar(b_, DType::kInt64, 1, "synchronous/one");
    std::vector<NodeId> begun = {
        b_.add_node("VariableAssign", {step_, first}, {}, {}, "synchronous/first"),
        b_.add_node("AccumulatorRestart", {barrier, first, replicas}, {}, {},
                    "synchronous/restart")};
    std::vector<NodeId> left;
    for (const Output sum : accumulators_) {
      const std::string name = out_.graph.node(sum.node).name;
      begun.push_back(
          b_.add_node("AccumulatorRestart", {sum, first, replicas}, {}, {}, "restart/" + name));
      left.push_back(b_.add_node("AccumulatorLeave", {sum, one}, {}, {}, "leave/" + name));
    }
    const NodeId begin = ops::no_op(b_, begun, "synchronous/begin");
    const NodeId leave = ops::no_op(b_, left, "synchronous/leave");
    if (!b_.status().ok()) return;
    out_.contribute = {out_.graph.node(waits).name};
    out_.begin = out_.graph.node(begin).name;
    out_.leave = out_.graph.node(leave).name;
  }

  /// Once all is updated: counts the step, and lets those go on that wait for it.
  void add_next_step(Output barrier) {
    std::vector<NodeId> done = updates_;
    for (const Node& counter : counters_) {
      done.push_back(b_.add_node(counter.op, counter.inputs, counter.attrs, updates_,
                                 "synchronous/" + counter.name));
    }
    const Output one = ops::scalar(b_, DType::kInt64, 1, "synchronous/one");
    const NodeId next =
        b_.add_node("VariableAssignAdd", {step_, one}, {}, done, "synchronous/next_step");
    const NodeId release = b_.add_node("AccumulatorSetGlobalStep", {barrier, {next, 0}}, {}, {},
                                       "synchronous/release");
    if (b_.status().ok()) out_.apply = {out_.graph.node(release).name};
  }

  Output to_aggregate() {
    if (!to_aggregate_.valid()) {
      to_aggregate_ = ops::placeholder(b_, kReplicasToAggregate, DType::kInt64, {});
    }
    return to_aggregate_;
  }

  Output named(const char* op, ir::AttrMap attrs, const std::string& name) {
    attrs["shared_name"] = name;
    return b_.add(op, {}, std::move(attrs), name);
  }
  Output at_home(Output made) {
    if (made.valid()) out_.graph.mutable_node(made.node).device = kHome;
    return made;
  }
  [[nodiscard]] std::string name_of(Output handle) const {
    return out_.graph.node(handle.node).name;
  }
  [[nodiscard]] ir::Shape shape_of(Output handle) const {
    return std::get<ir::Shape>(out_.graph.node(handle.node).attrs.at("shape"));
  }

  const DistributedModel& model_;
  const std::vector<std::string>& targets_;
  const bool has_spares_;
  SynchronousModel out_;
  ir::Builder b_;
  Output step_;
  Output local_step_;
  Output to_aggregate_;
  std::vector<Output> accumulators_;
  std::vector<Node> counters_;  // Of what optimizers use as the number of the step.
  std::vector<NodeId> pushes_;
  std::vector<NodeId> updates_;
};

}  // namespace

Result<SynchronousModel> synchronize(const DistributedModel& model,
                                     const std::vector<std::string>& targets, bool has_spares,
                                     const ir::OpRegistry& registry) {
  return Synchronizer(model, targets, has_spares, registry).run();
}

}  // namespace sidereal::train
