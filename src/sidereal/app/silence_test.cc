#include "sidereal/service/silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"

namespace sidereal::app {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSilence(1'000);

class Silence : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
    servers_ = std::make_unique<ProcessCluster>(2);
    ASSERT_TRUE(
        cluster_.add_job("w", std::vector<std::string>{servers_->address(0), servers_->address(1)})
            .ok());
    make(kSilence);
  }
  void make(milliseconds silence) {
    auto made = service::SilenceWatch::create(cluster_, {}, silence);
    ASSERT_TRUE(made.ok()) << made.status();
    watch_ = *std::move(made);
  }
  /// What it finds until it finds something.
  std::vector<service::SilentTask> find(double limit_s = 60) {
    std::vector<service::SilentTask> found;
    eventually(
        [&] {
          found = watch_->look();
          return !found.empty();
        },
        limit_s);
    return found;
  }

  std::unique_ptr<ProcessCluster> servers_;
  cluster::ClusterSpec cluster_;
  std::unique_ptr<service::SilenceWatch> watch_;
};

TEST_F(Silence, of_a_stopped_process_is_found_once_and_again_after_it_has_answered) {
  // Answers that come late are not heard; of these some do.
  for (int i = 0; i < 20; ++i) EXPECT_THAT(watch_->look(), ::testing::IsEmpty());
  const int64_t pid = servers_->status(1).pid();
  for (int i = 0; i < 2; ++i) {
    if (i > 0) watch_->heard("/job:w/replica:0/task:1", pid);  // It connects again in its time.
    servers_->process(1).signal(SIGSTOP);
    const std::vector<service::SilentTask> found = find();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].task, "/job:w/replica:0/task:1");
    EXPECT_EQ(found[0].pid, pid);
    EXPECT_GE(found[0].silent_s, 1);
    EXPECT_THAT(find(2), ::testing::IsEmpty());
    servers_->process(1).signal(SIGCONT);
    ASSERT_TRUE(servers_->is_up(1));
    EXPECT_THAT(watch_->look(), ::testing::IsEmpty());
  }
}

TEST_F(Silence, of_who_has_not_answered_yet_is_none) {
  servers_->kill(0);
  EXPECT_THAT(find(2), ::testing::IsEmpty());
  // Somebody knows better.
  watch_->heard("/job:w/replica:0/task:0", 17);
  const std::vector<service::SilentTask> found = find();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, 17);
}

TEST_F(Silence, takes_two_questions_as_who_asks_may_have_stood_still) {
  make(milliseconds(1));
  servers_->kill(0);
  watch_->heard("/job:w/replica:0/task:0", 17);
  for (const Stopwatch watch; watch.seconds() < 0.002;) continue;  // Longer than the silence.
  EXPECT_THAT(watch_->look(), ::testing::IsEmpty());
  const std::vector<service::SilentTask> found = find();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, 17);
}

TEST_F(Silence, must_be_longer_than_nothing) {
  EXPECT_EQ(service::SilenceWatch::create(cluster_, {}, milliseconds(0)).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::app
