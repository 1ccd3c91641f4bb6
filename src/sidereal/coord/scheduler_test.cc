#include "sidereal/coord/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace sidereal::coord {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
using Pair = std::pair<int, ClosureId>;

/// Writes down what is asked for.
struct Asked final : SchedulerHooks {
  void run(int worker, uint64_t /*life*/, ClosureId closure, int64_t step) override {
    runs.emplace_back(worker, closure);
    steps.push_back(step);
  }
  void end_step(int64_t step, std::span<const ClosureId> closures) override {
    ending.emplace_back(step, std::vector(closures.begin(), closures.end()));
  }
  void forget_steps(int64_t step) override { forgotten.push_back(step); }
  void cancel(int worker, ClosureId closure) override { cancels.emplace_back(worker, closure); }
  void build(int worker, uint64_t /*life*/, ResourceId resource) override {
    builds.emplace_back(worker, resource);
  }
  void drop(int worker, ResourceId resource) override { drops.emplace_back(worker, resource); }
  void closure_ended(ClosureId closure, const Status& status) override {
    EXPECT_TRUE(ends.emplace(closure, status).second);
  }
  void wake() override { ++wakes; }
  void missing(std::span<const int> workers, int64_t since_ns) override {
    lost.assign(workers.begin(), workers.end());
    lost_since_ns = since_ns;
  }

  std::vector<Pair> runs, cancels, builds, drops;
  std::vector<int64_t> steps;  ///< Of the runs.
  std::vector<std::pair<int64_t, std::vector<ClosureId>>> ending;
  std::vector<int64_t> forgotten;
  std::map<ClosureId, Status> ends;
  int wakes = 0;
  std::vector<int> lost;
  int64_t lost_since_ns = -1;
};

const Status kWrong = base::invalid_argument("wrong");
const Status kGone = base::unavailable("no answer");
constexpr Origin kPs0 = {.job = Origin::Job::kPs, .task = 0};

class SchedulerTest : public testing::Test {
 protected:
  /// All workers are found, each in its first life.
  void make(SchedulerOptions options = {}) {
    options.ps = 2;
    if (options.workers == 0) options.workers = 2;
    it_ = std::make_unique<Scheduler>(options, &asked_, 0);
    for (int i = 0; i < options.workers; ++i) it_->worker_found(i, 1, now_);
  }
  ClosureId schedule(const std::vector<ResourceId>& resources = {}) {
    const auto taken = it_->schedule(resources, now_);
    EXPECT_TRUE(taken.ok() && taken->has_value()) << taken.status();
    return taken.ok() ? taken->value_or(0) : 0;
  }
  ClosureId contribute() {
    const auto taken = it_->schedule({}, now_, /*contributes=*/true);
    EXPECT_TRUE(taken.ok() && taken->has_value()) << taken.status();
    return taken.ok() ? taken->value_or(0) : 0;
  }
  void step_done(int64_t step, const Status& status = {}, const Origin& origin = {}) {
    it_->step_done(step, {status, origin}, now_);
  }
  void end(int worker, ClosureId closure, const Status& status = {}, const Origin& origin = {},
           uint64_t life = 1) {
    it_->ended(worker, life, closure, {status, origin}, now_);
  }
  void built(int worker, ResourceId resource, const Status& status = {}, uint64_t life = 1) {
    it_->built(worker, life, resource, {status}, now_);
  }
  /// Joins, which is at its end at once.
  Status join() {
    it_->begin_join();
    const Result<bool> joined = it_->joined();
    EXPECT_TRUE(!joined.ok() || *joined);
    if (joined.ok() && !*joined) it_->leave_join();
    return joined.status();
  }

  Asked asked_;
  int64_t now_ = 1;
  std::unique_ptr<Scheduler> it_;
};

TEST_F(SchedulerTest, ClosuresGoToFreeWorkersInTheirOrder) {
  make();
  for (int i = 0; i < 4; ++i) schedule();
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{0, 1}, {1, 2}}));
  end(1, 2);
  end(0, 1);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{0, 1}, {1, 2}, {1, 3}, {0, 4}}));
  EXPECT_TRUE(asked_.ends.at(1).ok());
}

