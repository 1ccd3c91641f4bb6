#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/expand_embeddings.h"

// Every op, compiled and run as in a step, against the double-precision reference interpreter. The
// list of ops is the registry's: one without a kernel or without a case here fails.
namespace sidereal::exec {
namespace {

using ir::AttrMap;
using ir::Builder;
using ir::DType;
using ir::Output;
using ir::Shape;
using ir::Tensor;
using Ints = std::vector<int64_t>;

constexpr double kRate = 0.25;

/// One random graph around an op: its inputs and their values.
class Maker {
 public:
  Maker(uint32_t seed, DType dtype) : dice(seed), real(dtype), b(&graph, &test_registry()) {}

  /// An extent; now and then 0.
  int64_t extent() { return dice.chance(8) ? 0 : dice.number(1, 9); }
  Shape shape(int rank) {
    Shape out;
    for (int i = 0; i < rank; ++i) out.append(extent());
    return out;
  }
  Shape any_shape() { return shape(static_cast<int>(dice.number(0, 4))); }

  /// A value to be fed. The graph knows its extents, or all but the first.
  Output input(const Shape& shape, double low = -2, double high = 2) {
    return input_of(real, shape, low, high);
  }
  Output input_of(DType dtype, const Shape& shape, double low, double high) {
    const std::string name = fmt::format("in{}", feeds.size());
    feeds[name] = dice.tensor(dtype, shape, low, high);
    Shape known = shape;
    if (shape.rank() > 0 && dice.chance(50)) known.set_dim(0, -1);
    return ops::placeholder(b, name, dtype, known);
  }

