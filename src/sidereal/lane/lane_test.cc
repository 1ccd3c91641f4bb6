#include "sidereal/lane/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <thread>
#include <vector>

#include "sidereal/sys/posix/posix.h"

namespace sidereal::lane {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

class LaneTest : public testing::TestWithParam<int64_t> {
 protected:
  std::unique_ptr<Lane> create(int64_t inbox_slots = 4096) {
    LaneOptions options;
    options.name = "test";
    options.spin_us = GetParam();
    options.inbox_slots = inbox_slots;
    options.network = network_.get();
    options.clock = clock_.get();
    return Lane::create(options).value();
  }

  std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
};

template <class T>
bool ready(std::future<T>& future) {
  return future.wait_for(kPatience) == std::future_status::ready;
}

TEST_P(LaneTest, RunsPostedFunctionsOnItsThreadInOrder) {
  auto lane = create();
  lane->start();
  EXPECT_FALSE(lane->on_lane());
  std::vector<int> seen;
  std::promise<bool> last;
  auto done = last.get_future();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(lane->post([&, i] {
      seen.push_back(i);
      if (i == 99) last.set_value(lane->on_lane());
    }));
  }
  ASSERT_TRUE(ready(done));
  EXPECT_TRUE(done.get());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST_P(LaneTest, StoppingRunsEverythingAcceptedAndRefusesTheRest) {
  for (int round = 0; round < 5; ++round) {
    auto lane = create(64);
    lane->start();
    std::atomic<int> accepted{0};
    std::atomic<bool> stopped{false};
    int ran = 0;  // written on the lane only
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        while (!stopped) {
          for (int i = 0; i < 16; ++i) accepted += lane->post([&] { ++ran; }) ? 1 : 0;
          std::this_thread::yield();
        }
      });
    }
    while (accepted < 100) std::this_thread::yield();
    EXPECT_TRUE(lane->stop().ok());
    stopped = true;
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(ran, accepted.load());
    EXPECT_FALSE(lane->post([] {}));
    EXPECT_TRUE(lane->stop().ok());  // again does nothing
  }
}

TEST_P(LaneTest, AFullInboxRefusesInsteadOfWaiting) {
  auto lane = create(4);
  int ran = 0;
  int accepted = 0;
  for (int i = 0; i < 10; ++i) accepted += lane->post([&] { ++ran; }) ? 1 : 0;
  EXPECT_EQ(accepted, 4);
  lane->start();
  ASSERT_TRUE(lane->stop().ok());
  EXPECT_EQ(ran, 4);
}

TEST_P(LaneTest, TimersFireInDeadlineOrderAndCancelledOnesDoNot) {
  auto lane = create();
  std::vector<int> fired;
  std::promise<void> last;
  auto done = last.get_future();
  const int64_t now = lane->now();
  lane->run_at(now + 3'000'000, [&] { last.set_value(); });
  lane->run_at(now + 2'000'000, [&] { fired.push_back(2); });
  lane->run_at(now + 1'000'000, [&] { fired.push_back(1); });
  const TimerId cancelled = lane->run_at(now + 1'500'000, [&] { fired.push_back(99); });
  EXPECT_TRUE(lane->cancel_timer(cancelled));
  EXPECT_FALSE(lane->cancel_timer(cancelled));
  lane->start();
  ASSERT_TRUE(ready(done));
  EXPECT_EQ(fired, (std::vector<int>{1, 2}));
  EXPECT_GE(clock_->now(), now + 3'000'000);
}

struct CountingDriver : Driver {
  bool poll() override {
    if (left == 0) return false;
    if (--left == 0) finished.set_value();
    return true;
  }
  int left = 1000;
  std::promise<void> finished;
};

TEST_P(LaneTest, DriversArePolledUntilTheyHaveNothingToDo) {
  auto lane = create();
  CountingDriver driver;
  auto done = driver.finished.get_future();
  lane->add_driver(&driver);
  lane->start();
  ASSERT_TRUE(ready(done));
  ASSERT_TRUE(lane->stop().ok());
  EXPECT_GE(lane->metrics().loops.value(), 1000);
  EXPECT_GT(lane->metrics().busy_ns.value(), 0);
}

struct PatientDriver : Driver {
  bool poll() override {
    if (left == 0) return false;
    --left;
    return true;
  }
  bool poll_idle() override {
    if (seen) return false;
    seen = true;
    left_then.set_value(left);
    return true;
  }
  explicit PatientDriver(int64_t iterations) : left(iterations) {}
  int64_t left;
  bool seen = false;
  std::promise<int64_t> left_then;
};

