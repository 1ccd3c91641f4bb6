#include "sidereal/train/synchronize.h"

#include <set>
#include <utility>

#include "sidereal/base/part_name.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/clip.h"

namespace sidereal::train {

using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

/// Appends the nodes of a model; those that read variables run behind `before_reads`, if it is
/// there.
void append_model(const ir::Graph& model, NodeId before_reads, ir::Graph* to) {
  const auto before = static_cast<int32_t>(to->size());
  const auto moved = [before](NodeId id) { return NodeId(id.value + before); };
  for (const Node& node : model.nodes()) {
    Node made = node;
    for (Output& input : made.inputs) input.node = moved(input.node);
    for (NodeId& control : made.control_inputs) control = moved(control);
    const bool reads = node.op == "VariableRead" || node.op == "EmbeddingLookup";
    if (before_reads.valid() && reads) made.control_inputs.push_back(before_reads);
    to->append(std::move(made));
  }
}

/// A copy, as building moves nodes.
Result<Node> node_of(const ir::Graph& graph, const std::string& name) {
  if (const Node* const found = graph.find(name)) return *found;
  return base::internal("the distributed model has no node '{}'", name);
}

/// Inputs of an EmbeddingUpdate before its handles.
constexpr size_t kBeforeHandles = 4;

class Synchronizer {
 public:
  Synchronizer(const CompiledModel& model, const DistributedModel& distributed,
               const config::Consistency& consistency, const ir::OpRegistry& registry)
      : model_(model),
        distributed_(distributed),
        consistency_(consistency),
        b_(&out_.graph, &registry) {}

  Result<ReplicaModel> run() {
    out_.graph.mutable_functions() = distributed_.graph.functions();
    if (consistency_.has_spares()) add_step();
    append_model(distributed_.graph, local_step_.node, &out_.graph);
    if (!consistency_.has_spares()) add_step();
    if (consistency_.is_hybrid()) read_step_after_count();
    std::set<std::string> updates;
    for (const ModelVariable& variable : model_.variables) {
      if (variable.update.empty()) continue;
      SR_RETURN_IF_ERROR(add_means(variable));
      updates.insert(variable.update);
    }
    if (consistency_.is_hybrid() && pending_.empty()) return no_dense_variable();
    if (b_.status().ok() && clips_means()) clip(b_, model_.clipping, &means_);
    for (size_t i = 0; i < pending_.size(); ++i) add_updates(pending_[i], means_[i]);
    for (const std::string& target : model_.targets) {
      if (updates.contains(target)) continue;
      SR_ASSIGN_OR_RETURN(counters_.emplace_back(), node_of(out_.graph, target));
      if (counters_.back().op == "VariableAssignAdd") continue;
      return base::internal("target '{}' neither updates nor counts", target);
    }
    add_ends();
    SR_RETURN_IF_ERROR(b_.status());
    return std::move(out_);
  }

 private:
  void add_step() {
    step_ = at_home(ops::variable(b_, "synchronous/step", DType::kInt64, {}));
    local_step_ = ops::variable_read(b_, step_, "synchronous/local_step");
    if (local_step_.valid()) out_.step = out_.graph.output_name(local_step_);
  }

  /// When hybrid, replicas clip the gradients that they find, as those of tables have no means.
  [[nodiscard]] bool clips_means() const {
    return model_.clipping.any() && !consistency_.is_hybrid();
  }

  static Status no_dense_variable() {
    return base::invalid_argument(
        "all variables of this model that are trained are tables: consistency 'hybrid' has nothing "
        "to update in step; write 'bounded(1)', which is what it does for tables");
  }

  /// The count of steps that own updates of tables take is that of the replica's step: it is read
  /// before the step is known, and so before gradients are given that may end it.
  void read_step_after_count() {
    std::vector<NodeId> counts;
    for (const Node& node : out_.graph.nodes()) {
      if (node.op == "VariableRead" && name_of(node.inputs[0]) == kGlobalStep) {
        counts.push_back(node.id);
      }
    }
    if (!b_.status().ok()) return;
    out_.graph.mutable_node(local_step_.node).control_inputs = std::move(counts);
  }

  /// An update that waits for its means.
  struct Pending {
    Node update;
    std::vector<Output> rows = {};  ///< By part of a table: those that there are means of.
  };

  Status add_means(const ModelVariable& variable) {
    Pending made;
    SR_ASSIGN_OR_RETURN(made.update, node_of(out_.graph, variable.update));
    if (consistency_.is_hybrid() && made.update.op == "EmbeddingUpdate") {
      own_updates_.push_back(made.update.id);
      return {};
    }
    SR_ASSIGN_OR_RETURN(const Output gradient, out_.graph.find_output(variable.gradient));
    means_.emplace_back();
    if (made.update.op == "VariableUpdateDense") {
      add_mean(made.update, consistency_.is_hybrid() ? made.update.inputs[1] : gradient);
    } else if (made.update.op == "EmbeddingUpdate") {
      SR_ASSIGN_OR_RETURN(const Output ids, out_.graph.find_output(variable.ids));
      add_means_of_parts(ids, gradient, &made);
    } else {
      return base::internal("'{}' is {}, which is no update", variable.update, made.update.op);
    }
    pending_.push_back(std::move(made));
    return b_.status();
  }