TEST_F(SchedulerTest, AWorkerRunsSeveralAtATimeIfItMay) {
  make({.workers = 1, .in_flight_max = 3});
  for (int i = 0; i < 5; ++i) schedule();
  EXPECT_EQ(it_->in_flight(), 3u);
  EXPECT_EQ(it_->queued(), 2u);
}

TEST_F(SchedulerTest, AWorkerWaitsForClosuresThatMissEnoughOfIts) {
  make({.workers = 3, .staleness_max = 1});
  for (int i = 0; i < 8; ++i) schedule();
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{0, 1}, {1, 2}, {2, 3}}));
  end(0, 1);
  end(0, 4);  // The third closure misses two of worker 0, as the second one does.
  EXPECT_EQ(asked_.runs.back(), Pair(0, 4));
  end(1, 2);
  EXPECT_EQ(asked_.runs.back(), Pair(1, 5));
  end(2, 3);  // Nothing that still runs misses anything of worker 0; it has waited longest.
  EXPECT_EQ(asked_.runs,
            (std::vector<Pair>{{0, 1}, {1, 2}, {2, 3}, {0, 4}, {1, 5}, {0, 6}, {2, 7}}));
}

TEST_F(SchedulerTest, NoWorkerWaitsForWhatALostOneRan) {
  make({.workers = 2, .staleness_max = 0});
  for (int i = 0; i < 4; ++i) schedule();
  end(0, 1);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{0, 1}, {1, 2}}));
  it_->worker_lost(1, 1, now_);
  EXPECT_EQ(asked_.runs.back(), Pair(0, 3));
  it_->worker_found(1, 2, now_);
  EXPECT_EQ(asked_.runs.back(), Pair(1, 4));
}

TEST_F(SchedulerTest, JoinWithNothingScheduledReturnsAtOnceAgainAndAgain) {
  make();
  EXPECT_TRUE(join().ok());
  EXPECT_TRUE(join().ok());
}

TEST_F(SchedulerTest, WhoSchedulesWaitsForThoseWhoJoin) {
  make();
  schedule();
  it_->begin_join();
  EXPECT_FALSE(*it_->joined());
  EXPECT_FALSE(it_->schedule({}, now_)->has_value());
  const int before = asked_.wakes;
  end(0, 1);
  EXPECT_GT(asked_.wakes, before);
  EXPECT_TRUE(*it_->joined());
  EXPECT_TRUE(it_->schedule({}, now_)->has_value());
}

TEST_F(SchedulerTest, AFullQueueLetsNobodyInUntilThereIsRoom) {
  make({.workers = 1, .queue_max = 2});
  for (int i = 0; i < 3; ++i) schedule();
  EXPECT_FALSE(it_->schedule({}, now_)->has_value());
  const int before = asked_.wakes;
  end(0, 1);
  EXPECT_GT(asked_.wakes, before);
  EXPECT_TRUE(it_->schedule({}, now_)->has_value());
}

