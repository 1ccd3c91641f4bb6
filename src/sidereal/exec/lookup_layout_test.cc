#include <gtest/gtest.h>

#include <cstring>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"

// Programs whose lookups are laid out beside those that run as they were written, bit for bit.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kRowsMax = 12;

/// Lookups in some tables, joined along some axis, a product behind them, and updates of all tables
/// by their gradients.
class RandomLookups : public LocalModel {
 public:
  explicit RandomLookups(uint32_t seed) : LocalModel(seed) {
    batch_ = dice.chance(5) ? 0 : dice.number(1, 40);
    for (int64_t i = dice.number(1, 4); i > 0; --i) {
      const int64_t rows = dice.number(1, kRowsMax);
      tables_.push_back(input(fmt::format("table{}", tables_.size()), {rows, dim_}, {rows, dim_}));
      rows_.push_back(rows);
    }
    const bool has_history = dice.chance(30);
    const Output joined = has_history ? join_histories() : dice.chance(50) ? stack() : concat();
    const int64_t width = width_of(joined);
    const Output flat = ops::reshape(b, joined, {-1, width});
    const Output w = input("w", {width, 5}, {width, 5});
    const Output y = ops::tanh(b, ops::mat_mul(b, flat, w));
    const Output loss = ops::reduce_sum(b, ops::square(b, y), {}, false);
    fetches.push_back(loss);
    if (dice.chance(30)) fetches.push_back(joined);
    update_all(loss, w);
  }

 private:
  Output input(const std::string& name, const Shape& shape, const Shape& known) {
    feeds[name] = dice.tensor(DType::kFloat32, shape, -1, 1);
    return ops::placeholder(b, name, DType::kFloat32, known);
  }

  /// Rows of a table by new indices of `shape`; their values are remembered for its update.
  Output gathered(Shape shape) {
    const auto t = static_cast<size_t>(dice.number(0, static_cast<int64_t>(tables_.size()) - 1));
    const std::string name = fmt::format("ids{}", lookups_.size());
    const DType dtype = dice.chance(70) ? DType::kInt64 : DType::kInt32;
    feeds[name] = dice.tensor(dtype, shape, 0, static_cast<double>(rows_[t]) - 1);
    if (dice.chance(60)) shape.set_dim(0, -1);
    const Output ids = ops::placeholder(b, name, dtype, shape);
    const Output rows = b.add("Gather", {tables_[t], ids}, {{"axis", int64_t{0}}});
    lookups_.push_back({t, ids, rows});
    if (dice.chance(15)) fetches.push_back(rows);
    return rows;
  }

  Output dense(const Shape& shape) {
    Shape known = shape;
    if (dice.chance(60)) known.set_dim(0, -1);
    return input(fmt::format("dense{}", graph.size()), shape, known);
  }

  /// Parts of [batch] rows each.
  std::vector<Output> parts() {
    std::vector<Output> out;
    for (int64_t i = dice.number(1, 6); i > 0; --i) {
      out.push_back(dice.chance(75) ? gathered({batch_}) : dense({batch_, dim_}));
    }
    return out;
  }

  Output stack() { return b.add("Stack", parts(), {{"axis", int64_t{1}}}); }
  Output concat() {
    std::vector<Output> all = parts();
    if (dice.chance(40)) {
      const int64_t count = dice.number(1, 20);
      all.push_back(ops::reshape(b, gathered({batch_, count}), {-1, count * dim_}));
    }
    return ops::concat(b, all, -1);
  }

  /// Some rows of every table for each example: along the rows, or side by side.
  Output join_histories() {
    const bool is_along = dice.chance(50);
    const int64_t length = dice.number(1, 20);
    std::vector<Output> out;
    for (int64_t i = dice.number(1, 4); i > 0; --i) {
      const int64_t mine = is_along ? dice.number(1, 20) : length;
      out.push_back(dice.chance(75) ? gathered({batch_, mine}) : dense({batch_, mine, dim_}));
    }
    return ops::concat(b, out, is_along ? 1 : 2);
  }

  int64_t width_of(Output value) const {
    const Shape& shape = graph.spec(value).shape;
    int64_t width = 1;
    for (int i = 1; i < shape.rank(); ++i) width *= shape.dim(i);
    return width;
  }

