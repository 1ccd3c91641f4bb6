// The tensors of a step between those who send and those who ask, in every order.

#include "sidereal/task/step_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace sidereal::task {
namespace {

using ports::RendezvousKey;
using ports::TensorGroup;
using tensor::Shape;
using tensor::Tensor;

Tensor scalar(float value) { return Tensor::of(Shape{}, std::vector<float>{value}); }
TensorGroup number(float value) { return {scalar(value)}; }
RendezvousKey key(int64_t edge) { return {.edge = edge, .step = 1}; }

/// Somebody who asks: keeps what it gets.
class Requester final : public Task::Receiver {
 public:
  void give(size_t index, std::span<const Tensor> values) override {
    for (const Tensor& value : values) got.emplace_back(index, value.data<const float>()[0]);
  }
  void end(Status status) override { ends.push_back(std::move(status)); }

  std::vector<std::pair<size_t, float>> got;
  std::vector<Status> ends;
};

/// Peers that answer when the test says so.
class LatePeers final : public Peers {
 public:
  struct Asked final : public ReceiveRequest {
    void cancel() override { was_cancelled = true; }
    std::vector<Wanted> wanted;
    bool was_cancelled = false;
  };
  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& /*source*/, uint64_t /*step*/,
                                   std::span<const Wanted> wanted,
                                   Requester* /*requester*/) override {
    asked.push_back(base::RefPtr<Asked>::make());
    asked.back()->wanted.assign(wanted.begin(), wanted.end());
    return asked.back();
  }

  std::vector<base::RefPtr<Asked>> asked;
};

class StepTensors : public ::testing::Test {
 protected:
  void answer(const std::vector<RendezvousKey>& keys, const base::RefPtr<Requester>& requester) {
    state_.answer(keys, requester);
  }

  LatePeers peers_;
  StepState state_{1, &peers_, {}};
  base::RefPtr<Requester> requester_ = base::RefPtr<Requester>::make();
};

TEST_F(StepTensors, a_send_before_the_question_is_kept_for_it) {
  ASSERT_TRUE(state_.send(key(1), number(5)).ok());
  answer({key(1)}, requester_);
  ASSERT_EQ(requester_->got.size(), 1);
  EXPECT_EQ(requester_->got[0], std::pair(size_t{0}, 5.0F));
  ASSERT_EQ(requester_->ends.size(), 1);
  EXPECT_TRUE(requester_->ends[0].ok());
}

TEST_F(StepTensors, a_question_before_the_send_is_answered_by_it) {
  answer({key(1), key(2)}, requester_);
  EXPECT_TRUE(requester_->got.empty());
  ASSERT_TRUE(state_.send(key(2), number(6)).ok());
  EXPECT_EQ(requester_->got[0], std::pair(size_t{1}, 6.0F));
  EXPECT_TRUE(requester_->ends.empty());
  ASSERT_TRUE(state_.send(key(1), number(5)).ok());
  ASSERT_EQ(requester_->ends.size(), 1);
  EXPECT_TRUE(requester_->ends[0].ok());
}

TEST_F(StepTensors, a_hundred_sends_and_receive_requests_in_any_order_find_each_other) {
  // Here a key is sent once: what a loop sends has the number of its iteration in the key.
  for (int64_t i = 0; i < 100; i += 2) {
    ASSERT_TRUE(state_.send(key(i), number(static_cast<float>(i))).ok());
  }
  std::vector<base::RefPtr<Requester>> requesters;
  for (int64_t i = 0; i < 100; ++i) {
    requesters.push_back(base::RefPtr<Requester>::make());
    answer({key(i)}, requesters.back());
  }
  for (int64_t i = 1; i < 100; i += 2) {
    ASSERT_TRUE(state_.send(key(i), number(static_cast<float>(i))).ok());
  }
  for (int64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(requesters[i]->got.size(), 1);
    EXPECT_EQ(requesters[i]->got[0].second, static_cast<float>(i));
  }
}