TEST_F(SchedulerTest, TheFirstErrorIsRaisedOnceAndCancelsTheRest) {
  make();
  for (int i = 0; i < 5; ++i) schedule();
  end(0, 1, kWrong);
  end(0, 3, base::out_of_range("later"));
  // Nobody has asked: workers go on.
  EXPECT_EQ(asked_.runs.back(), Pair(0, 4));
  EXPECT_FALSE(it_->done()->has_value());
  EXPECT_EQ(asked_.cancels, (std::vector<Pair>{{0, 4}, {1, 2}}));
  EXPECT_EQ(asked_.ends.at(5).code(), StatusCode::kCancelled);
  end(1, 2);  // Well, in spite of it.
  EXPECT_FALSE(it_->schedule({}, now_)->has_value());
  end(0, 4, base::cancelled("as asked"));
  EXPECT_EQ(it_->schedule({}, now_).status(), kWrong);
  EXPECT_EQ(asked_.ends.at(1), kWrong);
  EXPECT_EQ(asked_.ends.at(3).code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(asked_.ends.at(2).ok());
  EXPECT_EQ(base::message_of(asked_.ends.at(4)),
            "The corresponding function is cancelled. Please reschedule the function.");
  EXPECT_TRUE(join().ok());
  schedule();
  EXPECT_EQ(it_->in_flight(), 1u);
}

TEST_F(SchedulerTest, ALostWorkersClosureRunsElsewhereBehindTheOthers) {
  make();
  for (int i = 0; i < 4; ++i) schedule();
  it_->worker_lost(0, 1, now_);
  EXPECT_TRUE(asked_.ends.empty());
  for (const ClosureId id : {2, 3, 4}) end(1, id);
  EXPECT_EQ(asked_.runs.back(), Pair(1, 1));
  EXPECT_EQ(it_->retried(), 1);
}

TEST_F(SchedulerTest, WhatAnEarlierLifeSaysIsIgnored) {
  make({.workers = 1});
  schedule();
  it_->worker_found(0, 2, now_);
  EXPECT_EQ(asked_.runs.size(), 2u);
  end(0, 1, {}, {}, 1);
  EXPECT_TRUE(asked_.ends.empty());
  end(0, 1, {}, {}, 2);
  EXPECT_TRUE(asked_.ends.at(1).ok());
}

TEST_F(SchedulerTest, AClosureMayTellThatItsWorkerIsLost) {
  make();
  schedule();
  end(0, 1, kGone, {.job = Origin::Job::kWorker, .task = 0});
  EXPECT_EQ(it_->workers_found(), 1);
  EXPECT_EQ(asked_.runs.back(), Pair(1, 1));
}

TEST_F(SchedulerTest, AllWorkersLostIsNoError) {
  make({.workers = 1});
  it_->worker_lost(0, 1, now_);
  schedule();
  EXPECT_FALSE(**it_->done());
  it_->worker_found(0, 2, now_);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{0, 1}}));
}

TEST_F(SchedulerTest, AWorkerThatIsLostWhileAllAreCancelledIsNotWaitedFor) {
  make({.workers = 2});
  for (int i = 0; i < 2; ++i) schedule();
  end(0, 1, kWrong);
  EXPECT_FALSE(it_->done()->has_value());
  const int before = asked_.wakes;
  it_->worker_lost(1, 1, now_);
  EXPECT_GT(asked_.wakes, before);
  EXPECT_EQ(it_->done().status(), kWrong);
  EXPECT_EQ(asked_.ends.at(2).code(), StatusCode::kCancelled);
}

