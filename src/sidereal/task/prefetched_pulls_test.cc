// Calls that are sent before their steps: who may use them, and when nobody may.

#include "sidereal/task/prefetched_pulls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "sidereal/sys/posix/posix.h"
#include "sidereal/task/step_calls.h"

namespace sidereal::task {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;

class SetClock final : public sys::Clock {
 public:
  int64_t now() override { return now_ns; }
  int64_t now_ns = 1;
};

/// Runs that end when the test says so.
class LatePeers final : public Peers {
 public:
  struct Asked final : public Run {
    void cancel() override { was_cancelled = true; }
    void drop() override { end(base::cancelled("dropped")); }
    void end(const Status& status, std::vector<Tensor> values = {}) {
      if (done != nullptr) std::exchange(done, nullptr)->done({.status = status}, values);
    }
    RunDone* done = nullptr;
    std::string task;
    Call call;
    bool was_cancelled = false;
  };

  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& /*source*/, uint64_t /*step*/,
                                   std::span<const Wanted> /*wanted*/,
                                   Requester* /*requester*/) override {
    return nullptr;
  }
  std::shared_ptr<Run> run(const std::string& task, const Call& call,
                           std::span<const Tensor> /*feeds*/, RunDone* done) override {
    asked.push_back(std::make_shared<Asked>());
    asked.back()->done = done;
    asked.back()->task = task;
    asked.back()->call = call;
    return asked.back();
  }
  [[nodiscard]] bool can_run() const override { return true; }

  std::vector<std::shared_ptr<Asked>> asked;
};

/// Keeps how a call of a step ended.
class Ended final : public ports::CallCompletion {
 public:
  Result<Tensor> allocate(int /*position*/, DType dtype, const Shape& shape) override {
    return Tensor::empty(dtype, shape);
  }
  void done(const Status& status, std::span<Tensor> fetches) override {
    statuses.push_back(status);
    for (const Tensor& value : fetches) values.push_back(value.data<const float>()[0]);
  }
  std::vector<Status> statuses;
  std::vector<float> values;
};

/// Two pulls that may be prefetched, of tasks 0 and 1, and a push.
program::Program program_of_calls() {
  program::Program out;
  for (const int task : {0, 1}) {
    out.slots.push_back({DType::kFloat32, Shape{1}, -1});
    out.calls.push_back({.device = fmt::format("/job:ps/replica:0/task:{}/device:CPU:0", task),
                         .program = uint64_t{7} + static_cast<uint64_t>(task),
                         .feeds = {},
                         .fetches = {task},
                         .ahead = true});
  }
  out.calls.push_back({.device = "/job:ps/replica:0/task:0/device:CPU:0",
                       .program = 9,
                       .feeds = {0},
                       .fetches = {},
                       .async_push = true});
  return out;
}

class PrefetchedPullsOfALane : public ::testing::Test {
 protected:
  static constexpr uint64_t kSession = 5;
  static constexpr uint64_t kTraining = 100;
  static constexpr uint64_t kOther = 101;
  static constexpr int64_t kLimitMs = 200;

  void SetUp() override {
    auto lane = lane::Lane::create({.name = "test", .network = network_.get(), .clock = &clock_});
    ASSERT_TRUE(lane.ok()) << lane.status();
    lane_ = *std::move(lane);
    async_pushes_ =
        std::make_unique<AsyncPushes>(&peers_, [this](uint64_t id) { told_.push_back(id); });
    ahead_ = std::make_unique<PrefetchedPulls>(&peers_, lane_.get(), &pool_,
                                               [this](std::function<void()> fn) {
                                                 if (!is_stopping_)
                                                   posted_.push_back(std::move(fn));
                                                 return !is_stopping_;
                                               });
    calls_ = prefetched_calls(program_);
    ASSERT_NE(calls_, nullptr);
    ASSERT_EQ(calls_->size(), 2U);
    step_ = std::make_unique<StepCalls>(&peers_, lane_.get(), async_pushes_.get(), ahead_.get(),
                                        program_, [] {});
  }
  /// What is under way keeps itself until it has ended; it may be asked again then.
  void TearDown() override {
    for (size_t i = 0; i < peers_.asked.size(); ++i) {
      const std::shared_ptr<LatePeers::Asked> one = peers_.asked[i];
      one->end(base::cancelled("the test has ended"));
      run_posted();
    }
  }

