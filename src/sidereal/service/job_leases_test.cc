#include "sidereal/service/job_leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace sidereal::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobHolder by(const std::string& user, const std::string& job = "a") {
  return {.name = job, .user = user, .host = "h", .pid = 12, .program = "train.py"};
}

class JobLeasesTest : public ::testing::Test {
 protected:
  Status grant(const JobHolder& wanted, uint64_t lease, bool take_over = false) {
    return leases_.grant(wanted, take_over, lease, [this](uint64_t before, const Status& why) {
      ended_.emplace_back(before);
      why_ = why;
    });
  }
  std::vector<std::string> running() const {
    std::vector<std::string> out;
    for (const RunningJob& one : leases_.running()) {
      out.push_back(one.holder.name + " of " + one.holder.user);
    }
    return out;
  }

  JobLeases leases_;
  std::vector<uint64_t> ended_;
  Status why_;
};

TEST_F(JobLeasesTest, are_one_for_each_name) {
  EXPECT_TRUE(grant(by("alice"), 1).ok());
  EXPECT_TRUE(grant(by("bob", "b"), 2).ok());
  EXPECT_THAT(running(), ElementsAre("a of alice", "b of bob"));
  const Status second = grant(by("bob"), 3);
  EXPECT_EQ(second.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(
      base::message_of(second),
      AllOf(HasSubstr("the job 'a' is run by alice on host h, process 12 (train.py) since "),
            HasSubstr(" UTC: wait until it has ended"), HasSubstr("--take-over")));
  EXPECT_THAT(running(), ElementsAre("a of alice", "b of bob"));
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(JobLeasesTest, end_with_the_sessions_that_hold_them) {
  ASSERT_TRUE(grant(by("alice"), 1).ok());
  leases_.ended(2, /*is_orderly=*/true);
  EXPECT_THAT(running(), ElementsAre("a of alice"));
  leases_.ended(1, /*is_orderly=*/true);
  EXPECT_THAT(running(), IsEmpty());
  EXPECT_TRUE(grant(by("bob"), 3).ok());
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(JobLeasesTest, what_a_program_that_died_had_begun_is_ended_first) {
  ASSERT_TRUE(grant(by("alice"), 1).ok());
  leases_.ended(1, /*is_orderly=*/false);
  EXPECT_THAT(running(), IsEmpty());
  EXPECT_TRUE(grant(by("bob"), 2).ok());
  EXPECT_THAT(ended_, ElementsAre(1));
  EXPECT_THAT(running(), ElementsAre("a of bob"));
}

TEST_F(JobLeasesTest, are_taken_over_after_all_of_the_job_has_ended) {
  ASSERT_TRUE(grant(by("alice"), 1).ok());
  const Status taken = leases_.grant(by("bob"), true, 2, [&](uint64_t lease, const Status& why) {
    EXPECT_EQ(lease, 1);
    EXPECT_EQ(why.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(base::message_of(why), HasSubstr("the job 'a' was taken over by bob on host h"));
    // The session that held it ends meanwhile; nobody else gets the name.
    leases_.ended(1, /*is_orderly=*/false);
    const Status third = grant(by("carol"), 3, /*take_over=*/true);
    EXPECT_EQ(third.code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(base::message_of(third), HasSubstr("is just being taken over by bob"));
  });
  EXPECT_TRUE(taken.ok());
  EXPECT_THAT(running(), ElementsAre("a of bob"));
  // What is late of the first is nothing of the second.
  leases_.ended(1, /*is_orderly=*/false);
  EXPECT_THAT(running(), ElementsAre("a of bob"));
}

TEST_F(JobLeasesTest, of_programs_that_died_are_forgotten_the_first_to_die_first) {
  ASSERT_TRUE(grant(by("alice", "long"), 5000).ok());  // It runs longer than all others.
  for (uint64_t i = 1; i <= 1000; ++i) {
    ASSERT_TRUE(grant(by("alice", std::to_string(i)), i).ok());
    leases_.ended(i, /*is_orderly=*/false);
  }
  leases_.ended(5000, /*is_orderly=*/false);
  ASSERT_TRUE(grant(by("bob", "long"), 5001).ok());
  EXPECT_EQ(ended_.size(), 1);
  for (uint64_t i = 1; i <= 1000; ++i) {
    ASSERT_TRUE(grant(by("bob", std::to_string(i)), 1000 + i).ok());
  }
  EXPECT_EQ(ended_.size(), 256);
}

TEST_F(JobLeasesTest, are_found_by_their_names_and_a_single_one_without) {
  EXPECT_EQ(leases_.find("").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(grant(by("alice"), 1).ok());
  for (const char* const name : {"", "a"}) EXPECT_EQ(leases_.find(name)->lease, 1U);
  EXPECT_THAT(base::message_of(leases_.find("b").status()), HasSubstr("these do: 'a'"));
  ASSERT_TRUE(grant(by("bob", "b"), 2).ok());
  EXPECT_EQ(leases_.find("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(leases_.find("b")->job.holder.user, "bob");
  EXPECT_EQ(leases_.holder_of(2)->user, "bob");
  leases_.ended(2, /*is_orderly=*/false);
  EXPECT_FALSE(leases_.holder_of(2).has_value());
  EXPECT_EQ(leases_.find("")->lease, 1U);
  EXPECT_EQ(leases_.find("b").status().code(), StatusCode::kNotFound);
  // From when another one is taking it over, its holder has lost it.
  ASSERT_TRUE(leases_
                  .grant(by("carol"), true, 3,
                         [&](uint64_t lease, const Status& /*why*/) {
                           EXPECT_FALSE(leases_.holder_of(lease).has_value());
                         })
                  .ok());
  EXPECT_EQ(leases_.find("a")->lease, 3U);
}

TEST(LeasedSessions, join_until_their_lease_has_ended) {
  LeasedSessions sessions;
  EXPECT_TRUE(sessions.join(7, 1).ok());
  EXPECT_TRUE(sessions.join(7, 2).ok());
  EXPECT_TRUE(sessions.join(8, 3).ok());
  EXPECT_TRUE(sessions.join(0, 4).ok());
  sessions.leave(7, 2);
  sessions.end(7, base::failed_precondition("taken"));
  EXPECT_THAT(sessions.take_open(7), ElementsAre(1));
  EXPECT_EQ(base::message_of(sessions.join(7, 5)), "taken");
  EXPECT_EQ(base::message_of(sessions.check(7)), "taken");
  EXPECT_TRUE(sessions.join(8, 6).ok());
  EXPECT_TRUE(sessions.check(0).ok());
  sessions.leave(7, 1);
  sessions.end(7, base::failed_precondition("again"));
  EXPECT_THAT(sessions.take_open(7), IsEmpty());
  EXPECT_EQ(base::message_of(sessions.check(7)), "taken");
}

TEST(LeaseGranter, is_the_first_parameter_server_or_else_the_first_task) {
  cluster::ClusterSpec spec;
  EXPECT_EQ(granter_of(spec).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(spec.add_job("chief", {"a:1"}).ok());
  EXPECT_EQ(granter_of(spec)->task, "/job:chief/replica:0/task:0");
  ASSERT_TRUE(spec.add_job("ps", cluster::ClusterSpec::Tasks{{1, "b:1"}, {2, "b:2"}}).ok());
  EXPECT_EQ(granter_of(spec)->task, "/job:ps/replica:0/task:1");
  EXPECT_EQ(granter_of(spec)->address, "b:1");
}

TEST(Job, says_who_runs_it) {
  const auto me = job_holder({.name = "a", .user = "alice"});
  ASSERT_TRUE(me.ok()) << me.status();
  EXPECT_EQ(me->user, "alice");
  EXPECT_GT(me->pid, 0);
  EXPECT_FALSE(me->host.empty());
  EXPECT_FALSE(job_holder({.name = "a"})->user.empty());
  EXPECT_EQ(time_text(1'795'705'392), "2026-11-26 15:03:12 UTC");
  for (const char* name : {"a\nb", "\x1b[1m", "\xff"}) {
    EXPECT_EQ(job_holder({.name = name}).status().code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(job_holder({.name = std::string(257, 'a')}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::service
