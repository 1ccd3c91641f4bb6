#include "tests/sim/views.h"

#include <gtest/gtest.h>

#include <chrono>

#include "sidereal/base/sanitizer.h"

namespace sidereal::sim {
namespace {

constexpr int kSeeds = base::kIsSanitized ? 100 : 1000;
constexpr Wishes kWishes = {.kind = Kind::kViews};

ViewsReport run_well(uint64_t seed) {
  ViewsReport report = run_views(draw_views(seed, kWishes));
  for (const std::string& complaint : report.complaints) {
    ADD_FAILURE() << complaint << "\nagain: ./dev sim --seed " << seed << kWishes.to_string();
  }
  return report;
}

TEST(ViewsSimulation, TheSameSeedIsTheSameRun) {
  for (const uint64_t seed : {1, 2, 3}) {
    EXPECT_EQ(run_well(seed).hash, run_well(seed).hash);
    EXPECT_NE(run_well(seed).hash, run_well(seed + 1).hash);
  }
}

TEST(ViewsSimulation, ManySeedsGoWell) {
  int64_t held = 0, deposed = 0, deaths = 0, voter_deaths = 0, cuts = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const ViewsReport report = run_well(seed);
    held += report.held;
    deposed += report.deposed;
    deaths += report.deaths;
    voter_deaths += report.voter_deaths;
    cuts += report.cuts;
  }
  // What happens to views happens often.
  EXPECT_GT(held, 5 * kSeeds);
  EXPECT_GT(deposed, kSeeds);
  EXPECT_GT(deaths, 5 * kSeeds);
  EXPECT_GT(voter_deaths, 3 * kSeeds);
  EXPECT_GT(cuts, 5 * kSeeds);
}

TEST(ViewsSimulation, FreshSeedsGoWell) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto first = static_cast<uint64_t>(now / std::chrono::milliseconds(1)) % 1'000'000'000;
  for (uint64_t i = 0; i < kSeeds / 3; ++i) run_well(first + i);
}

}  // namespace
}  // namespace sidereal::sim