  /// The handle of a float32 variable with values.
  Output variable(const Shape& shape) {
    const std::string name = fmt::format("v{}", variables.size());
    variables[name] = dice.tensor(DType::kFloat32, shape, -1, 1);
    return b.add("Variable", {},
                 {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", shape}});
  }
  Output read(Output handle) {
    const auto* shape = ir::find_attr<Shape>(graph.node(handle.node).attrs, "shape");
    return b.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", *shape}});
  }
  ir::NodeId update_dense(Output handle, Output grad) {
    return b.add_node("VariableUpdateDense", {handle, grad, scalar(1), scalar(kRate)}, kDescent);
  }
  ir::NodeId update_rows(Output handle, Output rows, Output grads) {
    return b.add_node("VariableUpdateRows", {handle, rows, grads, scalar(1), scalar(kRate)},
                      kDescent);
  }
  ir::NodeId update_table(Output ids, Output grads, const std::vector<Output>& parts, int64_t rows,
                          int64_t width, ir::NodeId after) {
    std::vector<Output> inputs = {ids, grads, scalar(1), scalar(kRate)};
    inputs.insert(inputs.end(), parts.begin(), parts.end());
    AttrMap attrs = kDescent;
    attrs["rows"] = rows;
    attrs["dim"] = width;
    attrs["parts"] = static_cast<int64_t>(parts.size());
    return b.add_node("EmbeddingUpdate", inputs, attrs, {after});
  }

  Dice dice;
  DType real;
  ir::Graph graph;
  Builder b;
  reference::Values feeds;
  reference::Values variables;
  std::vector<ir::NodeId> targets;

 private:
  Output scalar(double value) { return ops::scalar(b, DType::kFloat64, value); }

  inline static const AttrMap kDescent = {{"kind", std::string("sgd")}};
};

/// Builds a use of the op and returns what to compare; updates go to Maker::targets.
using Build = std::function<std::vector<Output>(Maker&)>;

struct Case {
  std::string op;
  Build build;
};

Case unary(const std::string& op, double low = -3, double high = 3) {
  return {op, [=](Maker& m) -> std::vector<Output> {
            return {m.b.add(op, {m.input(m.any_shape(), low, high)})};
          }};
}

/// Shapes that broadcast: the second drops front dimensions and has ones in place of others.
std::pair<Shape, Shape> broadcastable(Maker& m) {
  const Shape full = m.any_shape();
  Shape a = full;
  Shape b;
  const auto from = static_cast<int>(m.dice.number(0, full.rank()));
  for (int i = from; i < full.rank(); ++i) b.append(m.dice.chance(30) ? 1 : full.dim(i));
  for (int i = from; i < full.rank(); ++i) {
    if (m.dice.chance(15)) a.set_dim(i, 1);
  }
  if (m.dice.chance(50)) std::swap(a, b);
  return {a, b};
}

Case binary(const std::string& op, double low = -2) {
  return {op, [=](Maker& m) -> std::vector<Output> {
            const auto [a, b] = broadcastable(m);
            const Output x = m.input(a, low);
            return {m.b.add(op, {x, m.input(b, low)})};
          }};
}

/// Inputs of one shape.
Case alike(const std::string& op, int inputs, double low = -2, double high = 2) {
  return {op, [=](Maker& m) -> std::vector<Output> {
            const Shape shape = m.any_shape();
            std::vector<Output> in;
            for (int i = 0; i < inputs; ++i) in.push_back(m.input(shape, low, high));
            return {m.b.add(op, in)};
          }};
}

void add_arithmetic(std::vector<Case>* cases) {
  for (const char* op : {"Add", "Sub", "Mul", "Maximum", "Minimum"}) cases->push_back(binary(op));
  cases->push_back(binary("Div", 0.3));
  for (const char* op : {"Neg", "Exp", "Square", "Abs", "Sign", "Sigmoid", "Tanh", "Relu",
                         "Softplus", "OnesLike", "ZerosLike", "Identity", "StopGradient"}) {
    cases->push_back(unary(op));
  }
  for (const char* op : {"Log", "Log1p", "Sqrt"}) cases->push_back(unary(op, 0.01, 9));
  for (const char* op : {"Exp", "Sigmoid", "Tanh", "Softplus"}) {
    cases->push_back(unary(op, -60, 60));
  }
  for (const char* op : {"ReluGrad", "TanhGrad"}) cases->push_back(alike(op, 2, -1, 1));
  cases->push_back(alike("SigmoidGrad", 2, 0, 1));
  for (const int n : {1, 2, 5}) cases->push_back(alike("AddN", n));
  cases->push_back({"SumToShapeOf", [](Maker& m) -> std::vector<Output> {
                      const Shape full = m.any_shape();
                      Shape like;
                      const auto from = static_cast<int>(m.dice.number(0, full.rank()));
                      for (int i = from; i < full.rank(); ++i) {
                        like.append(m.dice.chance(40) ? 1 : full.dim(i));
                      }
                      const Output g = m.input(full);
                      return {m.b.add("SumToShapeOf", {g, m.input(like)})};
                    }});
  cases->push_back({"Cast", [](Maker& m) -> std::vector<Output> {
                      const std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat64,
                                                         DType::kInt32,   DType::kInt64,
                                                         DType::kUInt8,   DType::kBool};
                      const DType from = m.dice.pick(dtypes);
                      const double high = from == DType::kBool ? 1 : 100;
                      const Output x = m.input_of(from, m.any_shape(), 0, high);
                      return {m.b.add("Cast", {x}, {{"dtype", m.dice.pick(dtypes)}})};
                    }});
  cases->push_back({"Const", [](Maker& m) -> std::vector<Output> {
                      const Tensor value = m.dice.tensor(m.real, m.any_shape(), -2, 2);
                      return {m.b.add("Const", {}, {{"value", value}})};
                    }});
}

void add_products(std::vector<Case>* cases) {
  cases->push_back({"MatMul", [](Maker& m) -> std::vector<Output> {
                      const bool ta = m.dice.chance(50);
                      const bool tb = m.dice.chance(50);
                      const int64_t rows = m.extent() * m.extent();
                      const int64_t inner = m.extent() * m.dice.number(1, 9);
                      const int64_t columns = m.dice.chance(30) ? 1 : m.extent() * m.extent();
                      const Output a = m.input(ta ? Shape{inner, rows} : Shape{rows, inner});
                      const Output w = m.input(tb ? Shape{columns, inner} : Shape{inner, columns});
                      return {ops::mat_mul(m.b, a, w, ta, tb)};
                    }});
  cases->push_back({"BiasAdd", [](Maker& m) -> std::vector<Output> {
                      const Shape shape = m.shape(static_cast<int>(m.dice.number(1, 4)));
                      const Output x = m.input(shape);
                      return {ops::bias_add(m.b, x, m.input({shape.dim(-1)}))};
                    }});
  cases->push_back({"BiasAddGrad", [](Maker& m) -> std::vector<Output> {
                      const auto rank = static_cast<int>(m.dice.number(1, 4));
                      return {m.b.add("BiasAddGrad", {m.input(m.shape(rank))})};
                    }});
  cases->push_back({"SigmoidCrossEntropyWithLogits", [](Maker& m) -> std::vector<Output> {
                      const Shape shape = m.any_shape();
                      const Output x = m.input(shape, -20, 20);
                      return {ops::sigmoid_cross_entropy_with_logits(m.b, x, m.input(shape, 0, 1))};
                    }});
  cases->push_back({"SigmoidCrossEntropyGrad", [](Maker& m) -> std::vector<Output> {
                      const Shape shape = m.any_shape();
                      const Output dy = m.input(shape);
                      const Output x = m.input(shape, -20, 20);
                      const Output z = m.input(shape, 0, 1);
                      return {m.b.add("SigmoidCrossEntropyGrad", {dy, x, z})};
                    }});
  cases->push_back({"FmInteraction", [](Maker& m) -> std::vector<Output> {
                      return {ops::fm_interaction(m.b, m.input(m.shape(3)))};
                    }});
  cases->push_back({"FmInteractionGrad", [](Maker& m) -> std::vector<Output> {
                      const Shape shape = m.shape(3);
                      const Output dy = m.input({shape.dim(0), 1});
                      return {m.b.add("FmInteractionGrad", {dy, m.input(shape)})};
                    }});
  cases->push_back({"Softmax", [](Maker& m) -> std::vector<Output> {
                      return {m.b.add("Softmax", {m.input(m.shape(2), -20, 20)})};
                    }});
  cases->push_back({"SoftmaxGrad", [](Maker& m) -> std::vector<Output> {
                      const Shape shape = m.shape(2);
                      const Output dy = m.input(shape);
                      return {m.b.add("SoftmaxGrad", {dy, m.input(shape, 0, 1)})};
                    }});
  // The reference draws other masks, so dropping is tested by itself below.
  cases->push_back({"Dropout", [](Maker& m) -> std::vector<Output> {
                      AttrMap attrs = {{"rate", 0.5}, {"seed", int64_t{3}}};
                      if (m.dice.chance(50)) attrs["training"] = false;
                      return {m.b.add("Dropout", {m.input(m.any_shape())}, attrs)};
                    }});
}

/// Some axes of `rank`, each from either end; maybe none, which means all.
Ints some_axes(Maker& m, int rank) {
  Ints axes;
  for (int64_t i = 0; i < rank; ++i) {
    if (m.dice.chance(40)) axes.push_back(m.dice.chance(50) ? i : i - rank);
  }
  return axes;
}

std::vector<Output> reshape(Maker& m) {
  Shape shape = m.shape(static_cast<int>(m.dice.number(1, 4)));
  Ints wanted;
  const auto kept = static_cast<int>(m.dice.number(0, shape.rank()));
  int64_t rest = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    // What is not copied must be known to be laid out in another way.
    if (i >= kept && shape.dim(i) == 0) shape.set_dim(i, 3);
    if (i < kept) wanted.push_back(0);
    if (i >= kept) rest *= shape.dim(i);
  }
  if (m.dice.chance(30)) wanted.push_back(1);
  wanted.push_back(m.dice.chance(50) ? -1 : rest);
  return {ops::reshape(m.b, m.input(shape), wanted)};
}

std::vector<Output> concat(Maker& m) {
  const Shape shape = m.shape(static_cast<int>(m.dice.number(1, 4)));
  const auto axis = static_cast<int>(m.dice.number(0, shape.rank() - 1));
  std::vector<Output> in;
  for (int64_t i = m.dice.number(1, 4); i > 0; --i) {
    Shape part = shape;
    part.set_dim(axis, m.extent());
    in.push_back(m.input_of(m.dice.chance(100) ? m.real : DType::kInt64, part, -2, 2));
  }
  return {ops::concat(m.b, in, m.dice.chance(50) ? axis : axis - shape.rank())};
}

std::vector<Output> slice(Maker& m) {
  const Shape shape = m.shape(static_cast<int>(m.dice.number(1, 4)));
  const auto axis = static_cast<int>(m.dice.number(0, shape.rank() - 1));
  const int64_t begin = m.dice.number(0, shape.dim(axis));
  const int64_t size = m.dice.number(0, shape.dim(axis) - begin);
  return {ops::slice_axis(m.b, m.input(shape), axis - shape.rank(), begin, size)};
}

std::vector<Output> pad(Maker& m) {
  const Shape shape = m.shape(static_cast<int>(m.dice.number(1, 4)));
  const int64_t axis = m.dice.number(0, shape.rank() - 1);
  const int64_t before = m.dice.number(0, 3);
  return {ops::pad_axis(m.b, m.input(shape), axis, before, m.dice.number(0, 3))};
}

void add_structure(std::vector<Case>* cases) {
  for (const std::string op : {"ReduceSum", "ReduceMean"}) {
    cases->push_back({op, [op](Maker& m) -> std::vector<Output> {
                        const Shape shape = m.any_shape();
                        const AttrMap attrs = {{"axes", some_axes(m, shape.rank())},
                                               {"keep_dims", m.dice.chance(50)}};
                        return {m.b.add(op, {m.input(shape)}, attrs)};
                      }});
  }
  cases->push_back({"BroadcastAxes", [](Maker& m) -> std::vector<Output> {
                      const Output like = m.input(m.any_shape());
                      const AttrMap axes = {{"axes", some_axes(m, m.b.spec(like).shape.rank())},
                                            {"keep_dims", m.dice.chance(50)}};
                      const Output g = m.b.add("ReduceSum", {like}, axes);
                      AttrMap attrs = axes;
                      attrs["mean"] = m.dice.chance(50);
                      return {m.b.add("BroadcastAxes", {g, like}, attrs)};
                    }});
  cases->push_back({"Reshape", reshape});
  cases->push_back({"ReshapeLike", [](Maker& m) -> std::vector<Output> {
                      const int64_t a = m.extent();
                      const int64_t b = m.extent();
                      const Output x = m.input({a, 2, b});
                      return {ops::reshape_like(m.b, x, m.input({b, a * 2}))};
                    }});
  cases->push_back({"Concat", concat});
  cases->push_back({"SliceAxis", slice});
  cases->push_back({"PadAxis", pad});
}

/// Ids of a table, some of them twice; none where they are below 0.
Output some_ids(Maker& m, int64_t rows, int64_t lowest = 0) {
  return m.input_of(DType::kInt64, m.shape(static_cast<int>(m.dice.number(1, 2))),
                    static_cast<double>(lowest), static_cast<double>(rows - 1));
}

Shape shape_fed(const Maker& m, Output value) {
  return m.feeds.at(m.graph.node(value.node).name).shape();
}

Shape with_last(Shape shape, int64_t extent) {
  shape.append(extent);
  return shape;
}

std::vector<Output> gather(Maker& m) {
  const int64_t rows = m.dice.number(1, 40);
  const int64_t dim = m.dice.number(1, 20);
  const Output table = m.dice.chance(50) ? m.read(m.variable({rows, dim})) : m.input({rows, dim});
  return {m.b.add("Gather", {table, some_ids(m, rows)})};
}

std::vector<Output> update_rows(Maker& m) {
  const int64_t rows = m.dice.number(1, 40);
  const int64_t dim = m.dice.number(1, 20);
  const Output table = m.variable({rows, dim});
  const Output ids = some_ids(m, rows);
  const Output grads = m.input_of(DType::kFloat32, with_last(shape_fed(m, ids), dim), -1, 1);
  m.targets.push_back(m.update_rows(table, ids, grads));
  return {};
}

std::vector<Output> read_variable(Maker& m) { return {m.read(m.variable(m.any_shape()))}; }

std::vector<Output> update_dense(Maker& m) {
  const Shape shape = m.any_shape();
  const Output variable = m.variable(shape);
  m.targets.push_back(m.update_dense(variable, m.input_of(DType::kFloat32, shape, -1, 1)));
  return {};
}

/// Rows of a table in parts, and gradients for them: where each id is, and all that comes of it.
std::vector<Output> parts_of_a_table(Maker& m) {
  const auto lanes = m.dice.pick<Ints>({{1}, {3}, {2, 1}, {1, 2, 2}});
  const int64_t parts = std::accumulate(lanes.begin(), lanes.end(), int64_t{0});
  const int64_t rows = m.dice.number(1, 40);
  const AttrMap dim = {{"dim", m.dice.number(1, 20)}};
  const auto width = ir::attr_or<int64_t>(dim, "dim", 0);
  const Output ids = some_ids(m, rows, -1);
  const ir::NodeId unique = m.b.add_node("Unique", {ids});
  const ir::NodeId route = m.b.add_node("Route", {{unique, 0}}, {{"rows", rows}, {"lanes", lanes}});
  const Output position = {route, static_cast<int32_t>(parts)};
  const Output grads = m.input_of(DType::kFloat32, with_last(shape_fed(m, ids), width), -1, 1);
  std::vector<Output> gathered = {ids, position, {unique, 1}};
  std::vector<Output> summed = {grads, position, {unique, 1}};
  for (int32_t p = 0; p < parts; ++p) {
    // No part has more rows than the table.
    const Output part = m.input_of(DType::kFloat32, {rows, width}, -1, 1);
    gathered.push_back(m.b.add("Gather", {part, {route, p}}));
    summed.push_back({route, p});
  }
  std::vector<Output> out = {m.b.add("GatherParts", gathered, dim), position, {unique, 1}};
  const ir::NodeId sums = m.b.add_node("SumParts", summed, dim);
  for (int32_t p = 0; p < parts; ++p) out.push_back({sums, p});
  return out;
}

/// A look-up in a table in parts, and an update of it by the same ids.
std::vector<Output> table_in_parts(Maker& m) {
  const int64_t rows = m.dice.number(3, 40);
  const int64_t width = m.dice.number(1, 20);
  const int64_t parts = m.dice.number(1, 3);
  std::vector<Output> handles;
  for (int64_t k = 0; k < parts; ++k) {
    handles.push_back(m.variable({(rows - k + parts - 1) / parts, width}));
  }
  const Output ids = some_ids(m, rows, -1);
  const Output grads = m.input_of(DType::kFloat32, with_last(shape_fed(m, ids), width), -1, 1);
  const Output found = ops::embedding_lookup(m.b, ids, handles, rows, width);
  // The rows are those before the update.
  const ir::NodeId update = m.update_table(ids, grads, handles, rows, width, found.node);
  m.targets.push_back(update);
  return {found};
}

/// Cases by the op that they are about.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_arithmetic(&cases);
  add_products(&cases);
  add_structure(&cases);
  cases.push_back({"Gather", gather});
  cases.push_back({"EmbeddingLookup", table_in_parts});
  cases.push_back({"GatherParts", parts_of_a_table});
  cases.push_back({"VariableRead", read_variable});
  cases.push_back({"VariableUpdateDense", update_dense});
  cases.push_back({"VariableUpdateRows", update_rows});
  return cases;
}

double tolerance_of(DType dtype) { return dtype == DType::kFloat32 ? 4e-5 : 1e-11; }

/// Runs one made graph both ways. Adds the ops that real kernels ran to `ran`.
void check(Maker& m, const std::vector<Output>& fetches, std::set<std::string>* ran) {
  ASSERT_TRUE(m.b.status().ok()) << m.b.status();
  reference::Values expected;
  for (const auto& [name, value] : m.variables) expected[name] = value.clone();
  const auto want = reference::evaluate(
      m.graph,
      {.feeds = m.feeds, .fetches = fetches, .targets = m.targets, .variables = &expected});
  ASSERT_TRUE(want.ok()) << want.status();

  const auto step = passes::expand_embeddings({m.graph, fetches, m.targets}, test_registry());
  ASSERT_TRUE(step.ok()) << step.status();
  const auto made = compile_for_test(step->graph, step->fetches, step->targets);
  ASSERT_TRUE(made.ok()) << made.status();
  const program::Program& program = *made;
  BufferPool pool(1 << 20);
  resources::Manager manager;
  set_variables(&manager, m.variables);
  const auto bound = BoundProgram::bind(program, all_kernels(), {.resources = &manager});
  ASSERT_TRUE(bound.ok()) << bound.status();
  Step running(bound->get(), &pool, nullptr);
  const auto got = run_step(&running, program, m.feeds, 5);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->size(), want->size());
  for (size_t i = 0; i < got->size(); ++i) {
    expect_close((*got)[i], (*want)[i], tolerance_of((*want)[i].dtype()));
    const program::SlotInfo& info = program.slots[program.fetches[i]];
    EXPECT_TRUE(info.shape.accepts((*got)[i].shape()))
        << (*got)[i].to_string() << " where inference said " << info.shape.to_string();
  }
  for (const auto& [name, value] : expected) {
    expect_close(variable_of(manager, name), value, 1e-5);
  }
  ran->merge(ops_of(program));
}

