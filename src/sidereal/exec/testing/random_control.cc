#include "sidereal/exec/testing/random_control.h"

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::Output;
using ir::Shape;
using ir::Tensor;
using Two = Piece::Two;
using Three = Piece::Three;

constexpr int64_t kSide = 3;

/// The function (in, in, in, more...) -> outputs that `make` builds.
template <class Make>
FunctionPtr function_of(const std::vector<ir::TensorSpec>& inputs, Make make) {
  Graph body;
  std::vector<Output> args;
  for (const ir::TensorSpec& spec : inputs) {
    args.push_back(*ir::add_arg(&body, test_registry(), spec));
  }
  Builder b(&body, &test_registry());
  std::vector<Output> outputs = make(b, args);
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  return *ir::Function::make(std::move(body), std::move(outputs));
}

const ir::TensorSpec kSpec{DType::kFloat64, kControlShape};

FunctionPtr function_of(const Piece& piece) {
  return function_of({kSpec, kSpec, kSpec}, [&](Builder& b, const std::vector<Output>& in) {
    const Two out = piece.emit(b, {in[0], in[1], in[2]}, false);
    return std::vector<Output>{out[0], out[1]};
  });
}

Output scaled(Builder& b, Output x, double by) {
  return ops::mul(b, x, ops::scalar(b, DType::kFloat64, by));
}

/// The sum of all elements, in ops that can be differentiated often.
Output sum(Builder& b, Output x) {
  Tensor ones = Tensor::empty(DType::kFloat64, {1, kSide});
  for (double& v : ones.data<double>()) v = 1;
  const Output left = ops::constant(b, ones);
  return ops::mat_mul(b, ops::mat_mul(b, left, x), left, false, true);
}

class Leaf final : public Piece {
 public:
  Leaf(Dice& dice, bool smooth) : which_(dice.number(0, smooth ? 3 : 6)) {}
  Two emit(Builder& b, const Three& in, bool /*written_out*/) const override {
    const auto [x, y, z] = in;
    switch (which_) {
      case 0:
        return {scaled(b, ops::mat_mul(b, x, y), 0.4), ops::sub(b, z, x)};
      case 1:
        return {scaled(b, ops::mul(b, x, z), 0.5), ops::mat_mul(b, y, z, true)};
      case 2:
        return {ops::add(b, x, scaled(b, y, 0.3)), scaled(b, ops::square(b, z), 0.3)};
      case 3:
        return {y, scaled(b, x, -0.7)};  // Passes an input on.
      case 4:
        return {ops::tanh(b, ops::mat_mul(b, x, y)), ops::sigmoid(b, z)};
      case 5:
        return {ops::softplus(b, y), ops::stop_gradient(b, x)};
      default:
        return {ops::scalar(b, DType::kFloat64, 1).valid() ? ops::tanh(b, z) : Output{},
                ops::mul(b, x, ops::tanh(b, y))};
    }
  }

 private:
  int64_t which_;
};

class Chain final : public Piece {
 public:
  explicit Chain(std::vector<PiecePtr> parts) : parts_(std::move(parts)) {}
  Two emit(Builder& b, const Three& in, bool written_out) const override {
    Three now = in;
    for (const PiecePtr& part : parts_) {
      const Two out = part->emit(b, now, written_out);
      now = {out[1], out[0], now[0]};
    }
    return {now[0], now[1]};
  }

 private:
  std::vector<PiecePtr> parts_;
};

/// A function, called twice so that it is not inlined.
class Twice final : public Piece {
 public:
  explicit Twice(PiecePtr inner) : inner_(std::move(inner)) {}
  Two emit(Builder& b, const Three& in, bool written_out) const override {
    const auto once = [&, f = function_of(*inner_)](const Three& x) -> Two {
      if (written_out) return inner_->emit(b, x, true);
      const ir::NodeId node = ops::function_call(b, f, {x[0], x[1], x[2]}, "twice");
      return {Output{node, 0}, Output{node, 1}};
    };
    const Two first = once(in);
    return once({first[1], in[1], first[0]});
  }

 private:
  PiecePtr inner_;
};

/// A branch on the sign of a number that is fed.
class Choice final : public Piece {
 public:
  Choice(bool yes, PiecePtr a, PiecePtr b) : yes_(yes), then_(std::move(a)), else_(std::move(b)) {}
  Two emit(Builder& b, const Three& in, bool written_out) const override {
    if (written_out) return (yes_ ? then_ : else_)->emit(b, in, true);
    // Depends on an input, so that nobody can know it before.
    const Output nothing = ops::reduce_sum(b, scaled(b, in[0], 0));
    const Output number = ops::add(b, nothing, ops::scalar(b, DType::kFloat64, yes_ ? 1 : 0));
    const ir::NodeId node =
        ops::branch(b, ops::cast(b, ops::stop_gradient(b, number), DType::kBool),
                    function_of(*then_), function_of(*else_), {in[0], in[1], in[2]});
    return {Output{node, 0}, Output{node, 1}};
  }

 private:
  bool yes_;
  PiecePtr then_;
  PiecePtr else_;
};

