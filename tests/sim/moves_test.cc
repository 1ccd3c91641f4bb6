#include "tests/sim/moves.h"

#include <gtest/gtest.h>

#include <chrono>

#include "sidereal/base/log.h"
#include "sidereal/base/sanitizer.h"

namespace sidereal::sim {
namespace {

constexpr int kSeeds = base::kIsSanitized ? 10 : 60;

class MovesSimulation : public testing::Test {
 protected:
  void SetUp() override { base::set_log_level(base::LogLevel::kError); }

  static MovesReport run_well(uint64_t seed, const Wishes& wishes = {.kind = Kind::kMoves}) {
    MovesReport report = run_moves(draw_moves(seed, wishes));
    for (const std::string& complaint : report.complaints) {
      ADD_FAILURE() << complaint << "\nagain: ./dev sim --seed " << seed << wishes.to_string();
    }
    return report;
  }
};

TEST_F(MovesSimulation, TheSameSeedIsTheSameRun) {
  for (const uint64_t seed : {1, 2, 3}) {
    EXPECT_EQ(run_well(seed).hash, run_well(seed).hash);
    EXPECT_NE(run_well(seed).hash, run_well(seed + 1).hash);
  }
}

TEST_F(MovesSimulation, ManySeedsGoWell) {
  int64_t pushes = 0, moves = 0, given_up = 0, ps_deaths = 0, mover_deaths = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const MovesReport report = run_well(seed);
    pushes += report.pushes;
    moves += report.moves;
    given_up += report.given_up;
    ps_deaths += report.ps_deaths;
    mover_deaths += report.mover_deaths;
  }
  // What happens to moves happens often.
  EXPECT_GT(pushes, 200 * kSeeds);
  EXPECT_GT(moves, 5 * kSeeds);
  EXPECT_GT(given_up, kSeeds);
  EXPECT_GT(ps_deaths, kSeeds);
  EXPECT_GT(mover_deaths, kSeeds);
}

TEST_F(MovesSimulation, FreshSeedsGoWell) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto first = static_cast<uint64_t>(now / std::chrono::milliseconds(1)) % 1'000'000'000;
  for (uint64_t i = 0; i < kSeeds / 3; ++i) run_well(first + i);
}

}  // namespace
}  // namespace sidereal::sim
