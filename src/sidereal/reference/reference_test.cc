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
    b_.variable({"table", DType::kFloat32, {7, 2}, true, {}, {"sgd", {{"learning_rate", 1.0}}}});
    std::vector<float> values(14);
    std::iota(values.begin(), values.end(), 0.0F);
    variables_["table"] = Tensor::of<float>({7, 2}, values);
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

/// A lookup and an update written as expand writes them, for tasks of 2 and 1 lanes.
struct Expanded {
  Output rows;
  std::vector<ir::NodeId> updates;
};

Expanded expand(ir::Builder& b, Output ids, Output grads) {
  const AttrMap dim = {{"dim", int64_t{2}}};
  const ir::NodeId unique = b.add_node("Unique", {ids});
  const ir::NodeId route = b.add_node(
      "Route", {{unique, 0}}, {{"rows", int64_t{7}}, {"lanes", std::vector<int64_t>{2, 1}}});
  std::vector<Output> gather = {ids, {route, 3}, {unique, 1}};
  std::vector<Output> sum = {grads, {route, 3}, {unique, 1}};
  Expanded out;
  const auto shard_attrs = [](int64_t shard) {
    return AttrMap{{"var", std::string("table")}, {"shard", shard}, {"dim", int64_t{2}}};
  };
  for (int32_t s = 0; s < 3; ++s) {
    gather.push_back(b.add("ShardGather", {{route, s}}, shard_attrs(s)));
    sum.push_back({route, s});
  }
  out.rows = b.add("GatherParts", gather, dim);
  const ir::NodeId parts = b.add_node("SumParts", sum, dim);
  for (int32_t s = 0; s < 3; ++s) {
    out.updates.push_back(b.add_node("ShardApply", {{route, s}, {parts, s}}, shard_attrs(s)));
  }
  return out;
}

TEST_F(ReferenceTest, expanded_lookups_and_updates_equal_the_plain_ones) {
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output grads = ops::placeholder(b_, "grads", DType::kFloat32, {-1, 2});
  const Output plain = ops::lookup(b_, "table", ids);
  const ir::NodeId update = ops::apply_sparse(b_, "table", ids, grads);
  const Expanded expanded = expand(b_, ids, grads);
  ASSERT_TRUE(b_.status().ok()) << b_.status();
  const Values feeds = {{"ids", Tensor::of<int64_t>({6}, std::vector<int64_t>{6, 0, 3, -1, 6, 4})},
                        {"grads", Tensor::of<float>({6, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7,
                                                                               8, 9, 10, 11, 12})}};
  const auto both = run({plain, expanded.rows}, {}, feeds);
  ASSERT_EQ(both.size(), 2);
  EXPECT_EQ(list<float>(both[0]), list<float>(both[1]));
  EXPECT_EQ(list<float>(both[0]), (std::vector<float>{12, 13, 0, 1, 6, 7, 0, 0, 12, 13, 8, 9}));

  const Tensor before = variables_["table"].clone();
  run({}, {update}, feeds);
  const std::vector<float> after_plain = list<float>(variables_["table"]);
  variables_["table"] = before;
  run({}, expanded.updates, feeds);
  EXPECT_EQ(list<float>(variables_["table"]), after_plain);
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

/// Gradient of sum((lookup * read)^2) by the rows and by the dense variable, against differences.
TEST_F(ReferenceTest, gradients_of_variables_equal_finite_differences) {
  b_.variable({"w", DType::kFloat32, {2}, false, {}, {}});
  variables_["w"] = Tensor::of<float>({2}, std::vector<float>{0.5F, -1.5F});
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output rows = ops::lookup(b_, "table", ids);
  const Output product = ops::mul(b_, rows, ops::read_variable(b_, "w"));
  // In float64, so that the sum is not rounded before differences are taken.
  const Output loss = ops::reduce_sum(b_, ops::square(b_, ops::cast(b_, product, DType::kFloat64)));
  const auto grads = autodiff::variable_gradients(b_, loss);
  ASSERT_TRUE(grads.ok()) << grads.status();
  ASSERT_EQ(grads->size(), 2);
  const Values feeds = {{"ids", Tensor::of<int64_t>({3}, std::vector<int64_t>{5, 2, 5})}};
  std::map<std::string, std::vector<float>> by_variable;
  for (const autodiff::VariableGradient& g : *grads) {
    std::vector<float> values = list<float>(run({g.grad}, {}, feeds)[0]);
    if (g.sparse) {
      std::vector<float> dense(14, 0.0F);
      const std::vector<int64_t> at = list<int64_t>(run({g.ids}, {}, feeds)[0]);
      for (size_t i = 0; i < values.size(); ++i) dense[at[i / 2] * 2 + i % 2] += values[i];
      values = dense;
    }
    by_variable[g.variable] = values;
  }
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
