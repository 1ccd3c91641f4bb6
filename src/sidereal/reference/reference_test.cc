#include "sidereal/reference/reference.h"

#include <gtest/gtest.h>

#include <numeric>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/ops/ops.h"

namespace sidereal::reference {
namespace {

using ir::AttrMap;
using ir::DType;
using ir::Output;
using ir::Tensor;

class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() {
    ops::register_all(&registry_);
    std::vector<float> values(14);
    std::iota(values.begin(), values.end(), 0.0F);
    variables_["table"] = Tensor::of<float>({7, 2}, values);
  }

  /// The handle of a float32 variable.
  Output handle(const std::string& name, const ir::Shape& shape) {
    return b_.add("Variable", {},
                  {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", shape}});
  }
  Output read(Output handle, const ir::Shape& shape) {
    return b_.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", shape}});
  }
  ir::NodeId update_rows(Output handle, Output rows, Output grads) {
    const Output one = ops::scalar(b_, DType::kFloat64, 1);
    return b_.add_node("VariableUpdateRows", {handle, rows, grads, one, one},
                       {{"kind", std::string("sgd")}});
  }

  std::vector<Tensor> run(const std::vector<Output>& fetches,
                          const std::vector<ir::NodeId>& targets, Values feeds) {
    const auto result = evaluate(graph_, {.feeds = std::move(feeds),
                                          .fetches = fetches,
                                          .targets = targets,
                                          .variables = &variables_});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : std::vector<Tensor>{};
  }
  template <class T>
  static std::vector<T> list(const Tensor& tensor) {
    const auto data = tensor.data<T>();
    return {data.begin(), data.end()};
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
  Values variables_;
};

TEST_F(ReferenceTest, expanded_lookups_and_updates_equal_the_plain_ones) {
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output grads = ops::placeholder(b_, "grads", DType::kFloat32, {-1, 2});
  const Output table = handle("table", {7, 2});
  const Output plain = b_.add("Gather", {read(table, {7, 2}), ids});
  const ir::NodeId update = update_rows(table, ids, grads);
  // The same table in parts, on tasks that have 2 and 1 of them.
  const AttrMap dim = {{"dim", int64_t{2}}};
  const ir::NodeId unique = b_.add_node("Unique", {ids});
  const ir::NodeId route = b_.add_node(
      "Route", {{unique, 0}}, {{"rows", int64_t{7}}, {"lanes", std::vector<int64_t>{2, 1}}});
  std::vector<Output> gathered = {ids, {route, 3}, {unique, 1}};
  std::vector<Output> summed = {grads, {route, 3}, {unique, 1}};
  std::vector<Output> parts;
  const std::vector<std::vector<int64_t>> rows_of = {{0, 2}, {1, 3}, {4, 5, 6}};
  const auto whole = list<float>(variables_["table"]);
  for (int32_t p = 0; p < 3; ++p) {
    const std::string name = fmt::format("table/part_{}", p);
    std::vector<float> values;
    for (const int64_t row : rows_of[p]) {
      values.insert(values.end(), {whole[row * 2], whole[row * 2 + 1]});
    }
    const ir::Shape shape{static_cast<int64_t>(rows_of[p].size()), 2};
    variables_[name] = Tensor::of<float>(shape, values);
    parts.push_back(handle(name, shape));
    gathered.push_back(b_.add("Gather", {read(parts.back(), shape), {route, p}}));
    summed.push_back({route, p});
  }
  const Output rows = b_.add("GatherParts", gathered, dim);
  const ir::NodeId sums = b_.add_node("SumParts", summed, dim);
  std::vector<ir::NodeId> updates;
  for (int32_t p = 0; p < 3; ++p) {
    updates.push_back(update_rows(parts[p], {route, p}, {sums, p}));
  }
  ASSERT_TRUE(b_.status().ok()) << b_.status();
  const Values feeds = {{"ids", Tensor::of<int64_t>({6}, std::vector<int64_t>{6, 0, 3, 1, 6, 4})},
                        {"grads", Tensor::of<float>({6, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7,
                                                                               8, 9, 10, 11, 12})}};
  const auto both = run({plain, rows}, {}, feeds);
  ASSERT_EQ(both.size(), 2);
  EXPECT_EQ(list<float>(both[0]), list<float>(both[1]));
  EXPECT_EQ(list<float>(both[0]), (std::vector<float>{12, 13, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9}));

  run({}, {update}, feeds);
  run({}, updates, feeds);
  const std::vector<float> after = list<float>(variables_["table"]);
  for (int32_t p = 0; p < 3; ++p) {
    const std::vector<float> part = list<float>(variables_[fmt::format("table/part_{}", p)]);
    for (size_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part[i], after[rows_of[p][i / 2] * 2 + i % 2]) << p << " " << i;
    }
  }
}

TEST_F(ReferenceTest, routes_as_the_div_layout_says) {
  const Output unique = ops::placeholder(b_, "unique", DType::kInt64, {-1});
  const ir::NodeId route =
      b_.add_node("Route", {unique}, {{"rows", int64_t{7}}, {"lanes", std::vector<int64_t>{2, 1}}});
  const auto out = run({{route, 0}, {route, 1}, {route, 2}, {route, 3}}, {},
                       {{"unique", Tensor::of<int64_t>({4}, std::vector<int64_t>{6, 0, 3, 2})}});
  ASSERT_EQ(out.size(), 4);
  // Task 0 has rows 0..3 (lane 0: 0, 2; lane 1: 1, 3), task 1 rows 4..6.
  EXPECT_EQ(list<int64_t>(out[0]), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(list<int64_t>(out[1]), (std::vector<int64_t>{1}));
  EXPECT_EQ(list<int64_t>(out[2]), (std::vector<int64_t>{2}));
  const int64_t shard = int64_t{1} << 40;
  EXPECT_EQ(list<int64_t>(out[3]), (std::vector<int64_t>{2 * shard, 0, shard, 1}));
}

TEST_F(ReferenceTest, names_the_node_that_is_not_fed) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const auto result = evaluate(graph_, {.feeds = {}, .fetches = {x}, .targets = {}});
  EXPECT_EQ(base::message_of(result.status()), "Placeholder 'x': 'x' is not fed");
}

TEST_F(ReferenceTest, dropout_keeps_about_the_share_it_should_and_scales_it) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat64, {-1});
  const Output y = ops::dropout(b_, x, 0.25, 9, true);
  const std::vector<double> ones(4000, 1.0);
  const auto out = run({y}, {}, {{"x", Tensor::of<double>({4000}, ones)}});
  ASSERT_EQ(out.size(), 1);
  const std::vector<double> kept = list<double>(out[0]);
  EXPECT_NEAR(std::accumulate(kept.begin(), kept.end(), 0.0) / 4000, 1.0, 0.05);
}

/// Gradient of sum((rows * w)^2) by the rows and by w, both of variables, against differences.
TEST_F(ReferenceTest, gradients_of_variables_equal_finite_differences) {
  variables_["w"] = Tensor::of<float>({2}, std::vector<float>{0.5F, -1.5F});
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output rows = b_.add("Gather", {read(handle("table", {7, 2}), {7, 2}), ids});
  const Output w = read(handle("w", {2}), {2});
  const Output product = ops::mul(b_, rows, w);
  // In float64, so that the sum is not rounded before differences are taken.
  const Output loss = ops::reduce_sum(b_, ops::square(b_, ops::cast(b_, product, DType::kFloat64)));
  const auto grads = autodiff::gradients(b_, loss, {rows, w});
  ASSERT_TRUE(grads.ok()) << grads.status();
  ASSERT_EQ(grads->size(), 2);
  const Values feeds = {{"ids", Tensor::of<int64_t>({3}, std::vector<int64_t>{5, 2, 5})}};
  const std::vector<float> of_rows = list<float>(run({(*grads)[0]}, {}, feeds)[0]);
  std::vector<float> of_table(14, 0.0F);
  const auto at = feeds.at("ids").data<const int64_t>();
  for (size_t i = 0; i < of_rows.size(); ++i) of_table[at[i / 2] * 2 + i % 2] += of_rows[i];
  const std::map<std::string, std::vector<float>> by_variable = {
      {"table", of_table}, {"w", list<float>(run({(*grads)[1]}, {}, feeds)[0])}};
  const float step = 0x1p-9F;
  for (const auto& [name, actual] : by_variable) {
    for (size_t i = 0; i < actual.size(); ++i) {
      float& element = variables_[name].data<float>()[i];
      const float before = element;
      element = before + step;
      const double up = list<double>(run({loss}, {}, feeds)[0])[0];
      element = before - step;
      const double down = list<double>(run({loss}, {}, feeds)[0])[0];
      element = before;
      EXPECT_NEAR(actual[i], (up - down) / (2.0 * step), 1e-3) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace sidereal::reference
