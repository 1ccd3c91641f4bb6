#include "sidereal/train/geo.h"

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "sidereal/ir/builder.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/needed.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

namespace sidereal::train {

using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

/// Of `of_lane` of a variable: the lane that runs the node.
constexpr int kOwnLane = -1;

/// What a replica has a copy of. Value type.
struct Copied {
  std::string name;
  DType dtype = DType::kFloat32;
  ir::Shape shape;
  std::string device;    ///< Of the parameter server.
  bool is_slot = false;  ///< Its differences are not sent.
};

/// The nodes of a graph, or of a function, that work with the copies of one lane.
class Copies {
 public:
  Copies(ir::Builder* b, int lane) : b_(*b), lane_(lane) {}

  /// The copy, or what it began from.
  Output own(const Copied& one) {
    return variable("geo/copy/" + one.name, one.dtype, one.shape, "", lane_);
  }
  Output base(const Copied& one) {
    return variable("geo/base/" + one.name, one.dtype, one.shape, "", lane_);
  }
  Output at_ps(const Copied& one) {
    return variable(one.name, one.dtype, one.shape, one.device, std::nullopt);
  }
  /// Steps since the latest exchange, and the loop that the copies are of.
  Output count() { return variable("geo/count", DType::kInt64, {}, "", lane_); }
  Output loop() { return variable("geo/of_loop", DType::kInt64, {}, "", lane_); }

  Output read(Output handle) { return handle.valid() ? ops::variable_read(b_, handle) : handle; }
  Output assign(Output handle, Output value) {
    const Output made = b_.add("VariableAssign", {handle, value});
    if (made.valid()) targets.push_back(made.node);
    return made;
  }
  Output number(int64_t value) {
    return ops::scalar(b_, DType::kInt64, static_cast<double>(value));
  }

  /// Copies all from the parameter servers; steps since then: none.
  Output pull(const std::vector<Copied>& all, Output loop_number) {
    for (const Copied& one : all) {
      const Output value = read(at_ps(one));
      assign(own(one), value);
      if (!one.is_slot) assign(base(one), value);
    }
    assign(loop(), loop_number);
    return assign(count(), number(0));
  }
  /// Sends differences, and goes on from what the parameter servers then have.
  Output exchange(const std::vector<Copied>& all) {
    for (const Copied& one : all) {
      if (one.is_slot) continue;
      const Output difference = ops::sub(b_, read(own(one)), read(base(one)));
      const Output sum = b_.add("VariableAssignAdd", {at_ps(one), difference});
      assign(own(one), sum);
      assign(base(one), sum);
    }
    return assign(count(), number(0));
  }
  /// Gives the parameter servers the slots.
  Output push_slots(const std::vector<Copied>& all) {
    for (const Copied& one : all) {
      if (one.is_slot) assign(at_ps(one), read(own(one)));
    }
    return number(0);
  }

  std::vector<NodeId> targets;  ///< What was assigned.

 private:
  Output variable(const std::string& name, DType dtype, const ir::Shape& shape,
                  const std::string& device, std::optional<int> lane) {
    ir::AttrMap attrs = {{"dtype", dtype}, {"shape", shape}, {"shared_name", name}};
    if (lane.has_value()) attrs["of_lane"] = int64_t{*lane};
    const std::string node = name.starts_with("geo/") ? name.substr(4) : name;
    const Output made = b_.add("Variable", {}, std::move(attrs), node);
    if (made.valid()) b_.graph().mutable_node(made.node).device = device;
    return made;
  }

  ir::Builder& b_;
  const int lane_;
};

class CopiesMaker {
 public:
  CopiesMaker(const CompiledModel& model, const DistributedModel& distributed, int lanes,
              const ir::OpRegistry& registry)
      : model_(model),
        distributed_(distributed),
        lanes_(lanes),
        registry_(registry),
        b_(&out_.replica.graph, &registry) {}

  Result<CopiesModel> run() {
    SR_RETURN_IF_ERROR(find_copied());
    graph().mutable_functions() = distributed_.graph.functions();
    loop_ = ops::placeholder(b_, kLoop, DType::kInt64, {});
    const Output window = ops::placeholder(b_, kWindow, DType::kInt64, {});
    // The names of nodes of the model stay free.
    const auto scope = b_.scope("geo");
    const Output done = add_begin();
    SR_RETURN_IF_ERROR(b_.status());
    SR_RETURN_IF_ERROR(append_model(done.node));
    add_end(done, window);
    add_leave();
    SR_RETURN_IF_ERROR(b_.status());
    return std::move(out_);
  }