TEST(Conformance, of_every_op_to_the_reference) {
  std::set<std::string> ran;
  std::set<std::string> cased;
  int graphs = 0;
  for (const Case& one : all_cases()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (uint32_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(fmt::format("{} {} seed {}", one.op, tensor::name_of(dtype), seed));
        Maker m(seed, dtype);
        const std::vector<Output> fetches = one.build(m);
        check(m, fetches, &ran);
        if (HasFailure()) return;
        ++graphs;
      }
    }
    cased.insert(one.op);
  }
  // Fed from outside, or gone when a graph has become a program.
  const std::set<std::string> never_run = {"Placeholder", "Arg", "Ret", "Call", "NoOp"};
  // Made into others by a pass, before anything runs.
  const std::set<std::string> expanded = {"EmbeddingLookup", "EmbeddingUpdate",
                                          "EmbeddingAccumulate"};
  // Made of several ops by passes: see the tests of optimised programs below.
  const std::set<std::string> fused = {"FusedElementwise", "FusedMatMul",  "GatherConcat",
                                       "UpdateJoinedRows", "ConcatMatMul", "TransposedConcatMatMul",
                                       "MatMulSplit",      "UniqueRoute",  "GatherPartsConcat"};
  // Not kernels: see control_test.cc.
  const std::set<std::string> control = {"FunctionCall", "If", "While", "Scan"};
  for (const std::string& op : test_registry().names()) {
    if (control.contains(op) || fused.contains(op) || expanded.contains(op)) continue;
    if (never_run.contains(op)) {
      EXPECT_FALSE(ran.contains(op)) << op;
      continue;
    }
    EXPECT_NE(all_kernels().find(op), nullptr) << op << " has no kernel";
    EXPECT_TRUE(ran.contains(op) || !reference::knows(op))
        << op << " has no case in conformance_test.cc";
  }
  fmt::print("{} graphs of {} ops against the reference\n", graphs, ran.size());
}

