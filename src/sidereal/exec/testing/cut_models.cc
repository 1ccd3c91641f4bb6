#include <utility>

#include "sidereal/exec/testing/cuts.h"
#include "sidereal/ir/function.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

namespace sidereal::exec {

using ir::Builder;
using ir::FunctionPtr;
using ir::Graph;
using ir::Output;
using tensor::DType;
using tensor::Shape;

/// Some nodes wait for earlier ones, in bodies too.
void add_orders(Graph* graph, Dice* dice) {
  for (size_t i = 1; i < graph->size(); ++i) {
    const ir::NodeId before(static_cast<int32_t>(dice->number(0, static_cast<int64_t>(i) - 1)));
    ir::Node& node = graph->mutable_node(ir::NodeId(static_cast<int32_t>(i)));
    if (node.op == ir::kArgOp || !dice->chance(8)) continue;
    node.control_inputs.push_back(before);
  }
  for (ir::NamedFunction& held : graph->mutable_functions()) {
    Graph body = held.function->body();
    add_orders(&body, dice);
    const FunctionPtr whole = held.function;
    held.function = *ir::Function::make(std::move(body), whole->outputs(), whole->targets());
  }
}

/// A loop over as many rows as are fed, of which two deep loops may be one.
ControlModel rows_model(Dice* dice) {
  ControlModel made;
  Builder b(&made.graph, &test_registry());
  const ir::TensorSpec square{DType::kFloat64, kControlShape};
  const ir::TensorSpec rows{DType::kFloat64, {-1, 3, 3}};
  const ops::ScanOptions options{.reverse = dice->chance(50)};
  const auto body_of = [&](const std::vector<ir::TensorSpec>& inputs, auto make) {
    Graph body;
    std::vector<Output> args;
    for (const auto& spec : inputs) args.push_back(*ir::add_arg(&body, test_registry(), spec));
    Builder inner(&body, &test_registry());
    const std::vector<Output> outputs = make(inner, args);
    SR_CHECK(inner.status().ok(), "{}", base::message_of(inner.status()));
    return *ir::Function::make(std::move(body), outputs);
  };
  const PiecePtr piece = random_piece(*dice, 1, false);
  const FunctionPtr step = body_of({square, square, square}, [&](Builder& f, const auto& in) {
    const Piece::Two out = piece->emit(f, {in[0], in[1], in[2]}, false);
    return std::vector<Output>{out[0], out[1]};
  });
  const FunctionPtr outer = body_of({square, square, rows}, [&](Builder& f, const auto& in) {
    const ir::NodeId loop = ops::scan(f, step, {in[0]}, {in[2]}, {in[1]}, options, "inner");
    return std::vector<Output>{{loop, 0}, {loop, 1}};
  });
  const Output x = ops::placeholder(b, "x0", DType::kFloat64, kControlShape);
  const Output z = ops::placeholder(b, "x1", DType::kFloat64, kControlShape);
  const Output fed = ops::placeholder(b, "rows", DType::kFloat64, rows.shape);
  const ir::NodeId loop = dice->chance(50)
                              ? ops::scan(b, step, {x}, {fed}, {z}, options, "loop")
                              : ops::scan(b, outer, {x}, {fed}, {fed}, {.reverse = true}, "loop");
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  made.fetches = {{loop, 0}, {loop, 1}};
  return made;
}

/// Two variables, and a loop whose body reads one and adds to the other, in some order.
/// Fetches: what the loop returns, and the other variable behind it.
ControlModel variables_model(Dice* dice) {
  ControlModel made;
  const ir::TensorSpec square{DType::kFloat64, kControlShape};
  const ir::TensorSpec handle{DType::kString, Shape()};
  const ir::TensorSpec count{DType::kFloat64, Shape()};
  const auto read = [](Builder& b, Output of, const std::vector<ir::NodeId>& after) {
    const ir::AttrMap attrs = {{"dtype", DType::kFloat64}, {"shape", kControlShape}};
    return Output{b.add_node("VariableRead", {of}, attrs, after), 0};
  };
  const auto function = [&](bool is_body) {
    Graph body;
    std::vector<Output> in;
    for (const auto& spec : {count, square, handle, handle}) {
      in.push_back(*ir::add_arg(&body, test_registry(), spec));
    }
    Builder b(&body, &test_registry());
    std::vector<Output> out;
    if (is_body) {
      const Output next = ops::tanh(b, ops::mat_mul(b, in[1], read(b, in[2], {})));
      const ir::NodeId added = b.add_node("VariableAssignAdd", {in[3], next}, {}, {});
      const Output sum = ops::add(b, next, read(b, in[3], {added}));
      out = {ops::sub(b, in[0], ops::scalar(b, DType::kFloat64, 1)), sum};
    } else {
      out = {ops::cast(b, in[0], DType::kBool)};
    }
    for (size_t i = in.size(); i < body.size(); ++i) {
      ir::Node& node = body.mutable_node(ir::NodeId(static_cast<int32_t>(i)));
      const bool is_free = !node.op.starts_with("Variable") && dice->chance(40);
      if (is_free) node.device = dice->pick(four_devices());
    }
    SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
    return *ir::Function::make(std::move(body), out);
  };
  Builder b(&made.graph, &test_registry());
  std::vector<Output> handles;
  std::vector<ir::NodeId> assigned;
  for (const char* name : {"v", "w"}) {
    handles.push_back(b.add(
        "Variable", {},
        {{"shared_name", std::string(name)}, {"dtype", DType::kFloat64}, {"shape", kControlShape}},
        name));
    made.graph.mutable_node(handles.back().node).device = dice->pick(four_devices());
    const Output x =
        ops::placeholder(b, fmt::format("x{}", assigned.size()), DType::kFloat64, kControlShape);
    assigned.push_back(b.add_node("VariableAssign", {handles.back(), x}, {}, {}));
  }
  const Output n = ops::scalar(b, DType::kFloat64, 4);
  const Output x = ops::placeholder(b, "x2", DType::kFloat64, kControlShape);
  const ir::NodeId loop = ops::while_loop(b, function(false), function(true), {n, x}, handles, -1);
  made.graph.mutable_node(loop).control_inputs = assigned;
  made.graph.mutable_node(loop).device = dice->pick(four_devices());
  made.fetches = {{loop, 1}, read(b, handles[1], {loop})};
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  return made;
}

namespace {

constexpr int64_t kSide = 3;

/// Makes a session_model(). Thread: core-local.
class SessionModel {
 public:
  SessionModel(Dice* dice, bool orders_bodies)
      : dice_(*dice), orders_bodies_(orders_bodies), b_(&made_.graph, &test_registry()) {}

