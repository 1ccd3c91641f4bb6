#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sidereal/base/log.h"
#include "tests/sim/moves.h"
#include "tests/sim/planted_bugs.h"

namespace sidereal::sim {
namespace {

/// Each is found far sooner; the promise is 10^4.
constexpr uint64_t kSeeds = 1000;
constexpr Wishes kWishes = {.seconds = 15, .kind = Kind::kMoves};

class PlantedMoveBug : public testing::TestWithParam<PlantedBug> {
 protected:
  void SetUp() override { base::set_log_level(base::LogLevel::kError); }
  void TearDown() override { planted = Bug::kNone; }
};

TEST_P(PlantedMoveBug, IsFound) {
  planted = GetParam().bug;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const MovesReport report = run_moves(draw_moves(seed, kWishes));
    if (report.complaints.empty()) continue;
    fmt::print("seed {}: {}\n", seed, report.complaints.front());
    return;
  }
  FAIL() << "a cluster that " << GetParam().name << " goes well with " << kSeeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedMoveBug, testing::ValuesIn(kPlantedBugs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sidereal::sim