/// A trainable step of many ops in a row; every value is [b, 4].
class RandomModel {
 public:
  RandomModel(uint32_t seed, DType dtype) : m(seed, dtype) {
    const int64_t batch = m.dice.chance(10) ? 0 : m.dice.number(1, 6);
    for (int i = 0; i < 3; ++i) values_.push_back(m.input({batch, 4}));
    table_ = m.variable({7, 4});
    bias_ = m.variable({4});
    ids_ = m.input_of(DType::kInt64, {batch}, 0, 6);
    for (int i = 0; i < 30; ++i) values_.push_back(next());
    for (int i = 0; i < 3; ++i) fetches.push_back(m.dice.pick(values_));
    const Output last = as_float32(values_.back());
    m.targets = {m.update_rows(table_, ids_, ops::tanh(m.b, last)),
                 m.update_dense(bias_, ops::reduce_sum(m.b, ops::tanh(m.b, last), {0}))};
    order_updates_after_reads();
  }

  Maker m;
  std::vector<Output> fetches;

 private:
  Output as_float32(Output x) { return ops::cast(m.b, x, DType::kFloat32); }
  Output as_real(Output x) { return m.real == DType::kFloat32 ? x : ops::cast(m.b, x, m.real); }

  Output next() {
    Builder& b = m.b;
    const Output x = m.dice.pick(values_);
    const Output y = m.dice.pick(values_);
    switch (m.dice.number(0, 15)) {
      case 0:
        return ops::add(b, x, y);
      case 1:
        return ops::mul(b, ops::tanh(b, x), y);
      case 2:
        return ops::sub(b, ops::sigmoid(b, x), y);
      case 3:
        return ops::relu(b, x);
      case 4:
        return ops::maximum(b, x, ops::neg(b, y));
      case 5:
        return ops::reshape_like(b, ops::softplus(b, ops::reshape(b, x, {-1, 2})), x);
      case 6:
        return ops::identity(b, x);
      case 7:
        return ops::bias_add(b, x, as_real(m.read(bias_)));
      case 8:
        return ops::add(b, x, ops::reduce_sum(b, ops::tanh(b, y), {1}, true));
      case 9: {
        const Output wide = ops::concat(b, {x, y}, 1);
        return ops::slice_axis(b, wide, 1, m.dice.number(0, 4), 4);
      }
      case 10:
        return ops::pad_axis(b, ops::slice_axis(b, x, -1, 1, 2), -1, 2, 0);
      case 11: {
        const Output scores = ops::fm_interaction(b, ops::reshape(b, ops::tanh(b, x), {0, 2, 2}));
        return ops::mul(b, y, ops::tanh(b, scores));
      }
      case 12:
        return as_real(b.add("Gather", {m.read(table_), ids_}));
      case 13: {
        const Output gram = ops::mat_mul(b, ops::tanh(b, x), ops::tanh(b, y), true, false);
        return ops::tanh(b, ops::mat_mul(b, x, gram));
      }
      case 14:
        return ops::add_n(b, {x, y, x});
      default:
        return ops::sigmoid_cross_entropy_with_logits(b, x, ops::sigmoid(b, y));
    }
  }

