#include "sidereal/reference/testing/op_cases.h"

#include <utility>

#include "sidereal/ops/ops.h"

namespace sidereal::reference {
namespace {

using ir::AttrMap;
using ir::Builder;
using ir::DType;
using ir::Output;
using ir::Shape;
using Outputs = std::vector<Output>;

/// A case whose node takes the inputs as they are.
OpCase plain(const std::string& op, std::string what, std::vector<CaseInput> inputs,
             const AttrMap& attrs = {}) {
  const auto build = [op, attrs](Builder& b, const Outputs& x) { return b.add(op, x, attrs); };
  return {op, std::move(what), std::move(inputs), build};
}

void add_arithmetic(std::vector<OpCase>* out) {
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Maximum", "Minimum"}) {
    out->push_back(plain(op, "same shape", {{{2, 3}}, {{2, 3}}}));
    out->push_back(plain(op, "row", {{{4, 3}}, {{3}}}));
    out->push_back(plain(op, "column", {{{4, 1}}, {{4, 3}}}));
    out->push_back(plain(op, "scalar", {{{}}, {{2, 2}}}));
    out->push_back(plain(op, "both ways", {{{2, 1, 3}}, {{4, 1}}}));
  }
  for (const char* op : {"Neg", "Exp", "Square", "Abs", "Sign", "Sigmoid", "Tanh", "Relu",
                         "Softplus", "OnesLike", "ZerosLike", "Identity"}) {
    out->push_back(plain(op, "", {{{2, 3}}}));
  }
  for (const char* op : {"Log", "Sqrt", "Log1p"}) out->push_back(plain(op, "", {{{5}, 0.2, 3}}));
  out->push_back(plain("StopGradient", "", {{{3}, -2, 2, false}}));
  out->push_back(plain("AddN", "one", {{{2, 2}}}));
  out->push_back(plain("AddN", "three", {{{2, 2}}, {{2, 2}}, {{2, 2}}}));
  out->push_back(plain("Cast", "same dtype", {{{3}}}, {{"dtype", DType::kFloat64}}));
  out->push_back({"Cast", "there and back", {{{3}}}, [](Builder& b, const Outputs& x) {
                    return ops::cast(b, ops::cast(b, x[0], DType::kFloat32), DType::kFloat64);
                  }});
  out->push_back({"Const", "", {{{2}}}, [](Builder& b, const Outputs& x) {
                    return ops::mul(b, x[0], ops::scalar(b, DType::kFloat64, 3));
                  }});
  out->push_back({"Placeholder", "", {{{2}}}, [](Builder&, const Outputs& x) { return x[0]; }});
}

void add_products(std::vector<OpCase>* out) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      out->push_back(plain("MatMul", fmt::format("transpose {} {}", ta, tb),
                           {{ta ? Shape{3, 2} : Shape{2, 3}}, {tb ? Shape{4, 3} : Shape{3, 4}}},
                           {{"transpose_a", ta}, {"transpose_b", tb}}));
    }
  }
  out->push_back(plain("BiasAdd", "matrix", {{{3, 4}}, {{4}}}));
  out->push_back(plain("BiasAdd", "rank 3", {{{2, 3, 4}}, {{4}}}));
  out->push_back(plain("SigmoidCrossEntropyWithLogits", "", {{{4, 1}, -4, 4}, {{4, 1}, 0, 1}}));
  out->push_back(plain("FmInteraction", "", {{{3, 4, 2}}}));
  out->push_back(plain("Softmax", "", {{{3, 4}}}));
  out->push_back(plain("SoftmaxGrad", "", {{{3, 4}}, {{3, 4}}}));
  const AttrMap dropout = {{"rate", 0.4}, {"seed", int64_t{3}}};
  AttrMap training = dropout;
  training["training"] = true;
  out->push_back(plain("Dropout", "not training", {{{3, 4}}}, dropout));
  out->push_back(plain("Dropout", "training", {{{3, 4}}}, training));
}

void add_structure(std::vector<OpCase>* out) {
  using Ints = std::vector<int64_t>;
  for (const char* op : {"ReduceSum", "ReduceMean"}) {
    for (const bool keep : {false, true}) {
      for (const Ints& axes : {Ints{0}, Ints{-1}, Ints{0, 2}, Ints{0, 1, 2}, Ints{}}) {
        out->push_back(plain(op, fmt::format("keep {} of {} axes", keep, axes.size()),
                             {{{2, 3, 2}}}, {{"axes", axes}, {"keep_dims", keep}}));
      }
    }
  }
  out->push_back(plain("Reshape", "-1", {{{2, 6}}}, {{"shape", Ints{-1, 4}}}));
  out->push_back(plain("Reshape", "0", {{{2, 6}}}, {{"shape", Ints{0, 3, 2}}}));
  out->push_back(plain("ReshapeLike", "", {{{2, 6}}, {{3, 4}, -2, 2, false}}));
  out->push_back(
      plain("Concat", "columns", {{{2, 1}}, {{2, 3}}, {{2, 2}}}, {{"axis", int64_t{1}}}));
  out->push_back(plain("Concat", "last", {{{2, 1, 2}}, {{2, 1, 3}}}, {{"axis", int64_t{-1}}}));
  out->push_back(plain("SliceAxis", "", {{{2, 5, 2}}},
                       {{"axis", int64_t{1}}, {"begin", int64_t{1}}, {"size", int64_t{3}}}));
  out->push_back(plain("PadAxis", "", {{{2, 2}}},
                       {{"axis", int64_t{-1}}, {"before", int64_t{1}}, {"after", int64_t{2}}}));
}

