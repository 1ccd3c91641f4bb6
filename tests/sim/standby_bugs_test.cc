#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sidereal/base/log.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/simulation.h"

namespace sidereal::sim {
namespace {

constexpr uint64_t kSeeds = 100;
constexpr Wishes kWishes = {
    .workers = 4, .seconds = 6, .kind = Kind::kTasks, .secret = false, .standby = true};

class PlantedStandbyBug : public testing::TestWithParam<PlantedBug> {
 protected:
  void SetUp() override { base::set_log_level(base::LogLevel::kError); }
  void TearDown() override { planted = Bug::kNone; }
};

TEST_P(PlantedStandbyBug, IsFound) {
  planted = GetParam().bug;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Report report = run(draw(seed, kWishes));
    if (report.complaints.empty()) continue;
    fmt::print("seed {}: {}\n", seed, report.complaints.front());
    return;
  }
  FAIL() << "a lane that " << GetParam().name << " goes well with " << kSeeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedStandbyBug, testing::ValuesIn(kPlantedBugs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sidereal::sim