  /// Reads see the variables as they were before the step.
  void order_updates_after_reads() {
    std::vector<ir::NodeId> reads;
    for (const ir::Node& node : m.graph.nodes()) {
      if (node.op == "Gather" || node.op == "VariableRead") reads.push_back(node.id);
    }
    for (const ir::NodeId target : m.targets) {
      m.graph.mutable_node(target).control_inputs = reads;
    }
  }

  std::vector<Output> values_;
  Output table_;
  Output bias_;
  Output ids_;
};

/// Several steps of one program, one after the other; what was fetched stays as it was.
void check_steps(RandomModel& model) {
  Maker& m = model.m;
  ASSERT_TRUE(m.b.status().ok()) << m.b.status();
  const auto step = compile_for_test(m.graph, model.fetches, m.targets);
  ASSERT_TRUE(step.ok()) << step.status();
  reference::Values expected;
  for (const auto& [name, value] : m.variables) expected[name] = value.clone();
  BufferPool pool(1 << 20);
  resources::Manager manager;
  set_variables(&manager, m.variables);
  const auto bound = BoundProgram::bind(*step, all_kernels(), {.resources = &manager});
  ASSERT_TRUE(bound.ok()) << bound.status();
  Step running(bound->get(), &pool, nullptr);
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (uint64_t id = 0; id < 4; ++id) {
    reference::Values feeds;
    for (const auto& [name, value] : m.feeds) {
      const bool ids = value.dtype() == DType::kInt64;
      feeds[name] = m.dice.tensor(value.dtype(), value.shape(), ids ? 0 : -2, ids ? 6 : 2);
    }
    const auto want = reference::evaluate(
        m.graph,
        {.feeds = feeds, .fetches = model.fetches, .targets = m.targets, .variables = &expected});
    ASSERT_TRUE(want.ok()) << want.status();
    const auto got = run_step(&running, *step, feeds, id);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < want->size(); ++i) pairs.emplace_back((*got)[i], (*want)[i]);
    for (const auto& [name, value] : feeds) {
      EXPECT_TRUE(value.buffer()->holders() >= 1) << name;
    }
  }
  for (const auto& [got, want] : pairs) expect_close(got, want, 2e-3);
  for (const auto& [name, value] : expected) {
    expect_close(variable_of(manager, name), value, 2e-3);
  }
}