TEST_F(SchedulerTest, FewFailuresOfAPsAreTriedAgainAndForgotten) {
  make({.workers = 1, .transient_ps_failures = 3, .failure_window_ns = 10 * kSecond});
  schedule();
  for (int i = 0; i < 20; ++i) {
    now_ += 6 * kSecond;  // Never three within the window.
    end(0, 1, kGone, kPs0);
    ASSERT_TRUE(asked_.ends.empty());
  }
  now_ += 1;
  end(0, 1, kGone, kPs0);
  EXPECT_TRUE(is_ps_failure(asked_.ends.at(1)));
  EXPECT_EQ(it_->done().status().code(), StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, WhatManyWorkersSayAtOnceIsOneFailure) {
  make({.workers = 8, .transient_ps_failures = 2});
  for (int i = 0; i < 8; ++i) schedule();
  ++now_;
  for (int i = 0; i < 8; ++i) end(i, static_cast<ClosureId>(i + 1), kGone, kPs0);
  EXPECT_TRUE(asked_.ends.empty());
  EXPECT_EQ(it_->in_flight(), 8u);
}

TEST_F(SchedulerTest, ALostPsIsRaisedByEveryCall) {
  make();
  schedule();
  it_->ps_lost(1, base::unavailable("it was killed"));
  EXPECT_FALSE(it_->done()->has_value());
  end(0, 1, base::cancelled("as asked"));
  for (int i = 0; i < 2; ++i) {
    const Status error = it_->schedule({}, now_).status();
    EXPECT_TRUE(is_ps_failure(error));
    EXPECT_NE(base::message_of(error).find("/job:ps/replica:0/task:1"), std::string::npos) << error;
    EXPECT_TRUE(is_ps_failure(join()));
  }
}

TEST_F(SchedulerTest, ARestartedPsIsLostAtOnce) {
  make();
  schedule();
  end(0, 1, base::aborted("another incarnation"),
      {.job = Origin::Job::kPs, .task = 0, .is_restarted = true});
  EXPECT_TRUE(is_ps_failure(it_->done().status()));
}

TEST_F(SchedulerTest, WhatFailsForAPsThatComesBackIsTriedAgain) {
  make({.transient_ps_failures = 0, .ps_come_back = true});
  const ClosureId closure = schedule();
  constexpr Origin kRestarted = {.job = Origin::Job::kPs, .task = 0, .is_restarted = true};
  for (int i = 0; i < 10; ++i) {
    end(asked_.runs.back().first, closure, i % 2 == 0 ? kGone : base::aborted("another one"),
        i % 2 == 0 ? kPs0 : kRestarted);
    EXPECT_FALSE(it_->done()->value());
  }
  EXPECT_TRUE(asked_.ends.empty());
  EXPECT_EQ(it_->retried(), 10);
  end(asked_.runs.back().first, closure);
  EXPECT_TRUE(join().ok());

  // Until its owner has given up.
  schedule();
  it_->ps_lost(0, kGone);
  end(asked_.runs.back().first, closure + 1, kGone, kPs0);
  EXPECT_TRUE(is_ps_failure(join()));
}

TEST_F(SchedulerTest, TimeoutsAreCountedForATenthOfTheWorkers) {
  make({.workers = 20});
  schedule();
  const Status late = base::deadline_exceeded("late");
  ++now_;
  end(0, 1, late);
  EXPECT_TRUE(asked_.ends.empty());
  now_ += kSecond;
  end(asked_.runs.back().first, 1, late);
  EXPECT_EQ(asked_.ends.at(1), late);
}

TEST_F(SchedulerTest, WhatIsCancelledElsewhereIsTriedAgainButNotForEver) {
  make({.workers = 1});
  schedule();
  const Status derived = base::cancelled("elsewhere");
  int times = 0;
  while (asked_.ends.empty() && times < 100) {
    end(0, 1, derived);
    ++times;
  }
  EXPECT_EQ(times, 16);
  EXPECT_EQ(it_->done().status(), derived);
}

TEST_F(SchedulerTest, ResourcesAreMadeOnEveryWorkerBeforeItRunsAnything) {
  make();
  const ResourceId resource = it_->create_resource(now_);
  EXPECT_EQ(asked_.builds, (std::vector<Pair>{{0, resource}, {1, resource}}));
  schedule({resource});
  EXPECT_TRUE(asked_.runs.empty());
  built(1, resource);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{1, 1}}));
}

TEST_F(SchedulerTest, AReturningWorkerMakesItsResourcesAgainAndWaitsForNobody) {
  make();
  const ResourceId resource = it_->create_resource(now_);
  built(0, resource);
  built(1, resource);
  it_->worker_lost(0, 1, now_);
  it_->worker_lost(1, 1, now_);
  schedule({resource});
  asked_.builds.clear();
  it_->worker_found(1, 2, now_);
  EXPECT_EQ(asked_.builds, (std::vector<Pair>{{1, resource}}));
  built(1, resource, {}, 2);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{1, 1}}));
}

TEST_F(SchedulerTest, AResourceThatCannotBeMadeFailsWhoUsesIt) {
  make({.workers = 1});
  const ResourceId bad = it_->create_resource(now_);
  built(0, bad, kWrong);
  schedule();
  end(0, 1);
  EXPECT_TRUE(join().ok());  // Nobody used it.
  schedule({bad});
  const Status error = join();
  EXPECT_TRUE(is_input_error(error));
  EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(asked_.ends.at(2), error);
}

TEST_F(SchedulerTest, AReleasedResourceGoesWithItsLastClosure) {
  make({.workers = 1});
  const ResourceId resource = it_->create_resource(now_);
  built(0, resource);
  schedule({resource});
  it_->release_resource(resource);
  EXPECT_TRUE(asked_.drops.empty());
  EXPECT_EQ(it_->schedule(std::vector{resource}, now_).status().code(), StatusCode::kNotFound);
  end(0, 1);
  EXPECT_EQ(asked_.drops, (std::vector<Pair>{{0, resource}}));
  EXPECT_EQ(it_->resources(), 0u);
}

TEST_F(SchedulerTest, AWorkerIsNotHeldUpByAResourceThatNobodyWantsAnyMore) {
  make({.workers = 1});
  const ResourceId resource = it_->create_resource(now_);
  schedule();
  EXPECT_TRUE(asked_.runs.empty());
  it_->release_resource(resource);
  EXPECT_EQ(asked_.runs.size(), 1u);
}

