#include "tests/sim/simulation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "sidereal/base/log.h"
#include "sidereal/base/sanitizer.h"
#include "tests/sim/push_table.h"

namespace sidereal::sim {
namespace {

class SimulationTest : public testing::Test {
 protected:
  void SetUp() override { base::set_log_level(base::LogLevel::kError); }

  static Report run_well(uint64_t seed, const Wishes& wishes = {}) {
    const std::string again = fmt::format("./dev sim --seed {}{}", seed, wishes.to_string());
    // Before, should the run not come back.
    fmt::print("{}\n", again);
    std::fflush(stdout);
    const Report report = run(draw(seed, wishes));
    for (const std::string& complaint : report.complaints) {
      ADD_FAILURE() << complaint << "\nagain: " << again;
    }
    return report;
  }
};

/// What peers are made of, and whether the cluster has a secret.
using What = std::pair<Kind, bool>;

class SimulationOf : public SimulationTest, public testing::WithParamInterface<What> {
 protected:
  static Wishes wishes() {
    return {.seconds = 10, .kind = GetParam().first, .secret = GetParam().second};
  }
};

INSTANTIATE_TEST_SUITE_P(All, SimulationOf,
                         testing::Values(What(Kind::kLanes, false), What(Kind::kLanes, true),
                                         What(Kind::kTasks, false), What(Kind::kTasks, true)),
                         [](const auto& info) {
                           return std::string(name_of(info.param.first)) +
                                  (info.param.second ? "_with_a_secret" : "");
                         });

TEST_P(SimulationOf, TheSameSeedIsTheSameRun) {
  // Of tasks: steps cut in each of the three ways, and one where only first lanes are known.
  for (const uint64_t seed : {7, 11, 12, 1004}) {
    const Report one = run_well(seed, wishes());
    const Report same = run_well(seed, wishes());
    EXPECT_EQ(one.hash, same.hash);
    EXPECT_EQ(one.events, same.events);
    EXPECT_NE(one.hash, run_well(seed + 1, wishes()).hash);
  }
}

TEST_F(SimulationTest, TwentySeedsGoWell) {
  for (uint64_t seed = 1; seed <= (base::kIsSanitized ? 6 : 20); ++seed) {
    const Report report = run_well(seed);
    EXPECT_GT(report.outcomes.ok, 0);
    EXPECT_GT(report.applied, 0);
  }
}

// Their calls without a deadline once waited for ever: over a network too slow for a frame, and for
// room at a connection that had ended.
TEST_F(SimulationTest, ASessionClosesOverANetworkThatIsTooSlow) {
  run_well(820000046, {.kind = Kind::kTasks, .standby = false});
}

// It was refused as being there already, while its end over the connection before was not noticed.
TEST_F(SimulationTest, ACallThatIsSentAgainIsANewStep) { run_well(51000017, {.standby = false}); }

// Its network is full; a worker that pulls all weights ends no step in seconds, though its share is
// sent.
TEST_F(SimulationTest, AWorkerOfFewLargeStepsHasItsShare) {
  run_well(765376111, {.standby = false});
}

// The lane said that it waits for a standby, which had not had the snapshot of its log's cut 0 yet.
TEST_F(SimulationTest, AStandbyIsInSyncWhenItHasTheSnapshot) {
  run_well(700000016, {.kind = Kind::kTasks, .standby = true});
}

TEST_F(SimulationTest, StandbysHaveWhatWasAnswered) {
  int64_t acknowledged = 0, kept = 0;
  for (uint64_t seed = 1; seed <= (base::kIsSanitized ? 5 : 20); ++seed) {
    const Report report = run_well(seed, {.seconds = 12, .kind = Kind::kTasks, .standby = true});
    acknowledged += report.acknowledged;
    kept += report.kept;
  }
  // They are waited for most of the time.
  EXPECT_GT(kept, acknowledged / 2);
}

TEST_F(SimulationTest, AThousandWorkersGoWell) {
  for (const Kind kind : {Kind::kLanes, Kind::kTasks}) {
    const Report report =
        run_well(1, {.workers = 1000, .seconds = base::kIsSanitized ? 5.0 : 12.0, .kind = kind});
    EXPECT_GT(report.applied, 1000);
  }
}

/// Rows of two pushes at place 0, of a life of a ps.
class PushTableTest : public testing::Test {
 protected:
  static constexpr uint64_t kLife = 5;
  void read(uint64_t life = kLife) { pushes_.read(0, life, variable_); }
  void add(size_t push, float times = 1) {
    const auto first = static_cast<size_t>(pushes_.push(push).first_row * kWidth);
    const auto count = static_cast<size_t>(pushes_.push(push).rows * kWidth);
    for (float& value : variable_.data<float>().subspan(first, count)) value += times;
  }
  [[nodiscard]] std::string complaint() const {
    return ledger_.complaints().empty() ? "" : ledger_.complaints().front();
  }

  static constexpr int64_t kWidth = 2;
  Ledger ledger_;
  PushTable pushes_{1, &ledger_};
  const size_t one_ = pushes_.begin(0, 3, kLife);
  const size_t other_ = pushes_.begin(0, 1, kLife);
  tensor::Tensor variable_ =
      tensor::Tensor::zeros(tensor::DType::kFloat32, {PushTable::kRows, kWidth});
};

TEST_F(PushTableTest, WhatWasAppliedOnceIsWell) {
  add(one_);
  pushes_.acknowledge(one_);
  read();
  EXPECT_EQ(complaint(), "");
  EXPECT_EQ(pushes_.applied_count(), 1);
  EXPECT_EQ(pushes_.acknowledged_count(), 1);
}

TEST_F(PushTableTest, WhatWasAppliedTwiceIsFound) {
  add(other_, 2);
  read();
  EXPECT_EQ(complaint(), "push 1 was applied 2 times by life 5");
}

TEST_F(PushTableTest, WhatWasAppliedInPartIsFound) {
  variable_.data<float>()[static_cast<size_t>(pushes_.push(one_).first_row * kWidth)] = 1;
  read();
  EXPECT_EQ(complaint(), "push 0 was applied in part by life 5");
}

TEST_F(PushTableTest, WhatWasAcknowledgedAndLostIsFound) {
  pushes_.acknowledge(one_);
  read();
  EXPECT_EQ(complaint(), "push 0 was acknowledged by life 5, and lost");
}

TEST_F(PushTableTest, WhatIsAcknowledgedAfterTheEndAndWasNotAppliedIsFound) {
  read();
  pushes_.acknowledge(one_);
  EXPECT_EQ(complaint(), "push 0 was acknowledged by life 5, which never applied it");
}

TEST_F(PushTableTest, WhatAnotherLifeAppliedIsFound) {
  add(other_);
  read(6);
  EXPECT_EQ(complaint(), "push 1 to life 5 was applied by life 6");
}

TEST_F(PushTableTest, WhatNobodyPushedIsFound) {
  variable_.data<float>()[0] = 1;
  read();
  EXPECT_EQ(complaint(), "life 5 has rows that nobody has pushed");
}

TEST_F(SimulationTest, FreshSeedsGoWell) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto first = static_cast<uint64_t>(now / std::chrono::milliseconds(1)) % 1'000'000'000;
  for (uint64_t i = 0; i < (base::kIsSanitized ? 2 : 5); ++i) run_well(first + i);
}

}  // namespace
}  // namespace sidereal::sim