 private:
  using Body = std::function<Output(ir::Builder&, Output)>;

  Status find_copied() {
    for (const ModelVariable& variable : model_.variables) {
      if (variable.update.empty() || variable.options.is_table) continue;
      SR_RETURN_IF_ERROR(add_copied(variable.name, false));
      for (const SlotVariable& slot : variable.slots) {
        SR_RETURN_IF_ERROR(add_copied(slot.name, true));
      }
    }
    if (copied_.empty()) {
      return base::invalid_argument(
          "all variables of this model that are trained are tables, of which replicas have no "
          "copies with consistency 'geo(k)'; write 'async', which is what it does for tables");
    }
    if (distributed_.graph.find(kGlobalStep) == nullptr) return {};
    return add_copied(kGlobalStep, false);
  }

  Status add_copied(const std::string& name, bool is_slot) {
    const Node* const node = distributed_.graph.find(name);
    if (node == nullptr || node->op != "Variable") {
      return base::internal("the distributed model has no variable '{}'", name);
    }
    copied_.push_back({.name = name,
                       .dtype = std::get<DType>(node->attrs.at("dtype")),
                       .shape = std::get<ir::Shape>(node->attrs.at("shape")),
                       .device = node->device,
                       .is_slot = is_slot});
    return {};
  }

  /// `then` where `predicate` holds, else `otherwise`, both of `arg`: an int64 scalar of each.
  Output branch(Output predicate, const Body& then, const Body& otherwise, Output arg,
                const std::string& name) {
    const ir::FunctionPtr yes = function(then);
    const ir::FunctionPtr no = function(otherwise);
    if (yes == nullptr || no == nullptr) return {};
    const NodeId made = ops::branch(b_, predicate, yes, no, {arg}, name);
    return b_.status().ok() ? Output{made, 0} : Output{};
  }

  /// A function of an int64 scalar; nullptr after an error, which the builder has then.
  ir::FunctionPtr function(const Body& body) {
    if (!b_.status().ok()) return nullptr;
    ir::Graph graph;
    const Result<Output> arg = ir::add_arg(&graph, registry_, {DType::kInt64, ir::Shape()});
    if (!arg.ok()) return failed(arg.status());
    ir::Builder b(&graph, &registry_);
    targets_.clear();
    const Output out = body(b, *arg);
    if (!b.status().ok()) return failed(b.status());
    Result<ir::FunctionPtr> made = ir::Function::make(std::move(graph), {out}, targets_);
    return made.ok() ? *std::move(made) : failed(made.status());
  }
  ir::FunctionPtr failed(const Status& status) {
    b_.fail(status);
    return nullptr;
  }

  /// A body of `work` with the copies of a lane.
  template <class Work>
  Body with_copies(int lane, Work work) {
    return [this, lane, work](ir::Builder& b, Output arg) {
      Copies copies(&b, lane);
      const Output out = work(copies, arg);
      targets_ = std::move(copies.targets);
      return out;
    };
  }
  /// A body that does nothing, and gives `value`.
  Body only(int64_t value) {
    return [value](ir::Builder& b, Output) {
      return ops::scalar(b, DType::kInt64, static_cast<double>(value));
    };
  }

  /// Steps that a lane has made in this loop since its latest exchange; -1: it is in no step of
  /// this loop yet.
  Output steps_of(int lane, const std::string& name) {
    Copies copies(&b_, lane);
    const Output is_there = b_.add("VariableIsInitialized", {copies.loop()});
    const Output loop = branch(
        is_there, with_copies(lane, [](Copies& own, Output) { return own.read(own.loop()); }),
        only(-1), loop_, name + "_loop");
    const Output is_same = b_.add("Equal", {loop, loop_});
    return branch(is_same,
                  with_copies(lane, [](Copies& own, Output) { return own.read(own.count()); }),
                  only(-1), loop_, name + "_steps");
  }

  /// Before a step: steps since the latest exchange.
  Output add_begin() {
    const Output known = steps_of(kOwnLane, "begin");
    const Output is_new = b_.add("Less", {known, ops::scalar(b_, DType::kInt64, 0)});
    const auto count = [](Copies& own, Output) { return own.read(own.count()); };
    const auto pull = [this](Copies& own, Output loop) { return own.pull(copied_, loop); };
    return branch(is_new, with_copies(kOwnLane, pull), with_copies(kOwnLane, count), loop_,
                  "begin");
  }

