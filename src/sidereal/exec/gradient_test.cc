#include <gtest/gtest.h>

#include <cmath>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/ops.h"

// Whole models in float64, differentiated, compiled and run as in a job, against differences of
// their own losses.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::DType;
using ir::Output;
using ir::Shape;
using ir::Tensor;

constexpr double kStep = 1e-6;
constexpr uint64_t kStepId = 11;

/// A model under construction. Parameters are fed, so that float64 goes all the way.
class Maker {
 public:
  Output parameter(const Shape& shape, double low = -1, double high = 1) {
    parameters.push_back(fed(shape, low, high));
    return parameters.back();
  }
  Output fed(const Shape& shape, double low, double high) {
    const std::string name = fmt::format("in{}", feeds.size());
    feeds[name] = dice_.tensor(DType::kFloat64, shape, low, high);
    Shape known = shape;
    known.set_dim(0, batches_of(shape) ? -1 : shape.dim(0));
    return ops::placeholder(b, name, DType::kFloat64, known);
  }
  Output scalar(double value) { return ops::scalar(b, DType::kFloat64, value); }

  static constexpr int64_t kBatch = 5;
  ir::Graph graph;
  Builder b{&graph, &test_registry()};
  reference::Values feeds;
  std::vector<Output> parameters;

 private:
  static bool batches_of(const Shape& shape) { return shape.dim(0) == kBatch; }
  Dice dice_{17};
};

constexpr int64_t kBatch = Maker::kBatch;

Output dense(Maker& m, Output x, int64_t inputs, int64_t units) {
  const Output kernel = m.parameter({inputs, units});
  return ops::bias_add(m.b, ops::mat_mul(m.b, x, kernel), m.parameter({units}));
}

Output log_loss(Maker& m, Output logit) {
  const Output labels = m.fed({kBatch, 1}, 0, 1);
  return ops::reduce_mean(m.b, ops::sigmoid_cross_entropy_with_logits(m.b, logit, labels));
}

/// Guo et al., 2017, with dropout.
Output deep_fm(Maker& m) {
  const Output rows = m.parameter({kBatch, 3, 4});
  const Output linear = m.parameter({kBatch, 3, 1});
  const Output numbers = m.parameter({kBatch, 2});
  const Output wide = ops::reduce_sum(m.b, linear, {1});
  const Output second = ops::fm_interaction(m.b, rows);
  Output x = ops::concat(m.b, {ops::reshape(m.b, rows, {0, 12}), numbers}, -1);
  x = ops::dropout(m.b, ops::relu(m.b, dense(m, x, 14, 8)), 0.3, 5, true);
  x = ops::relu(m.b, dense(m, x, 8, 6));
  return log_loss(m, ops::add_n(m.b, {wide, second, dense(m, x, 6, 1)}));
}

/// Wang et al., 2017: x0 * (x . w) + b + x.
Output deep_and_cross(Maker& m) {
  const Output x0 = m.parameter({kBatch, 6});
  Output x = x0;
  for (int layer = 0; layer < 3; ++layer) {
    const Output score = ops::mat_mul(m.b, x, m.parameter({6, 1}));
    x = ops::add(m.b, ops::bias_add(m.b, ops::mul(m.b, x0, score), m.parameter({6})), x);
  }
  const Output deep = ops::tanh(m.b, dense(m, x0, 6, 4));
  return log_loss(m, dense(m, ops::concat(m.b, {x, deep}, 1), 10, 1));
}

/// Rows brought to mean 0 and variance 1, then scaled.
Output normalised(Maker& m) {
  Builder& b = m.b;
  const Output x = m.parameter({kBatch, 7});
  const Output centred = ops::sub(b, x, ops::reduce_mean(b, x, {-1}, true));
  const Output variance = ops::reduce_mean(b, ops::square(b, centred), {-1}, true);
  const Output unit = ops::div(b, centred, ops::sqrt(b, ops::add(b, variance, m.scalar(1e-3))));
  const Output scaled = ops::bias_add(b, ops::mul(b, unit, m.parameter({7})), m.parameter({7}));
  return log_loss(m, dense(m, ops::softplus(b, scaled), 7, 1));
}

