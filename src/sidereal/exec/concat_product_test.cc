#include <gtest/gtest.h>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"

// Layers over concatenations and all their gradients: what passes make of them beside the ops
// themselves.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

struct RandomLayer : public LocalModel {
  explicit RandomLayer(uint32_t seed) : LocalModel(seed) {
    dtype = dice.chance(70) ? DType::kFloat32 : DType::kFloat64;
    const auto front_rank = dice.number(1, 3);
    for (int64_t i = 0; i < front_rank; ++i) {
      front.append(front_rank == 1 ? dice.number(20, 90) : dice.number(5, 12));
    }
    if (dice.chance(5)) front.set_dim(0, 0);
    int64_t columns = 0;
    const int64_t count = dice.number(2, 4);
    std::vector<Output> wrt;
    std::vector<Output> parts;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t width = dice.chance(5) ? 7 : dice.number(32, 70);
      Shape shape = front;
      const bool narrow = i > 0 && dice.chance(30);
      if (narrow) shape.set_dim(static_cast<int>(dice.number(0, front_rank - 1)), 1);
      shape.append(width);
      Output part = input(fmt::format("x{}", i), shape, true);
      wrt.push_back(part);
      // A gradient that is fetched stays a node of its own.
      if (dice.chance(95)) part = ops::tanh(b, part);
      if (narrow) part = spread(part, parts[0], width);
      parts.push_back(part);
      columns += width;
    }
    const Output joined = ops::concat(b, parts, dice.chance(50) ? -1 : front_rank);
    Output y = joined;
    if (front_rank > 1 || dice.chance(20)) y = ops::reshape(b, y, {-1, columns});
    const int64_t units = dice.number(1, 180);
    wrt.push_back(input("w", {columns, units}, false));
    y = ops::mat_mul(b, y, wrt.back());
    if (dice.chance(60)) {
      wrt.push_back(input("bias", {units}, false));
      y = ops::bias_add(b, y, wrt.back());
      const auto activation = dice.number(0, 4);
      if (activation == 0) y = ops::relu(b, y);
      if (activation == 1) y = ops::sigmoid(b, y);
      if (activation == 2) y = ops::tanh(b, y);
    }
    fetches.push_back(y);
    if (dice.chance(10)) fetches.push_back(joined);
    const auto grads = autodiff::gradients(b, ops::reduce_sum(b, ops::square(b, y)), wrt);
    EXPECT_TRUE(grads.ok()) << grads.status();
    for (const Output& grad : *grads) fetches.push_back(grad);
  }

  /// `part` broadcast to the rows of `like`.
  Output spread(Output part, Output like, int64_t width) {
    Shape shape = front;
    shape.append(width);
    if (dice.chance(50)) return b.add("BroadcastTo", {part}, {{"shape", ints(shape)}});
    const Output column = ops::slice_axis(b, like, front.rank(), 0, 1);
    const Output row = input(fmt::format("ones{}", width), {width}, false);
    return b.add("BroadcastLike", {part, ops::mul(b, column, row)});
  }

  static std::vector<int64_t> ints(const Shape& shape) {
    return {shape.dims().begin(), shape.dims().end()};
  }

  Output input(const std::string& name, const Shape& shape, bool may_hide) {
    if (const ir::Node* known = graph.find(name)) return {known->id, 0};
    feeds[name] = dice.tensor(dtype, shape, -0.5, 0.5);
    Shape known = shape;
    for (int i = 0; may_hide && i + 1 < shape.rank(); ++i) {
      if (shape.dim(i) != 1 && dice.chance(40)) known.set_dim(i, -1);
    }
    return ops::placeholder(b, name, dtype, known);
  }

  DType dtype;
  Shape front;
};