  ControlModel make() {
    for (size_t i = 0; i < 3; ++i) {
      values_.push_back(
          ops::placeholder(b_, fmt::format("x{}", i), DType::kFloat64, kControlShape));
    }
    const Output first = ops::placeholder(b_, "first", DType::kBool, Shape());
    for (int64_t i = dice_.number(2, 4); i > 0; --i) add_variable(first);
    queue_ = b_.add("Queue", {}, queue_attrs(), "queue");
    place(queue_.node);
    for (int64_t i = dice_.number(4, 14); i > 0; --i) act();
    for (int i = 0; i < 3; ++i) made_.fetches.push_back(dice_.pick(values_));
    for (Var& var : variables_) made_.fetches.push_back(read(b_, var.handle, {var.written}));
    SR_CHECK(b_.status().ok(), "{}", base::message_of(b_.status()));
    return std::move(made_);
  }

 private:
  struct Var {
    Output handle;
    ir::NodeId written;
    std::vector<ir::NodeId> reads;  ///< Since it was written.
  };

  static Output read(Builder& b, Output handle, const std::vector<ir::NodeId>& after) {
    const ir::AttrMap attrs = {{"dtype", DType::kFloat64}, {"shape", kControlShape}};
    return {b.add_node("VariableRead", {handle}, attrs, after), 0};
  }

  static ir::AttrMap queue_attrs() {
    return {{"shared_name", std::string("queue")},
            {"dtypes", std::vector<std::string>{"float64"}},
            {"shapes", std::vector<int64_t>{2, kSide, kSide}}};
  }