TEST_F(SchedulerTest, AWorkersOwnClosureRunsThereBeforeThoseOfTheQueue) {
  make();
  for (int i = 0; i < 4; ++i) schedule();
  const ClosureId own = *it_->schedule_on(1, {}, now_);
  it_->begin_join();
  EXPECT_FALSE(*it_->joined());
  // Whoever joins does not keep it out.
  const ClosureId other = *it_->schedule_on(1, {}, now_);
  end(1, 2);
  EXPECT_EQ(asked_.runs.back(), Pair(1, own));
  end(1, own);
  EXPECT_EQ(asked_.runs.back(), Pair(1, other));
  end(0, 1);
  EXPECT_EQ(asked_.runs.back(), Pair(0, 3));
  end(0, 3);
  end(0, 4);
  // Nobody waits for it but its owner.
  EXPECT_TRUE(*it_->joined());
  end(1, other, kWrong);
  EXPECT_EQ(asked_.ends.at(other), kWrong);
  EXPECT_TRUE(join().ok());
  EXPECT_EQ(it_->in_flight(), 0u);
  EXPECT_EQ(it_->schedule_on(2, {}, now_).status().code(), StatusCode::kNotFound);
}

TEST_F(SchedulerTest, AWorkersOwnClosureWaitsForItsWorkerAndItsResource) {
  make();
  const ResourceId resource = it_->create_resource(now_);
  built(0, resource);
  const ClosureId own = *it_->schedule_on(1, std::vector{resource}, now_);
  EXPECT_TRUE(asked_.runs.empty());
  built(1, resource);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{1, own}}));
  it_->worker_lost(1, 1, now_);
  EXPECT_EQ(asked_.runs.size(), 1u);
  it_->worker_found(1, 2, now_);
  EXPECT_EQ(asked_.runs.size(), 1u);
  built(1, resource, kWrong, 2);
  // Its error is its owner's.
  EXPECT_TRUE(is_input_error(asked_.ends.at(own)));
  EXPECT_TRUE(join().ok());
}

TEST_F(SchedulerTest, AWorkersOwnClosureThatDoesNotWaitEndsWithTheWorker) {
  make();
  const ClosureId runs = *it_->schedule_on(1, {}, now_, /*waits=*/false);
  const ClosureId queued = *it_->schedule_on(1, {}, now_, /*waits=*/false);
  const ClosureId other = *it_->schedule_on(1, {}, now_);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{1, runs}}));
  it_->worker_lost(1, 1, now_);
  EXPECT_EQ(asked_.ends.at(runs).code(), StatusCode::kUnavailable);
  EXPECT_EQ(asked_.ends.at(queued).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(asked_.ends.contains(other));
  EXPECT_EQ(it_->schedule_on(1, {}, now_, /*waits=*/false).status().code(),
            StatusCode::kUnavailable);
  it_->worker_found(1, 2, now_);
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{1, runs}, {1, other}}));
  // A failure of the connection tells of the loss.
  const ClosureId last = *it_->schedule_on(1, {}, now_, /*waits=*/false);
  it_->ended(1, 2, other, {.status = kGone, .origin = {.job = Origin::Job::kWorker, .task = 1}},
             now_);
  EXPECT_EQ(asked_.ends.at(last).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(asked_.ends.contains(other));
}

TEST_F(SchedulerTest, AWorkersOwnClosureIsNotCancelledWithTheOthers) {
  make();
  const ClosureId own = *it_->schedule_on(1, {}, now_);
  schedule();
  schedule();
  end(0, 2, kWrong);
  EXPECT_EQ(asked_.runs.back(), Pair(0, 3));
  EXPECT_FALSE(it_->done()->has_value());
  EXPECT_EQ(asked_.cancels, (std::vector<Pair>{{0, 3}}));
  end(0, 3, base::cancelled("as asked"));
  EXPECT_EQ(it_->done().status(), kWrong);
  EXPECT_FALSE(asked_.ends.contains(own));
  end(1, own);
  EXPECT_TRUE(asked_.ends.at(own).ok());
}