TEST_P(LaneTest, WhatMayWaitIsDoneWhenNothingElseIs) {
  struct StillClock final : sys::Clock {
    int64_t now() override { return 1; }
  };
  clock_ = std::make_unique<StillClock>();
  auto lane = create();
  PatientDriver driver(3);
  auto done = driver.left_then.get_future();
  lane->add_driver(&driver);
  while (lane->step()) {
  }
  ASSERT_TRUE(ready(done));
  EXPECT_EQ(done.get(), 0);
  ASSERT_TRUE(lane->stop().ok());
}

TEST_P(LaneTest, WhatMayWaitIsDoneByALaneThatIsNeverIdle) {
  auto lane = create();
  PatientDriver driver(std::numeric_limits<int64_t>::max());
  auto done = driver.left_then.get_future();
  lane->add_driver(&driver);
  lane->start();
  ASSERT_TRUE(ready(done));
  EXPECT_GT(done.get(), 0);
  ASSERT_TRUE(lane->stop().ok());
}

struct OrderHook : StopHook, Flusher {
  void on_lane_stop() override {
    order->push_back(number);
    lane->flush_later(this);
  }
  void flush() override { order->push_back(number + 100); }
  Lane* lane;
  std::vector<int>* order;
  int number;
};

TEST_P(LaneTest, StopRunsPostsThenHooksLastFirstThenFlushersAndDropsTimers) {
  auto lane = create();
  std::vector<int> order;
  OrderHook first, second;
  first.lane = second.lane = lane.get();
  first.order = second.order = &order;
  first.number = 1;
  second.number = 2;
  lane->add_stop_hook(&first);
  lane->add_stop_hook(&second);
  lane->run_after(3600 * sys::kSecond, [&] { order.push_back(99); });
  ASSERT_TRUE(lane->post([&] { order.push_back(0); }));
  lane->start();
  ASSERT_TRUE(lane->stop().ok());
  EXPECT_EQ(order, (std::vector<int>{0, 2, 1, 102, 101}));
  EXPECT_TRUE(lane->on_lane());  // everybody may clean up after a lane that has ended
}

TEST_P(LaneTest, MayBeStoppedFromItself) {
  auto lane = create();
  lane->start();
  std::promise<bool> asked;
  auto done = asked.get_future();
  ASSERT_TRUE(lane->post([&] { asked.set_value(lane->stop().ok()); }));
  ASSERT_TRUE(ready(done));
  EXPECT_TRUE(done.get());
  EXPECT_TRUE(lane->stop().ok());
}

TEST_P(LaneTest, AStuckLaneIsNamedByStop) {
  auto lane = create();
  lane->start();
  std::promise<void> release;
  auto released = release.get_future();
  ASSERT_TRUE(lane->post([&] { released.wait(); }));
  const Status status = lane->stop(sys::kMillisecond);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(base::message_of(status).find("'test'"), std::string::npos);
  release.set_value();
  EXPECT_TRUE(lane->stop().ok());
}

TEST_P(LaneTest, PollIoFiresTimersFromInsideAPostButNotDriversOrPosts) {
  auto lane = create();
  CountingDriver driver;
  lane->add_driver(&driver);
  bool timer_fired = false;
  bool nested = false;
  bool other_post = false;
  std::promise<void> done_promise;
  auto done = done_promise.get_future();
  lane->run_at(lane->now() + sys::kMillisecond, [&] {
    timer_fired = true;
    nested = lane->poll_io();  // inside a timer: nothing
  });
  ASSERT_TRUE(lane->post([&] {
    const int left = driver.left;
    while (!timer_fired) lane->poll_io();
    EXPECT_EQ(driver.left, left);
    EXPECT_FALSE(other_post);
    EXPECT_FALSE(nested);
    done_promise.set_value();
  }));
  ASSERT_TRUE(lane->post([&] { other_post = true; }));
  lane->start();
  ASSERT_TRUE(ready(done));
  ASSERT_TRUE(lane->stop().ok());  // before what it uses goes
}

TEST_P(LaneTest, DenormalsAreZeroOnTheLane) {
  auto lane = create();
  lane->start();
  std::promise<float> result;
  auto done = result.get_future();
  ASSERT_TRUE(lane->post([&] {
    volatile float tiny = std::numeric_limits<float>::min();
    volatile float half = 0.5f;
    result.set_value(tiny * half);
  }));
  ASSERT_TRUE(ready(done));
  EXPECT_EQ(done.get(), 0.0f);
}

struct EventCounter : IoHandler {
  void on_io(const sys::Event& event) override {
    ++events;
    if (event.readable) {
      lane->unwatch(*watched);
      seen.set_value();
    }
  }
  Lane* lane;
  sys::Pollable* watched;
  int events = 0;
  std::promise<void> seen;
};