  void place(ir::NodeId id) { made_.graph.mutable_node(id).device = dice_.pick(four_devices()); }

  /// A function whose nodes, but for those on handles, may be anywhere.
  template <class Make>
  FunctionPtr function(const std::vector<ir::TensorSpec>& inputs, Make make) {
    Graph body;
    std::vector<Output> in;
    for (const auto& spec : inputs) in.push_back(*ir::add_arg(&body, test_registry(), spec));
    Builder f(&body, &test_registry());
    std::vector<Output> out = make(f, in);
    SR_CHECK(f.status().ok(), "{}", base::message_of(f.status()));
    const bool in_one_place = dice_.chance(30);
    for (size_t i = in.size(); i < body.size(); ++i) {
      ir::Node& node = body.mutable_node(ir::NodeId(static_cast<int32_t>(i)));
      const bool is_free = !node.op.starts_with("Variable") && !in_one_place;
      if (is_free && dice_.chance(40)) node.device = dice_.pick(four_devices());
    }
    std::vector<ir::NodeId> changes;
    for (const ir::Node& node : body.nodes()) {
      if (node.op.starts_with("VariableAssign")) changes.push_back(node.id);
    }
    return *ir::Function::make(std::move(body), std::move(out), std::move(changes));
  }

  void add_variable(Output first) {
    const auto number = variables_.size();
    Var var;
    var.handle = b_.add("Variable", {},
                        {{"shared_name", fmt::format("v{}", number)},
                         {"dtype", DType::kFloat64},
                         {"shape", kControlShape}},
                        fmt::format("v{}", number));
    place(var.handle.node);
    const FunctionPtr yes = function({kHandle, kSquare}, [](Builder& f, const auto& in) {
      return std::vector<Output>{{f.add_node("VariableAssign", {in[0], in[1]}, {}, {}), 0}};
    });
    const FunctionPtr no = function(
        {kHandle, kSquare}, [](Builder&, const auto& in) { return std::vector<Output>{in[1]}; });
    var.written = ops::branch(b_, first, yes, no, {var.handle, dice_.pick(values_)},
                              fmt::format("i{}", number));
    if (dice_.chance(50)) place(var.written);
    variables_.push_back(std::move(var));
  }

  Var& any() {
    return variables_[static_cast<size_t>(
        dice_.number(0, static_cast<int64_t>(variables_.size()) - 1))];
  }

  std::vector<ir::NodeId> before_write(const Var& var) {
    std::vector<ir::NodeId> out = var.reads;
    out.push_back(var.written);
    if (barrier_.valid() && dice_.chance(30)) out.push_back(barrier_);
    return out;
  }

  void wrote(Var* var, ir::NodeId id) {
    var->written = id;
    var->reads.clear();
    made_.targets.push_back(id);
  }

  void act() {
    switch (dice_.number(0, 7)) {
      case 0:
      case 1: {
        Var& var = any();
        values_.push_back(read(b_, var.handle, {var.written}));
        var.reads.push_back(values_.back().node);
        return;
      }
      case 2:
        values_.push_back(
            ops::tanh(b_, ops::mat_mul(b_, dice_.pick(values_), dice_.pick(values_))));
        return place(values_.back().node);
      case 3: {
        Var& var = any();
        const ir::NodeId id = b_.add_node("VariableAssignAdd", {var.handle, dice_.pick(values_)},
                                          {}, before_write(var));
        return wrote(&var, id);
      }
      case 4:
        return add_loop();
      case 5:
        return add_branch();
      case 6:
        return pass_through_queue();
      default:
        barrier_ = ops::no_op(b_, {dice_.pick(variables_).written, dice_.pick(values_).node});
        if (dice_.chance(50)) place(barrier_);
        return;
    }
  }