TEST_F(SchedulerTest, WorkersBeginOneAfterTheOther) {
  make({.workers = 3, .start_delay_ns = 10 * kSecond, .start_delay_max_ns = 15 * kSecond});
  for (int i = 0; i < 3; ++i) schedule();
  EXPECT_EQ(asked_.runs.size(), 1u);
  EXPECT_EQ(it_->tick(now_), 10 * kSecond);
  now_ = 10 * kSecond;
  EXPECT_EQ(it_->tick(now_), 15 * kSecond);
  EXPECT_EQ(asked_.runs.size(), 2u);
  it_->tick(15 * kSecond);
  EXPECT_EQ(asked_.runs.size(), 3u);
}

TEST_F(SchedulerTest, MissingWorkersAreNamedNowAndThen) {
  make({.workers = 3, .report_ns = 60 * kSecond});
  now_ = 5 * kSecond;
  it_->worker_lost(1, 1, now_);
  EXPECT_EQ(it_->tick(now_), 65 * kSecond);
  EXPECT_TRUE(asked_.lost.empty());
  EXPECT_EQ(it_->tick(65 * kSecond), 125 * kSecond);
  EXPECT_EQ(asked_.lost, std::vector<int>{1});
  EXPECT_EQ(asked_.lost_since_ns, 5 * kSecond);
  asked_.lost.clear();
  it_->tick(125 * kSecond);
  EXPECT_EQ(asked_.lost, std::vector<int>{1});
}

// ---- Steps.

using Ending = std::pair<int64_t, std::vector<ClosureId>>;

TEST_F(SchedulerTest, closures_of_a_step_end_together_and_the_next_begin_then) {
  make({.step_size = 2, .step_quorum = 2});
  for (int i = 0; i < 4; ++i) contribute();
  EXPECT_EQ(asked_.runs, (std::vector<Pair>{{0, 1}, {1, 2}}));
  EXPECT_EQ(asked_.steps, (std::vector<int64_t>{1, 1}));
  end(1, 2);
  EXPECT_EQ(asked_.runs.size(), 2);
  EXPECT_TRUE(asked_.ends.empty());
  end(0, 1);
  ASSERT_EQ(asked_.ending, (std::vector<Ending>{{1, {2, 1}}}));
  EXPECT_EQ(asked_.runs.size(), 2);
  EXPECT_TRUE(asked_.ends.empty());
  step_done(1);
  EXPECT_EQ(asked_.ends.size(), 2);
  EXPECT_EQ(asked_.runs.size(), 4);
  EXPECT_EQ(asked_.steps, (std::vector<int64_t>{1, 1, 2, 2}));
}

TEST_F(SchedulerTest, others_run_beside_a_step) {
  make({.step_size = 2, .step_quorum = 2});
  contribute();
  schedule();
  EXPECT_EQ(asked_.runs.size(), 2);
  end(1, 2);
  EXPECT_TRUE(asked_.ends.contains(2));
  contribute();
  EXPECT_EQ(asked_.runs.back(), Pair(1, 3));
}

TEST_F(SchedulerTest, a_step_is_over_with_a_quorum_and_late_closures_have_their_values) {
  make({.workers = 3, .step_size = 3, .step_quorum = 2});
  for (int i = 0; i < 5; ++i) contribute();
  end(0, 1);
  end(1, 2);
  EXPECT_EQ(asked_.ending, (std::vector<Ending>{{1, {1, 2}}}));
  step_done(1);
  EXPECT_EQ(asked_.ends.size(), 2);
  EXPECT_EQ(asked_.runs.size(), 5);
  end(2, 3);  // Of step 1, which is over.
  EXPECT_TRUE(asked_.ends.at(3).ok());
  EXPECT_EQ(asked_.ending.size(), 1);
}

TEST_F(SchedulerTest, spares_are_of_workers_that_have_none_in_the_step) {
  make({.workers = 3, .step_size = 3, .step_quorum = 2});
  for (int i = 0; i < 6; ++i) contribute();
  end(0, 1);
  EXPECT_EQ(asked_.runs.size(), 3);
  end(1, 2);
  step_done(1);  // Worker 2 still runs closure 3.
  EXPECT_EQ(asked_.runs.size(), 5);
  end(0, 4);
  EXPECT_EQ(asked_.runs.size(), 5);
  end(2, 3);
  EXPECT_EQ(asked_.runs.back(), Pair(2, 6));
}