TEST_P(LaneTest, AnUnwatchedPollableIsHeardOfNoMore) {
  auto lane = create();
  auto listener = network_->listen({"127.0.0.1", 0}).value();
  EventCounter counter;
  counter.lane = lane.get();
  counter.watched = listener.get();
  auto done = counter.seen.get_future();
  ASSERT_TRUE(lane->watch(*listener, &counter, {}).ok());
  lane->start();
  auto client = network_->connect(listener->address()).value();
  ASSERT_TRUE(ready(done));
  auto second = network_->connect(listener->address()).value();
  std::promise<void> later;
  auto later_done = later.get_future();
  ASSERT_TRUE(lane->post([&] { later.set_value(); }));
  ASSERT_TRUE(ready(later_done));
  ASSERT_TRUE(lane->stop().ok());
  EXPECT_EQ(counter.events, 1);
}

struct Looker final : IoHandler {
  void on_io(const sys::Event&) override {}
  bool look() override {
    ++looks;
    if (looks == 100) many.set_value();
    return false;
  }
  std::atomic<int> looks = 0;
  std::promise<void> many;
};

TEST_P(LaneTest, OthersAreHeardBesideOneThatLooks) {
  auto lane = create();
  auto quiet = network_->listen({"127.0.0.1", 0}).value();
  auto busy = network_->listen({"127.0.0.1", 0}).value();
  Looker looker;
  auto many = looker.many.get_future();
  EventCounter counter;
  counter.lane = lane.get();
  counter.watched = busy.get();
  auto seen = counter.seen.get_future();
  ASSERT_TRUE(lane->watch(*quiet, &looker, {}).ok());
  ASSERT_TRUE(lane->watch(*busy, &counter, {}).ok());
  for (int i = 0; i < 2000; ++i) lane->came_to(&looker);
  lane->start();
  if (GetParam() == kSpinAlways) {  // The others may have gone to sleep.
    ASSERT_TRUE(ready(many));
  }
  auto client = network_->connect(busy->address()).value();
  ASSERT_TRUE(ready(seen));
  std::promise<int> until;
  auto looks = until.get_future();
  ASSERT_TRUE(lane->post([&] {
    lane->unwatch(*quiet);
    until.set_value(looker.looks);
  }));
  ASSERT_TRUE(ready(looks));
  std::promise<void> later;
  auto later_done = later.get_future();
  ASSERT_TRUE(lane->post([&] { lane->run_after(1'000'000, [&] { later.set_value(); }); }));
  ASSERT_TRUE(ready(later_done));
  ASSERT_TRUE(lane->stop().ok());
  EXPECT_EQ(looker.looks, looks.get()) << "it is not watched any more";
}

INSTANTIATE_TEST_SUITE_P(Spin, LaneTest, testing::Values(0, 50, kSpinAlways, kSpinAdaptive));

TEST_P(LaneTest, WhatItMadeEndsThereOnceOthersHaveLetGoOfIt) {
  struct Made final : base::RefCounted {
    ~Made() override { ended.set_value(std::this_thread::get_id()); }
    std::promise<std::thread::id> ended;
  };
  auto lane = create();
  lane->start();
  // A lane that does not spin sleeps by then, and has no other reason to look.
  for (int i = 0; i < 200; ++i) {
    std::promise<std::pair<base::RefPtr<Made>, std::thread::id>> made;
    auto given = made.get_future();
    ASSERT_TRUE(lane->post([&made] {
      made.set_value({base::RefPtr<Made>::make(), std::this_thread::get_id()});
    }));
    ASSERT_TRUE(ready(given));
    auto [one, thread] = given.get();
    auto ended = one->ended.get_future();
    one.reset();
    ASSERT_TRUE(ready(ended));
    EXPECT_EQ(ended.get(), thread);
  }
}

TEST(Timers, AnIdThatNamesNoneCancelsNone) {
  Timers timers;
  int fired = 0;
  timers.add(1, [&fired] { ++fired; });
  EXPECT_FALSE(timers.cancel(TimerId()));
  EXPECT_EQ(timers.fire(1), 1);
  EXPECT_EQ(fired, 1);
}

TEST(Timers, ManyCancelledTimersCostNoMemoryForEver) {
  Timers timers;
  for (int i = 0; i < 100'000; ++i) {
    EXPECT_TRUE(timers.cancel(timers.add(1'000'000'000'000 + i, [] {})));
  }
  EXPECT_EQ(timers.next_deadline(), INT64_MAX);
}