/// Over the rows x, y, z stacked; the state is x and z is captured.
class Rows final : public Piece {
 public:
  Rows(bool reverse, PiecePtr inner) : reverse_(reverse), inner_(std::move(inner)) {}
  Two emit(Builder& b, const Three& in, bool written_out) const override {
    if (written_out) {
      Output state = in[0];
      std::vector<Output> ys;
      for (size_t t = 0; t < 3; ++t) {
        const Two out = inner_->emit(b, {state, in[reverse_ ? 2 - t : t], in[2]}, true);
        state = out[0];
        ys.push_back(out[1]);
      }
      return {state, ops::add_n(b, ys)};
    }
    std::vector<Output> rows;
    for (const Output& x : in) rows.push_back(ops::reshape(b, x, {1, kSide, kSide}));
    const ir::NodeId node = ops::scan(b, function_of(*inner_), {in[0]}, {ops::concat(b, rows, 0)},
                                      {in[2]}, {.reverse = reverse_}, "rows");
    std::vector<Output> ys;
    for (int64_t t = 0; t < 3; ++t) {
      ys.push_back(ops::reshape(b, ops::slice_axis(b, Output{node, 1}, 0, t, 1), {kSide, kSide}));
    }
    return {Output{node, 0}, ops::add_n(b, ys)};
  }

 private:
  bool reverse_;
  PiecePtr inner_;
};

/// So many times; the state is (x, y) and z is captured.
class Times final : public Piece {
 public:
  Times(int64_t times, PiecePtr inner) : times_(times), inner_(std::move(inner)) {}
  Two emit(Builder& b, const Three& in, bool written_out) const override {
    if (written_out) {
      Two state = {in[0], in[1]};
      for (int64_t t = 0; t < times_; ++t)
        state = inner_->emit(b, {state[0], state[1], in[2]}, true);
      return state;
    }
    const ir::TensorSpec count{DType::kFloat64, Shape()};
    const std::vector<ir::TensorSpec> inputs = {count, kSpec, kSpec, kSpec};
    const FunctionPtr cond = function_of(inputs, [](Builder& f, const std::vector<Output>& x) {
      return std::vector<Output>{ops::cast(f, x[0], DType::kBool)};
    });
    const FunctionPtr body = function_of(inputs, [&](Builder& f, const std::vector<Output>& x) {
      const Two out = inner_->emit(f, {x[1], x[2], x[3]}, false);
      const Output left = ops::sub(f, x[0], ops::scalar(f, DType::kFloat64, 1));
      return std::vector<Output>{left, out[0], out[1]};
    });
    const Output n = ops::scalar(b, DType::kFloat64, static_cast<double>(times_));
    const ir::NodeId node = ops::while_loop(b, cond, body, {n, in[0], in[1]}, {in[2]}, -1, "times");
    return {Output{node, 1}, Output{node, 2}};
  }

 private:
  int64_t times_;
  PiecePtr inner_;
};

}  // namespace

PiecePtr random_piece(Dice& dice, int depth, bool smooth) {
  if (depth == 0 || dice.chance(15)) return std::make_unique<Leaf>(dice, smooth);
  const auto inner = [&] { return random_piece(dice, depth - 1, smooth); };
  switch (dice.number(0, 4)) {
    case 0: {
      std::vector<PiecePtr> parts;
      for (int64_t i = dice.number(1, 3); i > 0; --i) parts.push_back(inner());
      return std::make_unique<Chain>(std::move(parts));
    }
    case 1:
      return std::make_unique<Twice>(inner());
    case 2: {
      PiecePtr yes = inner();
      return std::make_unique<Choice>(dice.chance(50), std::move(yes), inner());
    }
    case 3:
      return std::make_unique<Rows>(dice.chance(50), inner());
    default:
      return std::make_unique<Times>(dice.number(0, 3), inner());
  }
}

ControlModel make_control(const Piece& piece, bool written_out, bool second) {
  ControlModel made;
  Builder b(&made.graph, &test_registry());
  Three in;
  std::vector<Output> wrt;
  for (size_t i = 0; i < 3; ++i) {
    in[i] = ops::placeholder(b, fmt::format("x{}", i), DType::kFloat64, kControlShape);
    wrt.push_back(in[i]);
  }
  const Two out = piece.emit(b, in, written_out);
  made.fetches = {out[0], out[1]};
  Output loss = sum(b, ops::mul(b, out[0], ops::add(b, out[1], in[2])));
  for (int order = 0; order < (second ? 2 : 1); ++order) {
    const auto grads = autodiff::gradients(b, loss, wrt);
    SR_CHECK(grads.ok(), "{}", base::message_of(grads.status()));
    std::vector<Output> norms;
    for (size_t i = 0; i < grads->size(); ++i) {
      // Where nothing flows one form may say "none" and the other give zeros.
      const Output grad = (*grads)[i].valid() ? (*grads)[i] : ops::zeros_like(b, wrt[i]);
      made.fetches.push_back(grad);
      norms.push_back(sum(b, ops::square(b, grad)));
    }
    loss = ops::add_n(b, norms);
  }
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  return made;
}

void ask_for_devices(Graph* graph, const std::vector<std::string>& devices, Dice* dice) {
  for (size_t i = 0; i < graph->size(); ++i) {
    graph->mutable_node(ir::NodeId(static_cast<int32_t>(i))).device = dice->pick(devices);
  }
  for (ir::NamedFunction& held : graph->mutable_functions()) {
    Graph body = held.function->body();
    ask_for_devices(&body, devices, dice);
    const FunctionPtr whole = held.function;
    held.function = *ir::Function::make(std::move(body), whole->outputs(), whole->targets());
  }
}

reference::Values control_feeds(Dice& dice) {
  reference::Values feeds;
  for (int i = 0; i < 3; ++i) {
    feeds[fmt::format("x{}", i)] = dice.tensor(DType::kFloat64, kControlShape, -1, 1);
  }
  return feeds;
}

}  // namespace sidereal::exec
