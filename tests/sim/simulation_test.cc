#include "tests/sim/simulation.h"

#include <gtest/gtest.h>

#include <chrono>

#include "sidereal/base/log.h"

namespace sidereal::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

class SimulationTest : public testing::Test {
 protected:
  void SetUp() override { base::set_log_level(base::LogLevel::kError); }

  static Report run_well(uint64_t seed, const Wishes& wishes = {}) {
    std::string again = fmt::format("./dev sim --seed {}", seed);
    if (wishes.workers > 0) again += fmt::format(" --workers {}", wishes.workers);
    if (wishes.seconds > 0) again += fmt::format(" --seconds {}", wishes.seconds);
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

TEST_F(SimulationTest, TheSameSeedIsTheSameRun) {
  const Report one = run_well(11);
  const Report same = run_well(11);
  const Report other = run_well(12);
  EXPECT_EQ(one.hash, same.hash);
  EXPECT_EQ(one.events, same.events);
  EXPECT_NE(one.hash, other.hash);
}

TEST_F(SimulationTest, TwentySeedsGoWell) {
  for (uint64_t seed = 1; seed <= (kIsSlow ? 6 : 20); ++seed) {
    const Report report = run_well(seed);
    EXPECT_GT(report.acknowledged, 0);
  }
}

TEST_F(SimulationTest, AThousandWorkersGoWell) {
  for (uint64_t seed = 1; seed <= (kIsSlow ? 1 : 2); ++seed) {
    const Report report = run_well(seed, {.workers = 1000, .seconds = kIsSlow ? 5.0 : 12.0});
    EXPECT_GT(report.acknowledged, 1000);
  }
}

TEST_F(SimulationTest, FreshSeedsGoWell) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto first = static_cast<uint64_t>(now / std::chrono::milliseconds(1)) % 1'000'000'000;
  for (uint64_t i = 0; i < (kIsSlow ? 2 : 5); ++i) run_well(first + i);
}

}  // namespace
}  // namespace sidereal::sim
