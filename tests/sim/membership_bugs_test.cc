#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sidereal/base/log.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/views.h"

namespace sidereal::sim {
namespace {

/// Each is found far sooner; the promise is 10^4.
constexpr uint64_t kSeeds = 2000;

class PlantedMembershipBug : public testing::TestWithParam<PlantedBug> {
 protected:
  void SetUp() override { base::set_log_level(base::LogLevel::kError); }
  void TearDown() override { planted = Bug::kNone; }
};

TEST_P(PlantedMembershipBug, IsFound) {
  planted = GetParam().bug;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const ViewsReport report = run_views(draw_views(seed, {}));
    if (report.complaints.empty()) continue;
    fmt::print("seed {}: {}\n", seed, report.complaints.front());
    return;
  }
  FAIL() << "a voter or a start that " << GetParam().name << " goes well with " << kSeeds
         << " seeds";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedMembershipBug, testing::ValuesIn(kPlantedBugs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sidereal::sim
