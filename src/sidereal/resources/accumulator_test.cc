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
  const auto a = accumulator({.reduction = Reduction::kSum});
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

TEST(Accumulator, of_rows_averages_over_all_gradients_when_told_so) {
  const auto a =
      accumulator({.shape = Shape{4, 1}, .reduction = Reduction::kMeanOfAll, .sparse = true});
  const auto ids = [](const std::vector<int64_t>& v) {
    return Tensor::of(Shape{static_cast<int64_t>(v.size())}, v);
  };
  ASSERT_TRUE(a->apply_rows(ids({0, 2}), Tensor::of(Shape{2, 1}, std::vector{4.F, 6.F}), 0).ok());
  ASSERT_TRUE(a->apply_rows(ids({2}), Tensor::of(Shape{1, 1}, std::vector{8.F}), 0).ok());
  // One that has no rows counts.
  ASSERT_TRUE(a->apply_rows(ids({}), Tensor::zeros(DType::kFloat32, Shape{0, 1}), 0).ok());
  ASSERT_TRUE(a->apply_rows(ids({3}), Tensor::of(Shape{1, 1}, std::vector{2.F}), 0).ok());
  const auto taken = a->take(4);
  ASSERT_TRUE((*taken)->poll());
  EXPECT_EQ(floats((*taken)->result()[1]), (std::vector<float>{1, 3.5F, 0.5F}));
}

TEST(Accumulator, does_not_wait_for_contributors_that_have_left) {
  const auto a = accumulator({});
  ASSERT_TRUE(a->restart(5, 3).ok());
  const auto waiting = a->take(3);
  ASSERT_TRUE(a->apply(vec({1, 2}), 5).ok());
  ASSERT_TRUE(a->apply(vec({3, 2}), 5).ok());
  EXPECT_FALSE((*waiting)->poll());
  ASSERT_TRUE(a->leave(1).ok());
  ASSERT_TRUE((*waiting)->poll());
  EXPECT_EQ(floats((*waiting)->result()[0]), (std::vector<float>{2, 2}));
  // Where all have left, what is there is given out, and then nothing is waited for.
  const auto last = a->take(3);
  const auto never = a->take(3);
  ASSERT_TRUE(a->apply(vec({8, 8}), 6).ok());
  ASSERT_TRUE(a->leave(2).ok());
  ASSERT_TRUE((*last)->poll() && (*never)->poll());
  EXPECT_EQ(floats((*last)->result()[0]), (std::vector<float>{8, 8}));
  EXPECT_EQ((*never)->status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ((*a->take(1))->status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(a->leave(1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(a->restart(0, 0).code(), StatusCode::kInvalidArgument);
}

TEST(Accumulator, begins_anew_without_what_was_there) {
  const auto a = accumulator({});
  const auto waiting = a->take(2);
  const auto behind = a->await_step(3);
  ASSERT_TRUE(a->apply(vec({1, 2}), 0).ok());
  ASSERT_TRUE(a->restart(7, 1).ok());
  ASSERT_TRUE((*waiting)->poll() && (*behind)->poll());
  EXPECT_EQ((*waiting)->status().code(), StatusCode::kAborted);
  EXPECT_EQ((*behind)->status().code(), StatusCode::kAborted);
  EXPECT_EQ(a->num_accumulated(), 0);
  // Of a step before.
  ASSERT_TRUE(a->apply(vec({1, 2}), 6).ok());
  EXPECT_EQ(a->num_accumulated(), 0);
}

TEST(Accumulator, tells_when_a_step_is_over) {
  const auto a = accumulator({});
  const auto first = a->await_step(0);
  const auto second = a->await_step(1);
  EXPECT_FALSE((*first)->poll());
  const auto taken = a->take(1);
  ASSERT_TRUE(a->apply(vec({1, 2}), 0).ok());
  ASSERT_TRUE((*first)->poll());
  EXPECT_EQ((*first)->result()[0].data<const int64_t>()[0], 1);
  EXPECT_FALSE((*second)->poll());
  a->set_global_step(9);
  ASSERT_TRUE((*second)->poll());
  EXPECT_EQ((*second)->result()[0].data<const int64_t>()[0], 9);
}

TEST(Accumulator, gives_what_there_is_at_once) {
  const auto a = accumulator({});
  EXPECT_TRUE(a->apply(vec({2, 4}), 0).ok());
  EXPECT_TRUE(a->apply(vec({4, 8}), 0).ok());
  const auto taken = a->take_now();
  ASSERT_TRUE(taken.ok() && taken->size() == 1) << taken.status();
  EXPECT_EQ(floats((*taken)[0]), (std::vector<float>{3, 6}));
  EXPECT_EQ(a->global_step(), 1);
  const auto nothing = a->take_now();
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_EQ(floats((*nothing)[0]), (std::vector<float>{0, 0}));
  EXPECT_EQ(a->global_step(), 2);
  const auto rows =
      accumulator({.shape = Shape{-1, 2}, .reduction = Reduction::kMeanOfAll, .sparse = true});
  const auto none = rows->take_now();
  ASSERT_TRUE(none.ok() && none->size() == 2) << none.status();
  EXPECT_EQ((*none)[1].shape(), (Shape{0, 2}));
  EXPECT_EQ(accumulator({.shape = Shape{-1}})->take_now().status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(Accumulator, takes_one_gradient_of_a_closure_however_often_it_is_run) {
  const auto a = accumulator({.shape = Shape{1}});
  const ClosureKey first = {.client = 7, .closure = closure_number(0, 1)};
  const ClosureKey second = {.client = 7, .closure = closure_number(1, 1)};
  EXPECT_TRUE(a->apply(vec({2}), 0, first).ok());
  EXPECT_TRUE(a->apply(vec({8}), 0, first).ok());
  EXPECT_TRUE(a->apply(vec({4}), 0, second).ok());
  EXPECT_EQ(a->num_accumulated(), 2);
  // Forgotten, and so due again.
  EXPECT_TRUE(a->restart(3, 2).ok());
  EXPECT_TRUE(a->apply(vec({6}), 3, first).ok());
  EXPECT_EQ(floats(a->take_now()->front()), std::vector<float>{6});
  // Taken, and so not due in a later step.
  EXPECT_TRUE(a->apply(vec({2}), 4, first).ok());
  EXPECT_EQ(a->num_accumulated(), 0);
  // A later closure has the place.
  const ClosureKey third = {.client = 7, .closure = closure_number(0, 2)};
  EXPECT_TRUE(a->apply(vec({2}), 4, third).ok());
  EXPECT_EQ(a->num_accumulated(), 1);
  // And another client numbers its own.
  const ClosureKey other = {.client = 8, .closure = first.closure};
  EXPECT_TRUE(a->apply(vec({2}), 4, other).ok());
  EXPECT_EQ(a->num_accumulated(), 2);
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