TEST(Conformance, of_random_models_over_several_steps) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      SCOPED_TRACE(fmt::format("{} seed {}", tensor::name_of(dtype), seed));
      RandomModel model(seed, dtype);
      check_steps(model);
      if (HasFailure()) return;
    }
  }
}

/// One step of a model, as bytes of its fetches.
std::vector<std::string> bytes_of_step(RandomModel& model, const reference::Values& feeds,
                                       bool fuse, std::set<std::string>* ran) {
  Maker& m = model.m;
  std::vector<std::string> out;
  const auto step = compile_for_test(m.graph, model.fetches, m.targets, passes_of(fuse));
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return out;
  BufferPool pool(1 << 20);
  resources::Manager manager;
  set_variables(&manager, m.variables);
  const auto bound = BoundProgram::bind(*step, all_kernels(), {.resources = &manager});
  EXPECT_TRUE(bound.ok()) << bound.status();
  if (!bound.ok()) return out;
  Step running(bound->get(), &pool, nullptr);
  const auto got = run_step(&running, *step, feeds, 1);
  EXPECT_TRUE(got.ok()) << got.status();
  if (!got.ok()) return out;
  const auto add = [&](const Tensor& t) {
    out.emplace_back(reinterpret_cast<const char*>(t.raw()), t.nbytes());
  };
  for (const Tensor& t : *got) add(t);
  for (const auto& [name, value] : m.variables) add(variable_of(manager, name));
  ran->merge(ops_of(*step));
  return out;
}