/// Weights between rows of each field pair, made by exp over its sum.
Output attention(Maker& m) {
  Builder& b = m.b;
  const Output x = m.parameter({kBatch, 4, 3});
  const Output scores = ops::reduce_sum(b, ops::mul(b, x, m.parameter({3})), {2}, true);
  const Output powers = ops::exp(b, scores);
  const Output weights = ops::div(b, powers, ops::reduce_sum(b, powers, {1}, true));
  const Output pooled = ops::reduce_sum(b, ops::mul(b, x, weights), {1});
  return log_loss(m, dense(m, pooled, 3, 1));
}

/// Pieces cut out, padded and put together, and every kink.
Output pieces(Maker& m) {
  Builder& b = m.b;
  const Output x = m.parameter({kBatch, 6});
  const Output left = ops::slice_axis(b, x, 1, 0, 2);
  const Output right = ops::slice_axis(b, x, -1, 2, 4);
  const Output padded = ops::pad_axis(b, ops::abs(b, left), 1, 1, 1);
  const Output most = ops::maximum(b, padded, right);
  const Output least = ops::minimum(b, most, m.parameter({4}, 0.2, 1));
  const Output logs = ops::log1p(b, ops::square(b, least));
  const Output more = ops::log(b, ops::add(b, ops::sigmoid(b, right), m.scalar(0.5)));
  const Output stopped = ops::mul(b, logs, ops::stop_gradient(b, m.fed({kBatch, 4}, -1, 1)));
  return log_loss(m, dense(m, ops::add(b, stopped, ops::neg(b, more)), 4, 1));
}

/// The compiled loss and gradients, to be run at any point.
class Runner {
 public:
  Runner(Maker& m, const std::vector<Output>& fetches) {
    auto step = compile_for_test(m.graph, fetches);
    EXPECT_TRUE(step.ok()) << step.status();
    program_ = *std::move(step);
    auto bound = BoundProgram::bind(program_, all_kernels(), {});
    EXPECT_TRUE(bound.ok()) << bound.status();
    bound_ = *std::move(bound);
    step_ = std::make_unique<Step>(bound_.get(), &pool_, nullptr);
  }
  std::vector<Tensor> operator()(const reference::Values& feeds) {
    auto out = run_step(step_.get(), program_, feeds, kStepId);
    EXPECT_TRUE(out.ok()) << out.status();
    return *std::move(out);
  }

 private:
  program::Program program_;
  BufferPool pool_{1 << 20};
  std::unique_ptr<BoundProgram> bound_;
  std::unique_ptr<Step> step_;
};

double loss_at(Runner& run, reference::Values feeds, const std::string& name, int64_t element,
               double by) {
  feeds[name] = feeds[name].clone();
  feeds[name].data<double>()[element] += by;
  return run(feeds)[0].data<const double>()[0];
}

void check_model(Output (*build)(Maker&)) {
  Maker m;
  const Output loss = build(m);
  const auto grads = autodiff::gradients(m.b, loss, m.parameters);
  ASSERT_TRUE(grads.ok()) << grads.status();
  ASSERT_TRUE(m.b.status().ok()) << m.b.status();
  std::vector<Output> fetches = {loss};
  fetches.insert(fetches.end(), grads->begin(), grads->end());
  Runner run(m, fetches);
  const std::vector<Tensor> at_point = run(m.feeds);
  int checked = 0;
  for (size_t p = 0; p < m.parameters.size(); ++p) {
    const std::string& name = m.graph.node(m.parameters[p].node).name;
    ASSERT_EQ(at_point[p + 1].shape(), m.feeds.at(name).shape());
    const auto grad = at_point[p + 1].data<const double>();
    for (int64_t i = 0; i < static_cast<int64_t>(grad.size()); ++i) {
      const double up = loss_at(run, m.feeds, name, i, kStep);
      const double down = loss_at(run, m.feeds, name, i, -kStep);
      const double difference = (up - down) / (2 * kStep);
      ASSERT_NEAR(grad[i], difference, 1e-7 * (1 + std::abs(difference)))
          << "parameter " << name << " element " << i;
      ++checked;
    }
  }
  EXPECT_GT(checked, 30);
}

TEST(Gradient, of_a_deep_fm_equals_differences) { check_model(deep_fm); }
TEST(Gradient, of_a_deep_and_cross_network_equals_differences) { check_model(deep_and_cross); }
TEST(Gradient, of_normalised_rows_equals_differences) { check_model(normalised); }
TEST(Gradient, of_attention_over_fields_equals_differences) { check_model(attention); }
TEST(Gradient, through_pieces_and_kinks_equals_differences) { check_model(pieces); }

}  // namespace
}  // namespace sidereal::exec