  void add_mean(const Node& update, Output gradient) {
    const Output handle = update.inputs[0];
    const Output sum = accumulator(handle, /*is_sparse=*/false);
    if (!sum.valid()) return;
    pushes_.push_back(b_.add_node("AccumulatorApply", {sum, local_step_, gradient}, {}, {},
                                  "contribute/" + name_of(handle)));
    means_.back().push_back(
        {.value = b_.add("AccumulatorTake", {sum, to_aggregate()},
                         ir::component_attrs({{dtype_of(handle), shape_of(handle)}}),
                         "mean/" + name_of(handle)),
         .device = device_of(handle)});
  }

  void add_means_of_parts(Output ids, Output gradient, Pending* made) {
    std::vector<Output> pushed = {ids, gradient, local_step_};
    for (const std::vector<Output>& part : parts_of(made->update)) {
      const Output sum = accumulator(part[0], /*is_sparse=*/true);
      if (!sum.valid()) return;
      pushed.push_back(sum);
      ir::Shape rows = shape_of(part[0]);
      rows.set_dim(0, -1);
      const NodeId mean =
          b_.add_node("AccumulatorTake", {sum, to_aggregate()},
                      ir::component_attrs({{DType::kInt64, {-1}}, {DType::kFloat32, rows}}), {},
                      "mean/" + name_of(part[0]));
      made->rows.push_back({mean, 0});
      means_.back().push_back({.value = {mean, 1}, .device = device_of(part[0])});
    }
    pushes_.push_back(b_.add_node(
        "EmbeddingAccumulate", pushed,
        {{"rows", made->update.attrs.at("rows")}, {"dim", made->update.attrs.at("dim")}}, {},
        "contribute/" + made->update.name));
  }

  /// The handles of each part of a table, and of its slots.
  static std::vector<std::vector<Output>> parts_of(const Node& update) {
    const auto parts = static_cast<size_t>(std::get<int64_t>(update.attrs.at("parts")));
    const size_t each = (update.inputs.size() - kBeforeHandles) / parts;
    std::vector<std::vector<Output>> out;
    for (size_t k = 0; k < parts; ++k) {
      const auto first =
          update.inputs.begin() + static_cast<std::ptrdiff_t>(kBeforeHandles + k * each);
      out.emplace_back(first, first + static_cast<std::ptrdiff_t>(each));
    }
    return out;
  }

  /// A variable is updated as a whole; of a table each part by itself, in the rows that there are
  /// means of.
  void add_updates(const Pending& pending, const std::vector<GradientPart>& means) {
    const Node& update = pending.update;
    const std::string name = "synchronous/" + update.name;
    if (pending.rows.empty()) {
      std::vector<Output> inputs = update.inputs;
      inputs[1] = means[0].value;
      updates_.push_back(b_.add_node(update.op, inputs, update.attrs, {}, name));
      return;
    }
    ir::AttrMap attrs = update.attrs;
    for (const char* const of_tables : {"rows", "dim", "parts"}) attrs.erase(of_tables);
    attrs["distinct"] = true;
    const std::vector<std::vector<Output>> parts = parts_of(update);
    for (size_t k = 0; k < parts.size(); ++k) {
      std::vector<Output> inputs = {parts[k][0], pending.rows[k], means[k].value, update.inputs[2],
                                    update.inputs[3]};
      inputs.insert(inputs.end(), parts[k].begin() + 1, parts[k].end());
      updates_.push_back(b_.add_node("VariableUpdateRows", inputs, attrs, {},
                                     base::part_name(name, static_cast<int64_t>(k))));
    }
  }

  /// The accumulator beside a variable, "w/gradient".
  Output accumulator(Output handle, bool is_sparse) {
    if (!b_.status().ok()) return {};
    ir::AttrMap attrs = ir::component_attrs({{dtype_of(handle), shape_of(handle)}});
    attrs["sparse"] = is_sparse;
    attrs["reduction"] = std::string("mean_of_all");
    const Output made = named("Accumulator", std::move(attrs), name_of(handle) + "/gradient");
    if (!made.valid()) return made;
    out_.graph.mutable_node(made.node).device = device_of(handle);
    accumulators_.push_back(made);
    return made;
  }