  void add_loop() {
    Var& from = any();
    Var& to = any();
    const bool same = &from == &to;
    const std::vector<ir::TensorSpec> inputs = {kCount, kSquare, kHandle, kHandle};
    const FunctionPtr cond = function(inputs, [](Builder& f, const auto& in) {
      return std::vector<Output>{ops::cast(f, in[0], DType::kBool)};
    });
    const FunctionPtr body = function(inputs, [&](Builder& f, const auto& in) {
      const Output value = read(f, in[2], {});
      const Output next = ops::tanh(f, ops::mat_mul(f, in[1], value));
      const ir::NodeId added =
          f.add_node("VariableAssignAdd", {in[3], next}, {}, {same ? value.node : next.node});
      const Output sum = ops::add(f, next, read(f, in[3], in_order({added})));
      return std::vector<Output>{ops::sub(f, in[0], ops::scalar(f, DType::kFloat64, 1)), sum};
    });
    const Output n = ops::scalar(b_, DType::kFloat64, static_cast<double>(dice_.number(0, 3)));
    const ir::NodeId loop =
        ops::while_loop(b_, cond, body, {n, dice_.pick(values_)}, {from.handle, to.handle}, -1);
    std::vector<ir::NodeId> after = before_write(to);
    after.push_back(from.written);
    finish_control(loop, after, &from, &to);
    values_.push_back({loop, 1});
  }

  void add_branch() {
    Var& from = any();
    Var& to = any();
    const std::vector<ir::TensorSpec> inputs = {kSquare, kHandle, kHandle};
    const FunctionPtr yes = function(inputs, [](Builder& f, const auto& in) {
      const Output value = read(f, in[1], {});
      return std::vector<Output>{
          {f.add_node("VariableAssignSub", {in[2], ops::mul(f, value, in[0])}, {}, {}), 0}};
    });
    const FunctionPtr no = function(inputs, [](Builder& f, const auto& in) {
      return std::vector<Output>{ops::square(f, read(f, in[2], {}))};
    });
    const Output some = ops::reduce_sum(b_, dice_.pick(values_));
    const Output flag = b_.add("Greater", {some, ops::scalar(b_, DType::kFloat64, 0)});
    const ir::NodeId node =
        ops::branch(b_, flag, yes, no, {dice_.pick(values_), from.handle, to.handle}, "branch");
    std::vector<ir::NodeId> after = before_write(to);
    after.push_back(from.written);
    finish_control(node, after, &from, &to);
    values_.push_back({node, 0});
  }

  /// What a node of a body waits for, if bodies have such edges.
  std::vector<ir::NodeId> in_order(std::vector<ir::NodeId> after) const {
    return orders_bodies_ ? std::move(after) : std::vector<ir::NodeId>();
  }

  void finish_control(ir::NodeId id, const std::vector<ir::NodeId>& after, Var* from, Var* to) {
    made_.graph.mutable_node(id).control_inputs = after;
    if (dice_.chance(50)) place(id);
    if (from != to) from->reads.push_back(id);
    wrote(to, id);
  }

  /// What is put in comes out in an order that edges say; that what is taken comes behind what is
  /// put in needs no edges.
  void pass_through_queue() {
    const int64_t count = dice_.number(1, 3);
    std::vector<ir::NodeId> after = last_through_queue_;
    for (int64_t i = 0; i < count; ++i) {
      after = {b_.add_node("QueueEnqueue", {queue_, dice_.pick(values_)}, {}, after)};
      made_.targets.push_back(after[0]);
    }
    after = last_through_queue_;
    for (int64_t i = 0; i < count; ++i) {
      ir::AttrMap attrs = queue_attrs();
      attrs.erase("shared_name");
      after = {b_.add_node("QueueDequeue", {queue_}, attrs, after)};
      values_.push_back({after[0], 0});
      made_.targets.push_back(after[0]);
    }
    last_through_queue_ = std::move(after);
  }

  inline static const ir::TensorSpec kSquare{DType::kFloat64, kControlShape};
  inline static const ir::TensorSpec kHandle{DType::kString, Shape()};
  inline static const ir::TensorSpec kCount{DType::kFloat64, Shape()};

  Dice& dice_;
  bool orders_bodies_;
  ControlModel made_;
  Builder b_;
  std::vector<Output> values_;
  std::vector<Var> variables_;
  Output queue_;
  std::vector<ir::NodeId> last_through_queue_;
  ir::NodeId barrier_;
};

}  // namespace

ControlModel session_model(Dice* dice, bool orders_bodies) {
  return SessionModel(dice, orders_bodies).make();
}

}  // namespace sidereal::exec