  /// Appends what a step needs of the model, with copies in the place of what they are of; what
  /// works with these runs behind `begun`.
  Status append_model(NodeId begun) {
    const ir::Graph& from = distributed_.graph;
    std::map<std::string, Output> own;
    Copies copies(&b_, kOwnLane);
    for (const Copied& one : copied_) own[one.name] = copies.own(one);
    SR_RETURN_IF_ERROR(b_.status());
    SR_ASSIGN_OR_RETURN(const std::vector<bool> needed, needed_nodes());
    std::vector<NodeId> moved(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      Node made = from.nodes()[i];
      if (const auto copy = own.find(made.name); copy != own.end()) {
        moved[i] = copy->second.node;
        continue;
      }
      if (!needed[i]) continue;
      bool is_behind = false;
      for (Output& input : made.inputs) {
        is_behind = is_behind || own.contains(from.node(input.node).name);
        input.node = moved[static_cast<size_t>(input.node.value)];
      }
      for (NodeId& control : made.control_inputs) {
        control = moved[static_cast<size_t>(control.value)];
      }
      if (is_behind) made.control_inputs.push_back(begun);
      moved[i] = graph().append(std::move(made));
    }
    return {};
  }

  /// By node of the distributed model: whether a step needs it, or may be fed there.
  Result<std::vector<bool>> needed_nodes() const {
    const ir::Graph& from = distributed_.graph;
    std::vector<Output> outputs;
    for (const std::string& name : {model_.loss, model_.prediction}) {
      SR_ASSIGN_OR_RETURN(outputs.emplace_back(), from.find_output(name));
    }
    std::vector<NodeId> targets;
    for (const auto* const names : {&model_.targets, &model_.updates}) {
      for (const std::string& name : *names) {
        const Node* const node = from.find(name);
        if (node == nullptr) return base::internal("the distributed model has no node '{}'", name);
        targets.push_back(node->id);
      }
    }
    for (const Node& node : from.nodes()) {
      if (node.op == "Placeholder") targets.push_back(node.id);
    }
    return ir::needed_for(from, outputs, targets);
  }

  /// Behind the updates of the copies: counts the step, or, when it ends a window, exchanges.
  void add_end(Output done, Output window) {
    const Output steps = ops::add(b_, done, ops::scalar(b_, DType::kInt64, 1), "steps");
    const Output is_due = b_.add("GreaterEqual", {steps, window}, {}, "is_due");
    const auto exchange = [this](Copies& own, Output) { return own.exchange(copied_); };
    const auto count = [](Copies& own, Output number) { return own.assign(own.count(), number); };
    const Output end =
        branch(is_due, with_copies(kOwnLane, exchange), with_copies(kOwnLane, count), steps, "end");
    if (!end.valid()) return;
    ReplicaModel& replica = out_.replica;
    replica.targets = model_.targets;
    replica.targets.push_back(graph().node(end.node).name);
    for (const std::string& name : model_.targets) {
      const Node* const update = graph().find(name);
      if (update->op == "EmbeddingUpdate") continue;
      graph().mutable_node(end.node).control_inputs.push_back(update->id);
    }
  }

  void add_leave() {
    for (int lane = 0; lane < lanes_; ++lane) {
      const std::string name = fmt::format("leave_{}", lane);
      const Output steps = steps_of(lane, name);
      const Output is_due = b_.add("Greater", {steps, ops::scalar(b_, DType::kInt64, 0)});
      const auto exchange = [this](Copies& own, Output) { return own.exchange(copied_); };
      const Output left = branch(is_due, with_copies(lane, exchange), only(0), loop_, name);
      if (left.valid()) out_.replica.leave.push_back(graph().output_name(left));
    }
    const Output steps = steps_of(0, "keep");
    const Output is_there = b_.add("GreaterEqual", {steps, ops::scalar(b_, DType::kInt64, 0)});
    const auto push = [this](Copies& own, Output) { return own.push_slots(copied_); };
    const Output kept = branch(is_there, with_copies(0, push), only(0), loop_, "keep");
    if (kept.valid()) out_.keep = graph().output_name(kept);
  }

  ir::Graph& graph() { return out_.replica.graph; }

  const CompiledModel& model_;
  const DistributedModel& distributed_;
  const int lanes_;
  const ir::OpRegistry& registry_;
  CopiesModel out_;
  ir::Builder b_;
  Output loop_;
  std::vector<Copied> copied_;
  std::vector<NodeId> targets_;  // Of the function that is being made.
};

}  // namespace

Result<CopiesModel> train_on_copies(const CompiledModel& model, const DistributedModel& distributed,
                                    int lanes, const ir::OpRegistry& registry) {
  return CopiesMaker(model, distributed, lanes, registry).run();
}

}  // namespace sidereal::train