void build_gradient_helpers(Builder& b) {
  const Output x = ops::placeholder(b, "x", DType::kFloat32, {-1, 3});
  const Output cube = ops::placeholder(b, "cube", DType::kFloat32, {-1, 3, 2});
  const Output column = ops::placeholder(b, "column", DType::kFloat32, {-1, 1});
  for (const char* op : {"ReluGrad", "SigmoidGrad", "TanhGrad"}) b.add(op, {x, x});
  b.add("SigmoidCrossEntropyGrad", {x, x, x});
  b.add("SumToShapeOf", {x, column});
  b.add("BiasAddGrad", {x});
  b.add("FmInteractionGrad", {column, cube});
  b.add("BroadcastAxes", {column, x},
        {{"axes", std::vector<int64_t>{1}}, {"keep_dims", true}, {"mean", true}});
}

void build_state(Builder& b) {
  const auto handle = [&](const char* name, const Shape& shape) {
    return b.add(
        "Variable", {},
        {{"shared_name", std::string(name)}, {"dtype", DType::kFloat32}, {"shape", shape}});
  };
  const auto read = [&](Output handle, const Shape& shape) {
    return b.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", shape}});
  };
  const Output table = handle("table", {10, 2});
  const Output bias = handle("bias", {2});
  const Output ids = ops::placeholder(b, "ids", DType::kInt64, {-1, 4});
  const Output rows = b.add("Gather", {read(table, {10, 2}), ids});
  b.add("VariableGather", {table, ids}, {{"dtype", DType::kFloat32}, {"shape", Shape{10, 2}}});
  const Output step = ops::scalar(b, DType::kFloat64, 1);
  const AttrMap sgd = {{"kind", std::string("sgd")}};
  const ir::NodeId dense =
      b.add_node("VariableUpdateDense", {bias, read(bias, {2}), step, step}, sgd);
  const ir::NodeId sparse = b.add_node("VariableUpdateRows", {table, ids, rows, step, step}, sgd);
  ops::no_op(b, {dense, sparse}, "train");

  const std::vector<Output> parts = {handle("parts/part_0", {5, 2}),
                                     handle("parts/part_1", {5, 2})};
  const Output found = ops::embedding_lookup(b, ids, parts, 10, 2);
  b.add_node("EmbeddingUpdate", {ids, found, step, step, parts[0], parts[1]},
             {{"kind", std::string("sgd")},
              {"rows", int64_t{10}},
              {"dim", int64_t{2}},
              {"parts", int64_t{2}}});

  const AttrMap dim = {{"dim", int64_t{2}}};
  const ir::NodeId unique = b.add_node("Unique", {ids});
  const ir::NodeId route = b.add_node(
      "Route", {{unique, 0}}, {{"rows", int64_t{10}}, {"lanes", std::vector<int64_t>{1, 2}}});
  const Output part = b.add("Gather", {read(table, {10, 2}), {route, 0}});
  b.add("GatherParts", {ids, {route, 3}, {unique, 1}, part, part, part}, dim);
  b.add("SumParts", {rows, {route, 3}, {unique, 1}, {route, 0}, {route, 1}, {route, 2}}, dim);
  const Output arg =
      b.add("Arg", {},
            {{"index", int64_t{0}}, {"dtype", DType::kFloat32}, {"shape", Shape::unknown_rank()}});
  b.add_node("Ret", {arg}, {{"index", int64_t{0}}});
  b.add("Call", {arg},
        {{"call", int64_t{0}},
         {"device", std::string("/job:ps/replica:0/task:1/device:CPU:0")},
         {"output_dtypes", std::vector<std::string>{"float32", "int64"}},
         {"output_shapes", std::vector<std::string>{"[2,?]", "[]"}}});
}

}  // namespace

std::vector<OpCase> gradient_cases() {
  std::vector<OpCase> out;
  add_arithmetic(&out);
  add_products(&out);
  add_structure(&out);
  return out;
}

void build_other_ops(Builder& b) {
  build_gradient_helpers(b);
  build_state(b);
}

}  // namespace sidereal::reference