TEST(Conformance, of_optimised_programs_to_plain_ones_bit_for_bit) {
  std::set<std::string> plain_ops;
  std::set<std::string> fused_ops;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      SCOPED_TRACE(fmt::format("{} seed {}", tensor::name_of(dtype), seed));
      RandomModel model(seed, dtype);
      const auto plain = bytes_of_step(model, model.m.feeds, false, &plain_ops);
      const auto fused = bytes_of_step(model, model.m.feeds, true, &fused_ops);
      EXPECT_EQ(plain, fused);
      if (HasFailure()) return;
    }
  }
  EXPECT_TRUE(fused_ops.contains("FusedElementwise"));
  EXPECT_FALSE(plain_ops.contains("FusedElementwise"));
}

/// What a program fetches first, as its shape and bytes.
std::string result_of(const program::Program& step, const reference::Values& feeds) {
  BufferPool pool(1 << 20);
  const auto bound = BoundProgram::bind(step, all_kernels(), {});
  EXPECT_TRUE(bound.ok()) << bound.status();
  if (!bound.ok()) return {};
  Step running(bound->get(), &pool, nullptr);
  const auto got = run_step(&running, step, feeds, 1);
  EXPECT_TRUE(got.ok()) << got.status();
  if (!got.ok()) return {};
  const Tensor& t = got->front();
  return t.shape().to_string() + std::string(reinterpret_cast<const char*>(t.raw()), t.nbytes());
}