  void begin(uint64_t program = kTraining) {
    ahead_->begin(kSession, program, kLimitMs);
    step_->begin(kSession, 0, nullptr);
  }
  void end(bool well = true) { ahead_->end(kSession, well ? calls_ : nullptr, kLimitMs); }
  /// As many steps as it takes until something is prefetched, each asking for itself.
  void send_ahead() {
    const int64_t before = ahead_->sent();
    for (int i = 0; i < 200 && ahead_->sent() == before; ++i) {
      begin();
      end();
    }
    ASSERT_EQ(ahead_->sent(), before + 2);
    peers_.asked.erase(peers_.asked.begin(), peers_.asked.end() - 2);
  }
  /// Call `number` of the step that has begun.
  std::shared_ptr<Ended> call(int number) {
    ended_.push_back(std::make_shared<Ended>());
    EXPECT_TRUE(step_->start(number, 1, {}, ended_.back().get()).ok());
    return ended_.back();
  }
  void answer(size_t asked, float value) {
    LatePeers::Asked& one = *peers_.asked.at(asked);
    ASSERT_NE(one.done, nullptr);
    auto where = one.done->allocate(0, DType::kFloat32, Shape{1});
    ASSERT_TRUE(where.ok()) << where.status();
    where->data<float>()[0] = value;
    one.end({}, {*std::move(where)});
  }
  void run_posted() {
    while (!posted_.empty()) {
      const auto fn = std::move(posted_.front());
      posted_.pop_front();
      fn();
    }
  }
  void expect_thrown_away(int64_t count) {
    EXPECT_EQ(ahead_->thrown_away(), count);
    for (const auto& one : peers_.asked) EXPECT_EQ(one->done, nullptr);
  }

  SetClock clock_;
  const std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::unique_ptr<lane::Lane> lane_;
  LatePeers peers_;
  exec::BufferPool pool_{size_t{1} << 20};
  std::deque<std::function<void()>> posted_;
  bool is_stopping_ = false;
  std::vector<uint64_t> told_;  // Sessions that had failures.
  std::unique_ptr<AsyncPushes> async_pushes_;
  std::unique_ptr<PrefetchedPulls> ahead_;
  const program::Program program_ = program_of_calls();
  std::shared_ptr<const PrefetchedCalls> calls_;
  std::vector<std::shared_ptr<Ended>> ended_;
  std::unique_ptr<StepCalls> step_;
};

TEST_F(PrefetchedPullsOfALane, a_program_that_runs_again_finds_its_pulls_answered) {
  begin();
  end();
  EXPECT_EQ(ahead_->sent(), 0) << "nobody knows yet that it runs again";
  begin();
  end();
  ASSERT_EQ(ahead_->sent(), 2);
  ASSERT_EQ(peers_.asked.size(), 2U);
  EXPECT_EQ(peers_.asked[1]->task, "/job:ps/replica:0/task:1");
  EXPECT_EQ(peers_.asked[1]->call.program, 8U);
  EXPECT_EQ(peers_.asked[1]->call.session, kSession);
  answer(0, 3);
  answer(1, 4);
  begin();
  EXPECT_THAT(call(0)->values, ElementsAre(3));
  EXPECT_THAT(call(1)->values, ElementsAre(4));
  EXPECT_FALSE(step_->any_open());
  end();
  EXPECT_EQ(ahead_->sent(), 4);
  EXPECT_EQ(ahead_->thrown_away(), 0);
}

TEST_F(PrefetchedPullsOfALane, a_step_waits_for_what_is_under_way) {
  send_ahead();
  begin();
  const auto first = call(0);
  EXPECT_TRUE(step_->any_open());
  EXPECT_EQ(step_->waits_for(), "an answer of /job:ps/replica:0/task:0");
  answer(0, 3);
  EXPECT_THAT(first->values, ElementsAre(3));
  EXPECT_FALSE(step_->any_open());
  EXPECT_EQ(peers_.asked.size(), 2U);
}

TEST_F(PrefetchedPullsOfALane, another_program_makes_them_useless) {
  send_ahead();
  answer(0, 3);
  begin(kOther);
  expect_thrown_away(2);
  end();
  begin();
  const auto asked = call(0);
  EXPECT_TRUE(asked->statuses.empty());
  EXPECT_EQ(peers_.asked.size(), 3U);
  answer(2, 5);
  EXPECT_THAT(asked->values, ElementsAre(5));
}

TEST_F(PrefetchedPullsOfALane, a_step_beside_another_one_uses_none_and_sends_none) {
  send_ahead();
  begin();
  ahead_->begin(kSession, kTraining, kLimitMs);
  expect_thrown_away(2);
  end();
  end();
  EXPECT_EQ(ahead_->sent(), 2);
}

