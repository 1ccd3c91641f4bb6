#include <gtest/gtest.h>

#include <vector>

#include "sidereal/membership/lease.h"
#include "sidereal/membership/voter.h"

namespace sidereal::membership {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLease = kSecond;
constexpr int64_t kPromise = 2 * kSecond;

/// Voters and one task's starts on one clock, in which nothing is late.
class Membership : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 3; ++i) voters_.emplace_back(kPromise, -kPromise);
  }
  Lease start(uint64_t life) const {
    return Lease({.task = "ps",
                  .life = life,
                  .process = {.machine = "m", .pid = static_cast<int64_t>(life)},
                  .voters = 3,
                  .lease_ns = kLease,
                  .random = [] { return 0; }});
  }
  /// Asks all voters `which`, once.
  void ask(Lease* lease, const std::vector<int>& which = {0, 1, 2}) {
    const Ask ask = lease->begin(now_);
    for (const int i : which) {
      const Result<Vote> vote = voters_[static_cast<size_t>(i)].vote(ask, now_);
      ASSERT_TRUE(vote.ok()) << vote.status();
      lease->take(i, lease->round(), *vote, now_);
    }
  }
  /// Asks as often as it takes.
  bool get(Lease* lease, const std::vector<int>& which = {0, 1, 2}) {
    for (int i = 0; i < 4 && !lease->holds(now_); ++i) ask(lease, which);
    return lease->holds(now_);
  }

  std::vector<Voter> voters_;
  int64_t now_ = 0;
};

TEST_F(Membership, OneCountsAndKeepsToItWhileItAsks) {
  Lease one = start(1);
  ask(&one);
  EXPECT_FALSE(one.holds(now_)) << "the first votes are a promise";
  ask(&one);
  EXPECT_TRUE(one.holds(now_));
  EXPECT_EQ(one.view(), 1);
  EXPECT_EQ(one.until(), now_ + kLease);
  Lease other = start(2);
  for (int i = 0; i < 40; ++i) {
    now_ += kLease / 4;
    ask(&one);
    ask(&other);
    EXPECT_TRUE(one.holds(now_));
    EXPECT_FALSE(other.holds(now_));
  }
  EXPECT_EQ(one.view(), 1);
  EXPECT_EQ(other.other().life, 1);
}

TEST_F(Membership, AnotherOneCountsWhenItHasBeenSilent) {
  Lease one = start(1), other = start(2);
  ASSERT_TRUE(get(&one));
  now_ += kLease;
  EXPECT_FALSE(one.holds(now_));
  EXPECT_FALSE(get(&other)) << "its clock may be slower";
  now_ += kPromise - kLease;
  EXPECT_TRUE(get(&other));
  EXPECT_GT(other.view(), one.view());
  // The first one is told, and never counts again.
  ask(&one);
  EXPECT_TRUE(one.is_deposed());
  EXPECT_EQ(one.deposed_by(), 2);
  now_ += 10 * kPromise;
  ask(&one);
  EXPECT_FALSE(one.holds(now_));
}

TEST_F(Membership, OneThatWasSilentCountsAgainWhereNobodyElseHas) {
  Lease one = start(1);
  ASSERT_TRUE(get(&one));
  now_ += 10 * kPromise;
  EXPECT_TRUE(get(&one));
  EXPECT_EQ(one.view(), 1);
}

TEST_F(Membership, OneWhoseProcessHasEndedIsNotWaitedFor) {
  Lease one = start(1), other = start(2);
  ASSERT_TRUE(get(&one));
  ask(&other);
  EXPECT_EQ(other.other().process, (ProcessId{.machine = "m", .pid = 1}));
  other.knows_gone(3, now_);
  EXPECT_FALSE(get(&other)) << "of another one that says nothing";
  other.knows_gone(1, now_);
  EXPECT_TRUE(get(&other));
}

TEST_F(Membership, AMinorityDecidesNothing) {
  Lease one = start(1), other = start(2);
  EXPECT_FALSE(get(&one, {0}));
  EXPECT_FALSE(get(&one, {}));
  EXPECT_TRUE(get(&other, {1, 2}));
  now_ += kLease / 2;
  ask(&other, {0});
  EXPECT_TRUE(other.holds(now_));
  now_ += kLease / 2;
  EXPECT_FALSE(other.holds(now_)) << "it was told nothing new by a majority";
}