TEST_F(StepTensors, tensors_that_were_sent_together_are_given_together) {
  answer({key(1), key(2)}, requester_);
  ASSERT_TRUE(state_.send(key(2), TensorGroup{scalar(1), scalar(2), scalar(3)}).ok());
  const std::vector<std::pair<size_t, float>> three = {{1, 1}, {1, 2}, {1, 3}};
  EXPECT_EQ(requester_->got, three);
  EXPECT_TRUE(requester_->ends.empty());
  ASSERT_TRUE(state_.send(key(1), number(4)).ok());
  ASSERT_EQ(requester_->ends.size(), 1);
}

TEST_F(StepTensors, a_key_is_sent_once_and_asked_for_once) {
  ASSERT_TRUE(state_.send(key(1), number(1)).ok());
  EXPECT_EQ(state_.send(key(1), number(2)).code(), StatusCode::kInternal);
  answer({key(2), key(2)}, requester_);
  ASSERT_EQ(requester_->ends.size(), 1);
  EXPECT_EQ(requester_->ends[0].code(), StatusCode::kInvalidArgument);
}

TEST_F(StepTensors, who_withdraws_a_receive_request_gets_nothing_and_others_are_served) {
  const auto other = base::RefPtr<Requester>::make();
  answer({key(1)}, requester_);
  answer({key(2)}, other);
  state_.withdraw(requester_);
  ASSERT_TRUE(state_.send(key(2), number(2)).ok());
  EXPECT_EQ(other->got.size(), 1);
  // What was not given waits for another receive request.
  ASSERT_TRUE(state_.send(key(1), number(1)).ok());
  EXPECT_TRUE(requester_->got.empty());
  answer({key(1)}, other);
  EXPECT_EQ(other->got.size(), 2);
}

TEST_F(StepTensors, after_an_abort_every_receive_request_ends_with_its_error) {
  answer({key(1)}, requester_);
  state_.refuse_receive_requests(base::aborted("the reason"));
  answer({key(2)}, requester_);
  ASSERT_EQ(requester_->ends.size(), 2);
  for (const Status& end : requester_->ends) EXPECT_EQ(end, base::aborted("the reason"));
}

TEST_F(StepTensors, a_receive_asks_its_peer_once_and_ends_with_its_error) {
  const ports::TensorSource source = {.device = "/job:w/replica:0/task:1/device:CPU:0"};
  for (int i = 0; i < 2; ++i) {
    const auto value = state_.receive(key(1), source, 1);
    ASSERT_TRUE(value.ok());
    EXPECT_TRUE(value->empty());
  }
  ASSERT_EQ(peers_.asked.size(), 1);
  ASSERT_EQ(peers_.asked[0]->wanted.size(), 1);
  EXPECT_EQ(peers_.asked[0]->wanted[0].key, key(1));
  TensorGroup seven = number(7);
  state_.arrived(key(1), seven);
  const auto value = state_.receive(key(1), source, 1);
  ASSERT_TRUE(value.ok());
  ASSERT_EQ(value->size(), 1);
  EXPECT_EQ((*value)[0].data<const float>()[0], 7);
  EXPECT_TRUE(state_.failure().ok());
  state_.ended(peers_.asked[0].get(), base::aborted("restarted"));
  EXPECT_EQ(state_.failure(), base::aborted("restarted"));
  state_.clear();
  EXPECT_FALSE(peers_.asked[0]->was_cancelled);
}

TEST_F(StepTensors, receive_requests_that_are_open_are_cancelled_with_the_step) {
  const ports::TensorSource source = {.device = "/job:w/replica:0/task:1/device:CPU:0"};
  for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE(state_.receive(key(i), source, 1).ok());
  ASSERT_EQ(peers_.asked.size(), 3);
  state_.ended(peers_.asked[1].get(), {});
  state_.clear();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(peers_.asked[i]->was_cancelled, i != 1);
  // A tensor group that comes all the same is another step's, or nobody's.
  TensorGroup late = number(7);
  state_.arrived(key(0), late);
  const auto value = state_.receive(key(0), source, 1);
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value->empty());
}

}  // namespace
}  // namespace sidereal::task