TEST_F(PrefetchedPullsOfALane, what_is_too_old_is_not_used) {
  send_ahead();
  answer(0, 3);
  clock_.now_ns += kLimitMs * sys::kMillisecond + 1;
  begin();
  expect_thrown_away(2);
}

TEST_F(PrefetchedPullsOfALane, what_is_as_old_as_allowed_is_used) {
  send_ahead();
  answer(0, 3);
  clock_.now_ns += kLimitMs * sys::kMillisecond;
  begin();
  EXPECT_THAT(call(0)->values, ElementsAre(3));
}

TEST_F(PrefetchedPullsOfALane, nothing_is_kept_for_steps_that_do_not_come) {
  send_ahead();
  answer(0, 3);
  clock_.now_ns += kLimitMs * sys::kMillisecond;
  lane_->step();
  expect_thrown_away(2);
}

TEST_F(PrefetchedPullsOfALane, a_failure_is_not_that_of_the_step) {
  send_ahead();
  peers_.asked[0]->end(base::unavailable("gone"));
  begin();
  const auto first = call(0);
  ASSERT_EQ(peers_.asked.size(), 3U) << "it asks as if nothing had been sent";
  answer(2, 5);
  EXPECT_THAT(first->values, ElementsAre(5));
  // The other one fails while the step waits for it: it is asked for again, not from within.
  const auto second = call(1);
  peers_.asked[1]->end(base::unavailable("gone"));
  EXPECT_TRUE(second->statuses.empty());
  EXPECT_EQ(peers_.asked.size(), 3U);
  run_posted();
  ASSERT_EQ(peers_.asked.size(), 4U);
  EXPECT_EQ(peers_.asked[3]->task, "/job:ps/replica:0/task:1");
  peers_.asked[3]->end(base::unavailable("gone for good"));
  ASSERT_EQ(second->statuses.size(), 1U);
  EXPECT_EQ(second->statuses[0].code(), StatusCode::kUnavailable);
}

TEST_F(PrefetchedPullsOfALane, a_step_that_ends_ends_those_that_it_waits_for) {
  send_ahead();
  begin();
  const auto first = call(0);
  const auto second = call(1);
  peers_.asked[1]->end(base::unavailable("gone"));
  step_->cancel();
  EXPECT_TRUE(peers_.asked[0]->was_cancelled);
  step_->drop();
  ASSERT_EQ(first->statuses.size(), 1U);
  EXPECT_EQ(first->statuses[0].code(), StatusCode::kCancelled);
  ASSERT_EQ(second->statuses.size(), 1U);
  EXPECT_EQ(second->statuses[0].code(), StatusCode::kCancelled);
  run_posted();
  EXPECT_EQ(peers_.asked.size(), 2U) << "nobody wants it any more";
  EXPECT_FALSE(step_->any_open());
}

TEST_F(PrefetchedPullsOfALane, a_lane_that_stops_asks_nobody_again) {
  send_ahead();
  begin();
  const auto first = call(0);
  is_stopping_ = true;
  peers_.asked[0]->end(base::unavailable("gone"));
  ASSERT_EQ(first->statuses.size(), 1U);
  EXPECT_EQ(first->statuses[0].code(), StatusCode::kCancelled);
}

TEST_F(PrefetchedPullsOfALane, a_step_that_failed_sends_nothing) {
  begin();
  end();
  begin();
  end(false);
  EXPECT_EQ(ahead_->sent(), 0);
}

TEST_F(PrefetchedPullsOfALane, closing_losing_and_resetting_throw_away) {
  send_ahead();
  ahead_->lose(kSession, "/job:ps/replica:0/task:7");
  EXPECT_EQ(ahead_->thrown_away(), 0);
  ahead_->lose(kSession, "/job:ps/replica:0/task:1");
  expect_thrown_away(2);
  send_ahead();
  ahead_->throw_all_away();
  expect_thrown_away(4);
  send_ahead();
  ahead_->forget(kSession);
  expect_thrown_away(6);
  end();
  EXPECT_EQ(ahead_->sent(), 6);
}

TEST_F(PrefetchedPullsOfALane, what_is_never_used_is_sent_less_and_less) {
  const int steps = 1000;
  for (int i = 0; i < steps; ++i) {
    begin();
    end();
    clock_.now_ns += 2 * kLimitMs * sys::kMillisecond;
    lane_->step();
  }
  EXPECT_EQ(ahead_->thrown_away(), ahead_->sent());
  EXPECT_LT(ahead_->sent(), 2 * (8 + steps / PrefetchedPulls::kPauseMax));
  EXPECT_GT(ahead_->sent(), steps / PrefetchedPulls::kPauseMax);
}

