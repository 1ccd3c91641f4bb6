#include "sidereal/resources/accumulator.h"

#include <gtest/gtest.h>

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

std::shared_ptr<Accumulator> accumulator(AccumulatorDef def) {
  def.name = "a";
  if (!def.shape.has_rank() || def.shape.rank() == 0) def.shape = Shape{2};
  return *Accumulator::make(std::move(def));
}

Tensor vec(const std::vector<float>& values) {
  return Tensor::of(Shape{static_cast<int64_t>(values.size())}, values);
}

std::vector<float> floats(const Tensor& t) {
  const auto data = t.data<const float>();
  return {data.begin(), data.end()};
}

TEST(Accumulator, gives_the_mean_once_there_are_enough_and_goes_to_the_next_step) {
  const auto a = accumulator({});
  const auto waiting = a->take(2);
  ASSERT_TRUE(a->apply(vec({1, 2}), 0).ok());
  EXPECT_FALSE((*waiting)->poll());
  EXPECT_EQ(a->num_accumulated(), 1);
  ASSERT_TRUE(a->apply(vec({3, 6}), 0).ok());
  ASSERT_TRUE((*waiting)->poll());
  EXPECT_EQ(floats((*waiting)->result()[0]), (std::vector<float>{2, 4}));
  EXPECT_EQ(a->num_accumulated(), 0);
  EXPECT_EQ(a->global_step(), 1);
}

TEST(Accumulator, takes_all_there_are_even_when_fewer_were_asked_for) {
  const auto a = accumulator({.mean = false});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a->apply(vec({1, 2}), 0).ok());
  const auto taken = a->take(1);
  EXPECT_EQ(floats((*taken)->result()[0]), (std::vector<float>{3, 6}));
}

TEST(Accumulator, drops_gradients_of_steps_that_are_over) {
  const auto a = accumulator({});
  a->set_global_step(3);
  ASSERT_TRUE(a->apply(vec({1, 1}), 2).ok());
  EXPECT_EQ(a->num_accumulated(), 0);
  ASSERT_TRUE(a->apply(vec({1, 1}), 3).ok());
  EXPECT_EQ(a->num_accumulated(), 1);
  EXPECT_EQ(a->describe(), "accumulator 'a' (1 gradients of step 3)");
}

TEST(Accumulator, of_rows_averages_each_over_those_who_had_it) {
  const auto a = accumulator({.shape = Shape{4, 1}, .sparse = true});
  const auto ids = [](const std::vector<int64_t>& v) {
    return Tensor::of(Shape{static_cast<int64_t>(v.size())}, v);
  };
  const auto rows = [](const std::vector<float>& v) {
    return Tensor::of(Shape{static_cast<int64_t>(v.size()), 1}, v);
  };
  ASSERT_TRUE(a->apply_rows(ids({2, 0, 2}), rows({1, 5, 3}), 0).ok());
  ASSERT_TRUE(a->apply_rows(ids({3, 2}), rows({7, 2}), 0).ok());
  const auto taken = a->take(2);
  ASSERT_TRUE((*taken)->poll());
  const auto indices = (*taken)->result()[0].data<const int64_t>();
  EXPECT_EQ((std::vector<int64_t>(indices.begin(), indices.end())),
            (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(floats((*taken)->result()[1]), (std::vector<float>{5, 3, 7}));
  EXPECT_FALSE(a->apply_rows(ids({4}), rows({1}), 1).ok());
  EXPECT_FALSE(a->apply_rows(ids({-1}), rows({1}), 1).ok());
  EXPECT_FALSE(a->apply_rows(ids({1, 2}), rows({1}), 1).ok());
}

TEST(Accumulator, refuses_what_does_not_fit) {
  const auto a = accumulator({});
  EXPECT_EQ(a->apply(vec({1, 2, 3}), 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(a->take(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Accumulator::make({.name = "i", .dtype = DType::kInt32}).ok());
}

TEST(Accumulator, ends_what_waits_when_it_goes) {
  const auto a = accumulator({});
  const auto waiting = a->take(1);
  a->cancel();
  ASSERT_TRUE((*waiting)->poll());
  EXPECT_EQ((*waiting)->status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace sidereal::resources