TEST_F(Membership, OneOfThreeVotersMayBeMissing) {
  Lease one = start(1), other = start(2);
  ASSERT_TRUE(get(&one, {0, 1}));
  now_ += kLease / 2;
  ask(&one, {1, 2});
  EXPECT_EQ(one.until(), now_ + kLease);
  now_ += kPromise;
  // The voter that both have spoken to knows.
  ASSERT_TRUE(get(&other, {0, 2}));
  EXPECT_GT(other.view(), one.view());
}

TEST_F(Membership, AVoterThatWasStartedAgainPromisesNothingForATime) {
  Lease one = start(1), other = start(2);
  ASSERT_TRUE(get(&one));
  for (Voter& voter : voters_) {
    EXPECT_TRUE(voter.take_records_changed());
    EXPECT_FALSE(voter.take_records_changed());
    EXPECT_EQ(voter.records(), (std::vector<Voter::Record>{{.task = "ps", .view = 1, .life = 1}}));
    voter = Voter(kPromise, now_);
  }
  now_ += kPromise - 1;
  EXPECT_FALSE(get(&other)) << "it does not know whom it had promised what";
  EXPECT_EQ(other.wait_ns(), 1);
  EXPECT_EQ(other.answered(), 3);
  now_ += 1;
  EXPECT_TRUE(get(&other));
}

TEST_F(Membership, WhatWasDecidedOutlivesAVoterThatKeepsIt) {
  Lease one = start(1), other = start(2);
  ASSERT_TRUE(get(&one));
  for (Voter& voter : voters_) voter = Voter(kPromise, now_, voter.records());
  now_ += kLease / 4;
  ask(&one);
  EXPECT_EQ(one.until(), now_ + kLease) << "it is known";
  now_ += kPromise;
  ASSERT_TRUE(get(&other));
  for (Voter& voter : voters_) voter = Voter(kPromise, now_, voter.records());
  now_ += 2 * kPromise;
  ask(&one);
  EXPECT_TRUE(one.is_deposed());
}

TEST_F(Membership, VotesThatDecideNothingAreGivenBack) {
  Lease one = start(1), two = start(2), three = start(3);
  ask(&one, {0});
  ask(&two, {1});
  ask(&three, {2});
  // Each has one vote, and asks for all.
  ask(&one);
  ask(&two);
  ask(&three);
  ask(&one);
  ask(&two);
  EXPECT_TRUE(get(&three));
}

TEST_F(Membership, SilenceIsToldOnce) {
  Lease one = start(1);
  ASSERT_TRUE(get(&one));
  now_ += kPromise - 1;
  EXPECT_TRUE(voters_[0].take_silent(now_).empty());
  now_ += 1;
  const std::vector<Voter::Silent> silent = voters_[0].take_silent(now_);
  ASSERT_EQ(silent.size(), 1U);
  EXPECT_EQ(silent[0].task, "ps");
  EXPECT_EQ(silent[0].life, 1);
  EXPECT_TRUE(voters_[0].take_silent(now_).empty());
  ask(&one);
  EXPECT_EQ(voters_[0].take_silent(now_ + kPromise).size(), 1U);
}

TEST_F(Membership, WhatNobodyAsksIsRefused) {
  const auto code_of = [this](const Ask& ask) {
    return voters_[0].vote(ask, now_).status().code();
  };
  const Ask good = {.task = "ps", .life = 1, .view = 1};
  EXPECT_EQ(code_of(good), StatusCode::kOk);
  EXPECT_EQ(code_of({.task = "", .life = 1, .view = 1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.task = std::string(2000, 'x'), .life = 1, .view = 1}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.task = "ps", .life = 0, .view = 1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.task = "ps", .life = 1, .view = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.task = "ps", .life = 1, .view = 1, .held = 2}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.task = "ps", .life = 1, .lease_ns = kPromise, .view = 1}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.task = "ps", .life = 1, .lease_ns = -1, .view = 1}),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::membership