  void update_all(Output loss, Output w) {
    std::vector<Output> wrt = {w};
    for (const Lookup& lookup : lookups_) wrt.push_back(lookup.rows);
    const auto grads = autodiff::gradients(b, loss, wrt);
    ASSERT_TRUE(grads.ok()) << grads.status();
    fetches.push_back((*grads)[0]);
    const Output step = ops::scalar(b, DType::kFloat64, 1);
    const Output rate = ops::scalar(b, DType::kFloat64, 0.1);
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::vector<Output> ids;
      std::vector<Output> values;
      for (size_t i = 0; i < lookups_.size(); ++i) {
        if (lookups_[i].table != t) continue;
        ids.push_back(
            b.add("Cast", {ops::reshape(b, lookups_[i].ids, {-1})}, {{"dtype", DType::kInt64}}));
        values.push_back(ops::reshape(b, (*grads)[i + 1], {-1, dim_}));
      }
      if (ids.empty()) continue;
      if (ids.size() > 1) ids = {ops::concat(b, ids, 0)};
      if (values.size() > 1) values = {ops::concat(b, values, 0)};
      const Output slot = input(fmt::format("slot{}", t), {rows_[t], dim_}, {-1, dim_});
      const ir::NodeId updated =
          b.add_node("UpdateRows", {tables_[t], ids[0], values[0], step, rate, slot},
                     {{"kind", std::string("momentum")}, {"momentum", 0.5}});
      fetches.push_back({updated, 0});
      fetches.push_back({updated, 1});
    }
    EXPECT_TRUE(b.status().ok()) << b.status();
  }

  struct Lookup {
    size_t table;
    Output ids;
    Output rows;
  };

  int64_t batch_ = 0;
  int64_t dim_ = dice.pick<int64_t>({1, 3, 4, 8, 16, 17, 40});
  std::vector<Output> tables_;
  std::vector<int64_t> rows_;
  std::vector<Lookup> lookups_;
};

TEST(LookupLayout, changes_no_bit_of_any_result) {
  int gathers = 0;
  int updates = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomLookups lookups(seed);
    const std::vector<Tensor> plain = lookups.run({.fuse = false});
    EXPECT_FALSE(lookups.ops.contains("GatherConcat") || lookups.ops.contains("UpdateJoinedRows"));
    const std::vector<Tensor> laid_out = lookups.run({});
    gathers += lookups.ops.contains("GatherConcat") ? 1 : 0;
    updates += lookups.ops.contains("UpdateJoinedRows") ? 1 : 0;
    expect_same(laid_out, plain);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(gathers, 200);
  EXPECT_GT(updates, 200);
}

TEST(LookupLayout, rounds_rows_on_their_way_as_gathers_do) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomLookups lookups(seed);
    const std::vector<Tensor> plain =
        lookups.run({.fuse = false, .compute_dtype = DType::kBFloat16});
    const std::vector<Tensor> laid_out = lookups.run({.compute_dtype = DType::kBFloat16});
    expect_same(laid_out, plain);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(LookupLayout, an_index_outside_its_table_is_named) {
  ir::Graph graph;
  Builder b(&graph, &test_registry());
  const Output t = ops::placeholder(b, "t", DType::kFloat32, {5, 2});
  const Output i = ops::placeholder(b, "i", DType::kInt32, {-1});
  const Output dense = ops::placeholder(b, "dense", DType::kFloat32, {-1, 2});
  const Output rows = b.add("Gather", {t, i}, {{"axis", int64_t{0}}});
  const Output z = ops::concat(b, {dense, rows}, 1, "z");
  const auto step = compile_for_test(graph, {z});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(ops_of(*step), std::set<std::string>{"GatherConcat"});
  const auto bound = BoundProgram::bind(*step, all_kernels(), {});
  ASSERT_TRUE(bound.ok()) << bound.status();
  BufferPool pool(1 << 20);
  Step running(bound->get(), &pool, nullptr);
  Dice dice(3);
  const auto run = [&](int64_t batch, double highest) {
    const reference::Values feeds = {{"t", dice.tensor(DType::kFloat32, {5, 2}, -1, 1)},
                                     {"i", dice.tensor(DType::kInt32, {3}, highest, highest)},
                                     {"dense", dice.tensor(DType::kFloat32, {batch, 2}, -1, 1)}};
    return run_step(&running, *step, feeds, 1).status();
  };
  EXPECT_TRUE(run(3, 4).ok());
  const Status outside = run(3, 5);
  EXPECT_EQ(outside.code(), base::StatusCode::kInvalidArgument);
  EXPECT_NE(base::message_of(outside).find("index 5 at [0] of the indices"), std::string::npos)
      << outside;
  EXPECT_EQ(run(2, 4).code(), base::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::exec