/// A chain of element-wise ops over shapes that may or may not broadcast, fed at run time.
TEST(Fused, broadcasts_at_run_time_as_its_ops_would) {
  const std::vector<std::vector<Shape>> shapes = {
      {{3, 4}, {3, 4}, {}},       {{1, 4}, {3, 4}, {}},    {{3, 1}, {1, 4}, {}},
      {{2500, 3}, {2500, 3}, {}}, {{0, 4}, {0, 4}, {}},    {{1, 1}, {1, 1}, {}},
      {{0, 4}, {1, 4}, {}},       {{70, 40}, {1, 40}, {}}, {{1, 40}, {70, 40}, {}},
      {{70, 40}, {70, 1}, {}},    {{3, 3000}, {3, 1}, {}}, {{3, 3000}, {1, 3000}, {}},
      {{1, 20}, {1, 20}, {}},     {{70, 1}, {1, 40}, {}},  {{70, 15}, {1, 15}, {}},
      {{1, 1}, {9, 40}, {}}};
  ir::Graph graph;
  Builder b(&graph, &test_registry());
  const Output x = ops::placeholder(b, "x", DType::kFloat32, {-1, -1});
  const Output y = ops::placeholder(b, "y", DType::kFloat32, {-1, -1});
  const Output s = ops::placeholder(b, "s", DType::kFloat32, {});
  const Output sum = ops::add(b, ops::mul(b, x, s), ops::sigmoid(b, y));
  const Output z = ops::maximum(b, ops::sub(b, sum, ops::square(b, ops::neg(b, y))), s);
  Dice dice(5);
  const auto fused = compile_for_test(graph, {z}, {}, passes_of(true));
  const auto plain = compile_for_test(graph, {z}, {}, passes_of(false));
  ASSERT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
  EXPECT_EQ(fused->instructions.size(), 1U);
  EXPECT_EQ(plain->instructions.size(), 7U);
  for (const std::vector<Shape>& one : shapes) {
    const reference::Values feeds = {{"x", dice.tensor(DType::kFloat32, one[0], -2, 2)},
                                     {"y", dice.tensor(DType::kFloat32, one[1], -2, 2)},
                                     {"s", dice.tensor(DType::kFloat32, one[2], -2, 2)}};
    EXPECT_EQ(result_of(*fused, feeds), result_of(*plain, feeds))
        << one[0].to_string() << one[1].to_string();
  }
}

TEST(Fused, layers_are_what_their_ops_make) {
  Dice dice(6);
  for (int i = 0; i < 40; ++i) {
    ir::Graph graph;
    Builder b(&graph, &test_registry());
    const DType dtype = dice.chance(50) ? DType::kFloat32 : DType::kFloat64;
    const bool ta = dice.chance(50);
    const bool tb = dice.chance(50);
    const int64_t m = dice.number(0, 9);
    const int64_t k = dice.number(0, 9);
    const int64_t n = dice.number(1, 40);
    const reference::Values feeds = {
        {"x", dice.tensor(dtype, ta ? Shape{k, m} : Shape{m, k}, -2, 2)},
        {"w", dice.tensor(dtype, tb ? Shape{n, k} : Shape{k, n}, -2, 2)},
        {"bias", dice.tensor(dtype, {n}, -2, 2)}};
    const Output x = ops::placeholder(b, "x", dtype, {-1, -1});
    const Output w = ops::placeholder(b, "w", dtype, {-1, -1});
    const Output bias = ops::placeholder(b, "bias", dtype, {-1});
    Output y = ops::bias_add(b, ops::mat_mul(b, x, w, ta, tb), bias);
    if (dice.chance(50)) y = ops::relu(b, y);
    const auto fused = compile_for_test(graph, {y}, {}, passes_of(true));
    const auto plain = compile_for_test(graph, {y}, {}, passes_of(false));
    ASSERT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
    EXPECT_EQ(ops_of(*fused), std::set<std::string>{"FusedMatMul"});
    EXPECT_EQ(result_of(*fused, feeds), result_of(*plain, feeds)) << i;
  }
}

TEST(Dropout, drops_its_share_scales_the_rest_and_repeats_itself) {
  ir::Graph graph;
  Builder b(&graph, &test_registry());
  const Output x = ops::placeholder(b, "x", DType::kFloat32, {-1});
  const Output y = ops::dropout(b, x, 0.25, 7, true);
  const auto step = compile_for_test(graph, {y});
  ASSERT_TRUE(step.ok()) << step.status();
  const auto bound = BoundProgram::bind(*step, all_kernels(), {});
  ASSERT_TRUE(bound.ok()) << bound.status();
  BufferPool pool(1 << 20);
  Step running(bound->get(), &pool, nullptr);
  Dice dice(1);
  const reference::Values feeds = {{"x", dice.tensor(DType::kFloat32, {40'000}, 1, 2)}};
  const auto mask = [&](uint64_t step_id) {
    const auto got = run_step(&running, *step, feeds, step_id);
    EXPECT_TRUE(got.ok()) << got.status();
    std::vector<bool> kept;
    for (int64_t i = 0; i < 40'000; ++i) {
      const float in = feeds.at("x").data<const float>()[i];
      const float out = (*got)[0].data<const float>()[i];
      kept.push_back(out != 0);
      EXPECT_FLOAT_EQ(out, kept.back() ? in / 0.75F : 0);
    }
    return kept;
  };
  const std::vector<bool> first = mask(1);
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), true)), 30'000, 500);
  EXPECT_NE(mask(2), first);
  EXPECT_EQ(mask(1), first);
}

}  // namespace
}  // namespace sidereal::exec
