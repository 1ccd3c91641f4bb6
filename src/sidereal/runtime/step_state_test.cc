// The tensors of a step between those who send and those who ask, in every order.

#include "sidereal/runtime/step_state.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace sidereal::runtime {
namespace {

using ports::Parcel;
using ports::RendezvousKey;
using tensor::Shape;
using tensor::Tensor;

Tensor scalar(float value) { return Tensor::of(Shape{}, std::vector<float>{value}); }
Parcel number(float value) { return {scalar(value)}; }
RendezvousKey key(int64_t edge) { return {.edge = edge, .step = 1}; }

/// Somebody who asks: keeps what it gets.
class Asker final : public Task::Taker {
 public:
  void give(size_t index, Parcel values) override {
    for (const Tensor& value : values) got.emplace_back(index, value.data<const float>()[0]);
  }
  void end(Status status) override { ends.push_back(std::move(status)); }

  std::vector<std::pair<size_t, float>> got;
  std::vector<Status> ends;
};

/// Peers that answer when the test says so.
class LatePeers final : public Peers {
 public:
  std::shared_ptr<Question> ask(const ports::TensorSource& /*source*/, uint64_t /*step*/,
                                const std::vector<Wanted>& /*wanted*/,
                                std::function<void(size_t, Parcel)> on_parcel,
                                std::function<void(Status)> on_end) override {
    on_parcels.push_back(std::move(on_parcel));
    on_ends.push_back(std::move(on_end));
    return nullptr;
  }

  std::vector<std::function<void(size_t, Parcel)>> on_parcels;
  std::vector<std::function<void(Status)>> on_ends;
};

class StepTensors : public ::testing::Test {
 protected:
  LatePeers peers_;
  Status news_;
  const StepState::Post post_ = [this](uint64_t /*step*/, const StepState::News& news) {
    news_ = news(&state_);
  };
  StepState state_{1, &peers_, &post_};
  std::shared_ptr<Asker> asker_ = std::make_shared<Asker>();
};

TEST_F(StepTensors, a_send_before_the_question_is_kept_for_it) {
  ASSERT_TRUE(state_.send(key(1), number(5)).ok());
  state_.answer({key(1)}, asker_);
  ASSERT_EQ(asker_->got.size(), 1);
  EXPECT_EQ(asker_->got[0], std::pair(size_t{0}, 5.0F));
  ASSERT_EQ(asker_->ends.size(), 1);
  EXPECT_TRUE(asker_->ends[0].ok());
}

TEST_F(StepTensors, a_question_before_the_send_is_answered_by_it) {
  state_.answer({key(1), key(2)}, asker_);
  EXPECT_TRUE(asker_->got.empty());
  ASSERT_TRUE(state_.send(key(2), number(6)).ok());
  EXPECT_EQ(asker_->got[0], std::pair(size_t{1}, 6.0F));
  EXPECT_TRUE(asker_->ends.empty());
  ASSERT_TRUE(state_.send(key(1), number(5)).ok());
  ASSERT_EQ(asker_->ends.size(), 1);
  EXPECT_TRUE(asker_->ends[0].ok());
}

TEST_F(StepTensors, a_hundred_sends_and_questions_in_any_order_find_each_other) {
  // Here a key is sent once: what a loop sends has the number of its iteration in the key.
  for (int64_t i = 0; i < 100; i += 2) {
    ASSERT_TRUE(state_.send(key(i), number(static_cast<float>(i))).ok());
  }
  std::vector<std::shared_ptr<Asker>> askers;
  for (int64_t i = 0; i < 100; ++i) {
    askers.push_back(std::make_shared<Asker>());
    state_.answer({key(i)}, askers.back());
  }
  for (int64_t i = 1; i < 100; i += 2) {
    ASSERT_TRUE(state_.send(key(i), number(static_cast<float>(i))).ok());
  }
  for (int64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(askers[i]->got.size(), 1);
    EXPECT_EQ(askers[i]->got[0].second, static_cast<float>(i));
  }
}

TEST_F(StepTensors, tensors_that_were_sent_together_are_given_together) {
  state_.answer({key(1), key(2)}, asker_);
  ASSERT_TRUE(state_.send(key(2), {scalar(1), scalar(2), scalar(3)}).ok());
  const std::vector<std::pair<size_t, float>> three = {{1, 1}, {1, 2}, {1, 3}};
  EXPECT_EQ(asker_->got, three);
  EXPECT_TRUE(asker_->ends.empty());
  ASSERT_TRUE(state_.send(key(1), number(4)).ok());
  ASSERT_EQ(asker_->ends.size(), 1);
}

TEST_F(StepTensors, a_key_is_sent_once_and_asked_for_once) {
  ASSERT_TRUE(state_.send(key(1), number(1)).ok());
  EXPECT_EQ(state_.send(key(1), number(2)).code(), StatusCode::kInternal);
  state_.answer({key(2), key(2)}, asker_);
  ASSERT_EQ(asker_->ends.size(), 1);
  EXPECT_EQ(asker_->ends[0].code(), StatusCode::kInvalidArgument);
}

TEST_F(StepTensors, who_withdraws_a_question_gets_nothing_and_others_are_served) {
  const auto other = std::make_shared<Asker>();
  state_.answer({key(1)}, asker_);
  state_.answer({key(2)}, other);
  state_.withdraw(asker_);
  ASSERT_TRUE(state_.send(key(2), number(2)).ok());
  EXPECT_EQ(other->got.size(), 1);
  // What was not given waits for another question.
  ASSERT_TRUE(state_.send(key(1), number(1)).ok());
  EXPECT_TRUE(asker_->got.empty());
  state_.answer({key(1)}, other);
  EXPECT_EQ(other->got.size(), 2);
}

TEST_F(StepTensors, after_an_abort_every_question_ends_with_its_error) {
  state_.answer({key(1)}, asker_);
  state_.refuse_questions(base::aborted("the reason"));
  state_.answer({key(2)}, asker_);
  ASSERT_EQ(asker_->ends.size(), 2);
  for (const Status& end : asker_->ends) EXPECT_EQ(end, base::aborted("the reason"));
}

TEST_F(StepTensors, a_receive_asks_its_peer_once_and_ends_with_its_error) {
  const ports::TensorSource source = {.device = "/job:w/replica:0/task:1/device:CPU:0"};
  for (int i = 0; i < 2; ++i) {
    const auto value = state_.receive(key(1), source, 1);
    ASSERT_TRUE(value.ok());
    EXPECT_FALSE(value->has_value());
  }
  ASSERT_EQ(peers_.on_parcels.size(), 1);
  peers_.on_parcels[0](0, number(7));
  const auto value = state_.receive(key(1), source, 1);
  ASSERT_TRUE(value.ok() && value->has_value());
  EXPECT_EQ((**value)[0].data<const float>()[0], 7);
  peers_.on_ends[0](base::aborted("restarted"));
  EXPECT_EQ(news_, base::aborted("restarted"));
}

}  // namespace
}  // namespace sidereal::runtime