  void add_ends() {
    const Output barrier = at_home(
        named("Accumulator", ir::component_attrs({{DType::kFloat32, {}}}), "synchronous/barrier"));
    std::vector<NodeId> before = pushes_;
    before.insert(before.end(), own_updates_.begin(), own_updates_.end());
    const NodeId waits = b_.add_node("AccumulatorAwaitStep", {barrier, local_step_}, {}, before,
                                     "synchronous/await");
    const Output one = ops::scalar(b_, DType::kInt64, 1, "synchronous/one");
    add_next_step(barrier, one);
    const Output replicas = ops::placeholder(b_, kReplicas, DType::kInt64, {});
    const Output first = ops::placeholder(b_, kFirstStep, DType::kInt64, {});
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
    if (!b_.status().ok()) return;
    out_.targets = {out_.graph.node(waits).name};
    for (const NodeId node : begun) out_.begin.push_back(out_.graph.node(node).name);
    for (const NodeId node : left) out_.leave.push_back(out_.graph.node(node).name);
  }

  /// Once all is updated: counts the step, and lets those go on that wait for it.
  void add_next_step(Output barrier, Output one) {
    std::vector<NodeId> done = updates_;
    for (const Node& counter : counters_) {
      done.push_back(b_.add_node(counter.op, counter.inputs, counter.attrs, updates_,
                                 "synchronous/" + counter.name));
    }
    const NodeId next =
        b_.add_node("VariableAssignAdd", {step_, one}, {}, done, "synchronous/next_step");
    const NodeId release = b_.add_node("AccumulatorSetGlobalStep", {barrier, {next, 0}}, {}, {},
                                       "synchronous/release");
    if (b_.status().ok()) out_.chief = {out_.graph.node(release).name};
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
    if (made.valid()) out_.graph.mutable_node(made.node).device = ps_device(0);
    return made;
  }
  [[nodiscard]] std::string name_of(Output handle) const {
    return out_.graph.node(handle.node).name;
  }
  [[nodiscard]] std::string device_of(Output handle) const {
    return out_.graph.node(handle.node).device;
  }
  [[nodiscard]] DType dtype_of(Output handle) const {
    return std::get<DType>(out_.graph.node(handle.node).attrs.at("dtype"));
  }
  [[nodiscard]] ir::Shape shape_of(Output handle) const {
    return std::get<ir::Shape>(out_.graph.node(handle.node).attrs.at("shape"));
  }

  const CompiledModel& model_;
  const DistributedModel& distributed_;
  const config::Consistency& consistency_;
  ReplicaModel out_;
  ir::Builder b_;
  Output step_;
  Output local_step_;
  Output to_aggregate_;
  std::vector<Output> accumulators_;
  std::vector<Node> counters_;  // Of what optimizers use as the number of the step.
  std::vector<Pending> pending_;
  std::vector<std::vector<GradientPart>> means_;  // As pending_.
  std::vector<NodeId> pushes_;
  std::vector<NodeId> own_updates_;  // Of tables, by the replica.
  std::vector<NodeId> updates_;
};

}  // namespace

Result<ReplicaModel> synchronize(const CompiledModel& model, const DistributedModel& distributed,
                                 const config::Consistency& consistency,
                                 const ir::OpRegistry& registry) {
  return Synchronizer(model, distributed, consistency, registry).run();
}

Result<ReplicaModel> bound_staleness(const CompiledModel& model,
                                     const DistributedModel& distributed,
                                     const ir::OpRegistry& registry) {
  ReplicaModel out;
  ir::Builder b(&out.graph, &registry);
  out.graph.mutable_functions() = distributed.graph.functions();
  const Output barrier = b.add("StepBarrier", {}, {{"shared_name", std::string("bounded/barrier")}},
                               "bounded/barrier");
  const Output replica = ops::placeholder(b, kReplica, DType::kInt64, {});
  const NodeId waits = b.add_node("StepBarrierAwait", {barrier, replica}, {}, {}, "bounded/await");
  SR_RETURN_IF_ERROR(b.status());
  out.graph.mutable_node(barrier.node).device = ps_device(0);
  append_model(distributed.graph, waits, &out.graph);
  std::vector<NodeId> done;
  for (const std::string& target : model.targets) {
    SR_ASSIGN_OR_RETURN(const Node node, node_of(out.graph, target));
    // What counts steps reads nothing, and is not ahead of its step all the same.
    out.graph.mutable_node(node.id).control_inputs.push_back(waits);
    done.push_back(node.id);
  }
  const NodeId ended =
      b.add_node("StepBarrierAdvance", {barrier, replica}, {}, done, "bounded/advance");
  const Output first = ops::placeholder(b, kFirstReplica, DType::kInt64, {});
  const Output bound = ops::placeholder(b, kBound, DType::kInt64, {});
  const Output names = ops::placeholder(b, kReplicaNames, DType::kString, {-1});
  const NodeId begun =
      b.add_node("StepBarrierRestart", {barrier, first, bound, names}, {}, {}, "bounded/restart");
  const Output steps = ops::placeholder(b, kSteps, DType::kInt64, {});
  const NodeId left =
      b.add_node("StepBarrierLeave", {barrier, replica, steps}, {}, {}, "bounded/leave");
  SR_RETURN_IF_ERROR(b.status());
  out.targets = {out.graph.node(ended).name};
  out.begin = {out.graph.node(begun).name};
  out.leave = {out.graph.node(left).name};
  return out;
}

}  // namespace sidereal::train