TEST_F(SchedulerTest, a_step_that_lacks_closures_ends_when_somebody_waits) {
  make({.step_size = 2, .step_quorum = 2, .step_patience_ns = 10 * kSecond});
  contribute();
  end(0, 1);
  EXPECT_TRUE(asked_.ending.empty());
  it_->begin_join();
  EXPECT_FALSE(*it_->joined());
  EXPECT_EQ(asked_.ending.size(), 1);
  step_done(1);
  EXPECT_TRUE(*it_->joined());
  contribute();
  end(1, 2);
  EXPECT_EQ(asked_.ending.size(), 1);
  it_->await(now_);
  EXPECT_EQ(asked_.ending.size(), 2);
  step_done(2);
  contribute();
  end(0, 3);
  EXPECT_EQ(it_->tick(now_ + kSecond), now_ + 10 * kSecond);
  EXPECT_EQ(asked_.ending.size(), 2);
  it_->tick(now_ + 10 * kSecond);
  EXPECT_EQ(asked_.ending.size(), 3);
}

TEST_F(SchedulerTest, a_lost_worker_leaves_its_place_in_the_step) {
  make({.step_size = 2, .step_quorum = 2});
  contribute();
  contribute();
  end(0, 1);
  it_->worker_lost(1, 1, now_);
  EXPECT_EQ(asked_.runs.back(), Pair(0, 2));
  end(0, 2);
  EXPECT_EQ(asked_.ending, (std::vector<Ending>{{1, {1, 2}}}));
}

TEST_F(SchedulerTest, what_a_lost_worker_ran_is_of_the_same_step) {
  make({.step_size = 2, .step_quorum = 2});
  for (int i = 0; i < 4; ++i) contribute();
  it_->worker_lost(1, 1, now_);
  end(0, 1);
  EXPECT_EQ(asked_.runs.back(), Pair(0, 2));
}

TEST_F(SchedulerTest, a_step_that_could_not_end_is_forgotten_and_done_again) {
  make({.step_size = 2, .step_quorum = 2});
  contribute();
  contribute();
  end(0, 1);
  end(1, 2);
  step_done(1, kGone, kPs0);
  EXPECT_EQ(asked_.forgotten, std::vector<int64_t>{2});
  EXPECT_EQ(asked_.runs.size(), 2);
  step_done(2);
  EXPECT_EQ(asked_.runs.size(), 4);
  EXPECT_EQ(asked_.steps.back(), 2);
  EXPECT_TRUE(asked_.ends.empty());
}

TEST_F(SchedulerTest, a_ps_that_has_lost_a_step_has_it_done_again) {
  make({.step_size = 2, .step_quorum = 2});
  contribute();
  contribute();
  end(0, 1);
  it_->step_lost(now_);
  EXPECT_EQ(asked_.forgotten, std::vector<int64_t>{2});
  end(1, 2);  // It contributed to the step that is given up.
  EXPECT_TRUE(asked_.ends.empty());
  step_done(2);
  EXPECT_EQ(asked_.runs.size(), 4);
  EXPECT_EQ(asked_.steps, (std::vector<int64_t>{1, 1, 2, 2}));
}

TEST_F(SchedulerTest, what_a_step_has_is_cancelled_with_the_rest) {
  make({.step_size = 2, .step_quorum = 2});
  contribute();
  contribute();
  end(0, 1);
  end(1, 2, kWrong);
  EXPECT_EQ(join(), kWrong);
  EXPECT_EQ(asked_.ends.at(1).code(), StatusCode::kCancelled);
  contribute();
  EXPECT_EQ(asked_.forgotten, std::vector<int64_t>{2});
  step_done(2);
  EXPECT_EQ(asked_.steps.back(), 2);
}

TEST_F(SchedulerTest, what_is_held_ends_its_step) {
  make({.step_size = 2, .step_quorum = 2});
  contribute();
  end(0, 1);
  it_->hold();
  EXPECT_FALSE(it_->is_idle());
  EXPECT_EQ(asked_.ending, (std::vector<Ending>{{1, {1}}}));
  const int before = asked_.wakes;
  step_done(1);
  EXPECT_TRUE(it_->is_idle());
  EXPECT_GT(asked_.wakes, before);
}

}  // namespace
}  // namespace sidereal::coord