TEST(Lane, WhoDrivesItIsToldWhenTheNextStepIsDue) {
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  auto lane = Lane::create({.name = "driven", .network = network.get(), .clock = clock.get()});
  ASSERT_TRUE(lane.ok());
  Lane& driven = **lane;
  EXPECT_FALSE(driven.step());
  EXPECT_EQ(driven.next_wake(), INT64_MAX);
  int ran = 0;
  const int64_t due = driven.now() + 3600 * sys::kSecond;
  driven.run_at(due, [&] { ++ran; });
  EXPECT_EQ(driven.next_wake(), due);
  driven.run_after(0, [&] { ++ran; });
  EXPECT_TRUE(driven.step());
  EXPECT_EQ(ran, 1);
  ASSERT_TRUE(driven.post([&] { ++ran; }));
  EXPECT_EQ(driven.next_wake(), INT64_MIN);
  EXPECT_TRUE(driven.step());
  EXPECT_EQ(ran, 2);
  // What was accepted is run, and hooks are told, when it ends.
  struct Hook : StopHook {
    void on_lane_stop() override { told = true; }
    bool told = false;
  } hook;
  driven.add_stop_hook(&hook);
  ASSERT_TRUE(driven.post([&] { ++ran; }));
  EXPECT_TRUE(driven.stop().ok());
  EXPECT_EQ(ran, 3);
  EXPECT_TRUE(hook.told);
  EXPECT_FALSE(driven.step());
}

struct HeardByLooking final : IoHandler {
  explicit HeardByLooking(sys::Listener* listener) : listener_(listener) {}
  void on_io(const sys::Event&) override {}
  bool look() override {
    stream = listener_->accept().value();
    if (stream == nullptr) return false;
    lane->came_to(nullptr);
    came.set_value();
    return true;
  }
  Lane* lane = nullptr;
  std::unique_ptr<sys::Stream> stream;
  std::promise<void> came;

 private:
  sys::Listener* const listener_;
};

TEST(Lane, WhoGotWhatCameBeforeLooksForMore) {
  auto network = sys::posix::create_network();
  auto clock = sys::posix::create_clock();
  auto lane =
      Lane::create(
          {.name = "test", .spin_us = kSpinAlways, .network = network.get(), .clock = clock.get()})
          .value();
  auto listener = network->listen({"127.0.0.1", 0}).value();
  HeardByLooking handler(listener.get());
  handler.lane = lane.get();
  auto came = handler.came.get_future();
  // Nobody watches it: only a look finds something.
  for (int i = 0; i < 2000; ++i) lane->came_to(&handler);
  lane->start();
  auto client = network->connect(listener->address()).value();
  ASSERT_TRUE(ready(came));
  ASSERT_TRUE(lane->stop().ok());
}

TEST(Lane, AStepOfOneLaneIsNotOnAnotherLaneOfTheSameThread) {
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  const LaneOptions options = {.name = "driven", .network = network.get(), .clock = clock.get()};
  const auto one = Lane::create(options).value();
  const auto other = Lane::create(options).value();
  std::vector<std::pair<bool, bool>> seen;
  const auto look = [&] { seen.emplace_back(one->on_lane(), other->on_lane()); };
  const std::vector<std::pair<bool, bool>> wanted = {
      {true, true}, {true, false}, {false, true}, {true, true}};
  look();
  ASSERT_TRUE(one->post(look));
  EXPECT_TRUE(one->step());
  EXPECT_FALSE(other->step());
  // Also when it ends.
  ASSERT_TRUE(other->post(look));
  EXPECT_TRUE(other->stop().ok());
  look();
  EXPECT_EQ(seen, wanted);
}

TEST(Timers, ATimerSetByATimerWaitsForTheNextPass) {
  Timers timers;
  int fired = 0;
  timers.add(1, [&] {
    ++fired;
    timers.add(0, [&] { ++fired; });
  });
  EXPECT_EQ(timers.fire(10), 1);
  EXPECT_EQ(timers.fire(10), 1);
  EXPECT_EQ(fired, 2);
}

TEST(Inbox, KeepsEveryFunctionOfManyProducers) {
  Inbox inbox(128);
  constexpr int kPer = 20'000;
  int sum = 0;
  std::vector<std::thread> producers;
  for (int t = 0; t < 3; ++t) {
    producers.emplace_back([&] {
      for (int i = 0; i < kPer; ++i) {
        base::Function<void()> fn = [&sum] { ++sum; };
        while (!inbox.push(fn)) std::this_thread::yield();
      }
    });
  }
  int popped = 0;
  base::Function<void()> fn;
  while (popped < 3 * kPer) {
    if (inbox.pop(&fn)) {
      fn();
      ++popped;
    } else {
      std::this_thread::yield();
    }
  }
  for (auto& producer : producers) producer.join();
  EXPECT_EQ(sum, 3 * kPer);
  EXPECT_TRUE(inbox.empty());
}

}  // namespace
}  // namespace sidereal::lane
