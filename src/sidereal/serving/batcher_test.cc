#include "sidereal/serving/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace sidereal::serving {
namespace {

using tensor::Shape;
using ::testing::ElementsAre;

/// Gives 10 x, notes the rows of each call, refuses negative numbers, and waits at a closed gate.
class Tens final : public Model {
 public:
  Result<Columns> call(const Columns& columns) override {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    const auto given = columns[0].data<float>();
    rows.push_back(columns[0].shape().dim(0));
    std::vector<float> out;
    for (const float x : given) {
      if (x < 0) return base::invalid_argument("x is negative");
      out.push_back(10 * x);
    }
    return Columns{Tensor::of<float>(columns[0].shape(), out)};
  }
  void set_open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  void wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return begun_ >= count; }));
  }
  std::vector<int64_t> rows;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  int begun_ = 0;
};

class BatcherTest : public ::testing::Test {
 protected:
  void make(const BatchOptions& options = {}) {
    auto model = std::make_unique<Tens>();
    model_ = model.get();
    batcher_ =
        std::make_unique<Batcher>("f", std::move(model), options, std::make_shared<BatchFigures>());
  }

  Result<std::shared_ptr<Waiting>> ask(const std::vector<float>& x, int place, bool by_rows = true,
                                       std::chrono::seconds limit = std::chrono::seconds(100)) {
    const auto count = static_cast<int64_t>(x.size());
    return batcher_->submit({Tensor::of<float>(Shape{count}, x)}, by_rows ? count : -1,
                            Clock::now() + limit, [this, place](const Result<Columns>& outputs) {
                              const std::lock_guard lock(mutex_);
                              ASSERT_FALSE(answers_.contains(place));
                              if (outputs.ok()) {
                                const auto data = (*outputs)[0].data<float>();
                                answers_[place] = {data.begin(), data.end()};
                              } else {
                                answers_[place] = {};
                                codes_[place] = outputs.status().code();
                              }
                            });
  }

  void finish() {
    batcher_->close();
    ASSERT_TRUE(batcher_->wait_idle(std::chrono::seconds(60)));
  }

  Tens* model_ = nullptr;
  std::unique_ptr<Batcher> batcher_;
  std::mutex mutex_;
  std::map<int, std::vector<float>> answers_;
  std::map<int, StatusCode> codes_;
};

TEST_F(BatcherTest, OneThatSpoilsACallIsRefusedAlone) {
  make();
  for (const float x : {1.0F, -1.0F, 2.0F}) ASSERT_TRUE(ask({x}, static_cast<int>(x)).ok());
  batcher_->flush();
  finish();
  EXPECT_THAT(model_->rows, ElementsAre(3, 1, 1, 1));
  EXPECT_THAT(answers_[1], ElementsAre(10));
  EXPECT_THAT(answers_[2], ElementsAre(20));
  EXPECT_EQ(codes_[-1], StatusCode::kInvalidArgument);
}

TEST_F(BatcherTest, WhatComesDuringACallIsTheNextOne) {
  make();
  model_->set_open(false);
  ASSERT_TRUE(ask({1}, 1).ok());
  batcher_->flush();
  model_->wait_for_calls(1);
  for (int place = 2; place < 6; ++place) {
    ASSERT_TRUE(ask({1}, place).ok());
    batcher_->flush();
  }
  EXPECT_EQ(batcher_->waiting_rows(), 4);
  model_->set_open(true);
  finish();
  EXPECT_THAT(model_->rows, ElementsAre(1, 4));
  EXPECT_EQ(answers_.size(), 5U);
}

TEST_F(BatcherTest, AShortCallRunsWhereItIsAskedFor) {
  make();
  // Until one was made it is not known how long it takes.
  ASSERT_TRUE(ask({1}, 1).ok());
  batcher_->flush();
  ASSERT_TRUE(batcher_->wait_idle(std::chrono::seconds(60)));
  ASSERT_TRUE(ask({1}, 2).ok());
  batcher_->flush();
  ASSERT_TRUE(batcher_->wait_idle(std::chrono::seconds(60)));
  EXPECT_EQ(answers_.size(), 2U);
}

TEST_F(BatcherTest, WhoseTimeIsOverIsToldAndNotComputed) {
  make();
  model_->set_open(false);
  ASSERT_TRUE(ask({1}, 1).ok());
  batcher_->flush();
  model_->wait_for_calls(1);
  ASSERT_TRUE(ask({2}, 2, true, std::chrono::seconds(0)).ok());
  ASSERT_TRUE(ask({3}, 3, true, std::chrono::seconds(0)).ok());
  const auto gone = ask({4}, 4);
  ASSERT_TRUE(gone.ok());
  EXPECT_TRUE((*gone)->cancel());
  EXPECT_FALSE((*gone)->cancel());
  EXPECT_TRUE(batcher_->sweep(Clock::now()));
  EXPECT_EQ(codes_[2], StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(ask({5}, 5, true, std::chrono::seconds(0)).ok());  // Nobody sweeps for this one.
  ASSERT_TRUE(ask({6}, 6).ok());
  batcher_->flush();
  model_->set_open(true);
  finish();
  EXPECT_THAT(model_->rows, ElementsAre(1, 1));
  EXPECT_EQ(codes_[5], StatusCode::kDeadlineExceeded);
  EXPECT_THAT(answers_[6], ElementsAre(60));
  EXPECT_FALSE(answers_.contains(4));
}

TEST_F(BatcherTest, TooMuchIsRefusedAndNothingIsTakenAfterTheEnd) {
  make({.queue_max = 8});
  ASSERT_TRUE(ask(std::vector<float>(20), 0).ok());  // Nothing else waits.
  EXPECT_EQ(ask({1}, 1).status().code(), StatusCode::kResourceExhausted);
  batcher_->flush();
  finish();
  EXPECT_EQ(ask({1}, 2).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(answers_[0].size(), 20U);
}

TEST_F(BatcherTest, WaitsForOthersUntilThereAreEnough) {
  make({.rows_max = 3, .timeout = std::chrono::hours(1)});
  ASSERT_TRUE(ask({1}, 1).ok());
  batcher_->flush();
  EXPECT_FALSE(batcher_->wait_idle(std::chrono::milliseconds(20)));
  ASSERT_TRUE(ask({1, 1}, 2).ok());
  batcher_->flush();
  ASSERT_TRUE(batcher_->wait_idle(std::chrono::seconds(60)));
  EXPECT_THAT(model_->rows, ElementsAre(3));
}

TEST_F(BatcherTest, ManyThreadsGetEachTheirOwnAnswer) {
  make();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const int place = 1000 * t + i;
        ASSERT_TRUE(ask({static_cast<float>(place)}, place).ok());
        batcher_->flush();
      }
    });
  }
  for (std::thread& one : threads) one.join();
  finish();
  ASSERT_EQ(answers_.size(), 800U);
  for (const auto& [place, values] : answers_) {
    EXPECT_THAT(values, ElementsAre(10.0F * static_cast<float>(place)));
  }
}

}  // namespace
}  // namespace sidereal::serving