TEST(ConcatProducts, are_what_the_ops_make_but_for_rounding) {
  std::map<std::string, int> ran;
  int without_concat = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomLayer layer(seed);
    const auto plain = layer.run({.fuse = false});
    EXPECT_TRUE(layer.ops.contains("Concat"));
    const auto passed = layer.run({});
    ASSERT_EQ(plain.size(), passed.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      expect_close(passed[i], plain[i], layer.dtype == DType::kFloat32 ? 2e-4 : 1e-11);
    }
    if (testing::Test::HasFailure()) return;
    for (const std::string& op : layer.ops) ++ran[op];
    if (!layer.ops.contains("Concat")) ++without_concat;
  }
  for (const char* op : {"ConcatMatMul", "TransposedConcatMatMul", "MatMulSplit"}) {
    EXPECT_GT(ran[op], 100) << op;
  }
  EXPECT_GT(without_concat, 100);
}

/// The status of one instruction over float32 inputs of these shapes.
Status status_of(const std::string& op, const ir::AttrMap& attrs, const std::vector<Shape>& shapes,
                 int outputs) {
  program::Program program;
  program::Instruction instruction;
  instruction.op = op;
  instruction.attrs = attrs;
  for (const Shape& shape : shapes) {
    const auto slot = static_cast<int32_t>(program.slots.size());
    program.feeds.push_back(slot);
    program.feed_names.push_back(fmt::format("x{}", slot));
    program.slots.push_back({DType::kFloat32, shape, -1});
    instruction.inputs.push_back(slot);
  }
  for (int i = 0; i < outputs; ++i) {
    instruction.outputs.push_back(static_cast<int32_t>(program.slots.size()));
    program.slots.push_back({DType::kFloat32, Shape::unknown_rank(), i});
  }
  program.num_buffers = outputs;
  program.instructions = {instruction};
  const auto bound = BoundProgram::bind(program, all_kernels(), {});
  if (!bound.ok()) return bound.status();
  BufferPool pool(1 << 20);
  Step step(bound->get(), &pool, nullptr);
  step.begin(1);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Status fed = step.feed(static_cast<int>(i), Tensor::zeros(DType::kFloat32, shapes[i]));
    if (!fed.ok()) return fed;
  }
  return step.advance().status();
}

TEST(ConcatProducts, refuse_what_does_not_fit) {
  using Ints = std::vector<int64_t>;
  EXPECT_TRUE(status_of("ConcatMatMul", {}, {{4, 2}, {1, 3}, {5, 2}}, 1).ok());
  EXPECT_FALSE(status_of("ConcatMatMul", {}, {{4, 2}, {3, 3}, {5, 2}}, 1).ok());
  EXPECT_FALSE(status_of("ConcatMatMul", {}, {{4, 2}, {4, 3}, {6, 2}}, 1).ok());
  EXPECT_FALSE(status_of("ConcatMatMul", {}, {{}, {4, 3}, {3, 2}}, 1).ok());
  EXPECT_FALSE(status_of("ConcatMatMul", {{"bias", true}}, {{4, 2}, {2, 2}, {3}}, 1).ok());
  EXPECT_FALSE(status_of("ConcatMatMul", {{"bias", true}}, {{2, 2}, {2}}, 1).ok());
  EXPECT_TRUE(status_of("TransposedConcatMatMul", {}, {{2, 2, 2}, {2, 1, 3}, {4, 5}}, 1).ok());
  EXPECT_FALSE(status_of("TransposedConcatMatMul", {}, {{4, 2}, {4, 3}, {5, 5}}, 1).ok());
  const auto split = [](const Ints& begins, const Ints& sizes) {
    return status_of("MatMulSplit", {{"begins", begins}, {"sizes", sizes}}, {{4, 2}, {6, 2}}, 2);
  };
  EXPECT_TRUE(split({0, 3}, {2, 3}).ok());
  EXPECT_FALSE(split({0, 3}, {2, 4}).ok());
  EXPECT_FALSE(split({0, -1}, {2, 1}).ok());
  EXPECT_FALSE(split({0, 1}, {2}).ok());
  EXPECT_FALSE(split({0, 1, 1}, {2, 1, 1}).ok());
}

}  // namespace
}  // namespace sidereal::exec