TEST_F(PrefetchedPullsOfALane, an_answer_of_another_kind_is_refused) {
  send_ahead();
  Peers::RunDone* const done = peers_.asked[0]->done;
  EXPECT_FALSE(done->allocate(0, DType::kFloat32, Shape{1 << 30}).ok());
  EXPECT_FALSE(done->allocate(0, DType::kInt64, Shape{1}).ok());
  EXPECT_FALSE(done->allocate(1, DType::kFloat32, Shape{1}).ok());
  EXPECT_FALSE(done->allocate(-1, DType::kFloat32, Shape{1}).ok());
  // No values where one was asked for: a failure, so the step asks for itself.
  peers_.asked[0]->end({});
  begin();
  call(0);
  EXPECT_EQ(peers_.asked.size(), 3U);
}

TEST_F(PrefetchedPullsOfALane, a_traced_step_asks_for_itself) {
  send_ahead();
  ahead_->begin(kSession, kTraining, kLimitMs);
  step_->begin(kSession, 1, nullptr);
  const auto traced = call(0);
  ASSERT_EQ(peers_.asked.size(), 3U);
  EXPECT_NE(peers_.asked[2]->call.trace, 0);
  answer(2, 1);
  end();
  EXPECT_EQ(ahead_->thrown_away(), 2);
}

TEST_F(PrefetchedPullsOfALane, a_push_that_fails_is_told_once_to_whoever_asks_first) {
  const Status wrong = base::invalid_argument("wrong");
  begin();
  EXPECT_TRUE(call(2)->statuses.at(0).ok());
  EXPECT_FALSE(async_pushes_->any_failure());
  peers_.asked.back()->end(wrong);
  EXPECT_THAT(told_, ElementsAre(kSession));
  EXPECT_TRUE(async_pushes_->any_failure());
  EXPECT_TRUE(async_pushes_->take_failure(kSession + 1).ok());
  EXPECT_EQ(async_pushes_->take_failure(kSession).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(async_pushes_->any_failure());
  EXPECT_TRUE(async_pushes_->take_failure(kSession).ok());
  // Who closes the session waits for the last one, and hears of it.
  call(2);
  call(2);
  std::vector<Status> closed;
  async_pushes_->when_done(kSession, [&](const Status& status) { closed.push_back(status); });
  peers_.asked.at(1)->end(wrong);
  EXPECT_TRUE(closed.empty());
  peers_.asked.at(2)->end({});
  ASSERT_EQ(closed.size(), 1U);
  EXPECT_EQ(closed[0].code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(async_pushes_->any_failure());
  async_pushes_->when_done(kSession, [&](const Status& status) { closed.push_back(status); });
  ASSERT_EQ(closed.size(), 2U);
  EXPECT_TRUE(closed[1].ok());
  // What has failed before it is closed, too.
  call(2);
  peers_.asked.back()->end(wrong);
  async_pushes_->when_done(kSession, [&](const Status& status) { closed.push_back(status); });
  ASSERT_EQ(closed.size(), 3U);
  EXPECT_EQ(closed[2].code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(async_pushes_->any_failure());
}

TEST_F(PrefetchedPullsOfALane, a_step_that_leaves_no_pushes_waits_for_them) {
  step_->begin(kSession, 0, nullptr, false);
  const std::shared_ptr<Ended> push = call(2);
  EXPECT_TRUE(push->statuses.empty());
  peers_.asked.back()->end(base::invalid_argument("wrong"));
  EXPECT_EQ(push->statuses.at(0).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(async_pushes_->any_failure());
}

TEST(PrefetchedCalls, are_those_whose_answers_have_a_size_that_is_known_and_kept) {
  program::Program program = program_of_calls();
  program.slots[0].shape = Shape{-1};
  EXPECT_EQ(prefetched_calls(program), nullptr);
  program.slots[0].shape = Shape{int64_t{1} << 40};
  EXPECT_EQ(prefetched_calls(program), nullptr);
  program.slots[0] = {DType::kString, Shape{1}, -1};
  EXPECT_EQ(prefetched_calls(program), nullptr);
  EXPECT_EQ(prefetched_calls(program::Program()), nullptr);
}

TEST(PrefetchedCalls, have_a_limit_that_can_be_told) {
  EXPECT_TRUE(check_pull_prefetch(0).ok());
  EXPECT_TRUE(check_pull_prefetch(kPullPrefetchMs).ok());
  EXPECT_FALSE(check_pull_prefetch(-1).ok());
  EXPECT_FALSE(check_pull_prefetch(int64_t{1} << 40).ok());
}

}  // namespace
}  // namespace sidereal::task
