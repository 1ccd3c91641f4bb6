#include "tests/sim/coordinator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ostream>

#include "sidereal/base/sanitizer.h"

namespace sidereal::sim {

#define SCHEDULER_BUG(name)                                                       \
  std::unique_ptr<SchedulerUnderTest> make_##name(const coord::SchedulerOptions&, \
                                                  coord::SchedulerHooks*, int64_t);
#include "scheduler_bugs.inc"
#undef SCHEDULER_BUG

namespace {

struct Bug {
  const char* name;
  std::unique_ptr<SchedulerUnderTest> (*make)(const coord::SchedulerOptions&,
                                              coord::SchedulerHooks*, int64_t);
};
/// How failures name it.
void PrintTo(const Bug& bug, std::ostream* out) { *out << bug.name; }
constexpr Bug kBugs[] = {
#define SCHEDULER_BUG(name) {#name, make_##name},
#include "scheduler_bugs.inc"
#undef SCHEDULER_BUG
};

constexpr int kSeeds = base::kIsSanitized ? 30 : 300;

CoordinatorReport run_well(uint64_t seed, const Wishes& wishes = {}) {
  const CoordinatorReport report = run_coordinator(draw_coordinator(seed, wishes));
  for (const std::string& complaint : report.complaints) {
    ADD_FAILURE() << complaint << "\nagain: ./dev sim --kind coordinator --seed " << seed
                  << wishes.to_string();
  }
  return report;
}

TEST(CoordinatorSimulation, TheSameSeedIsTheSameRun) {
  for (const uint64_t seed : {1, 2, 3}) {
    EXPECT_EQ(run_well(seed).hash, run_well(seed).hash);
    EXPECT_NE(run_well(seed).hash, run_well(seed + 1).hash);
  }
}

TEST(CoordinatorSimulation, ManySeedsGoWell) {
  int64_t values = 0, errors = 0, cancelled = 0, raised = 0, deaths = 0, held = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const CoordinatorReport report = run_well(seed);
    values += report.values;
    errors += report.errors;
    cancelled += report.cancelled;
    raised += report.raised;
    deaths += report.deaths;
    held += report.held;
  }
  // What happens to closures happens often.
  EXPECT_GT(values, 100 * kSeeds);
  EXPECT_GT(errors, kSeeds);
  EXPECT_GT(cancelled, kSeeds);
  EXPECT_GT(raised, kSeeds);
  EXPECT_GT(deaths, 10 * kSeeds);
  EXPECT_GT(held, kSeeds);
}

TEST(CoordinatorSimulation, AThousandWorkersGoWell) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_GT(run_well(seed, {.workers = 1200}).values, 100);
  }
}

TEST(CoordinatorSimulation, FreshSeedsGoWell) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto first = static_cast<uint64_t>(now / std::chrono::milliseconds(1)) % 1'000'000'000;
  for (uint64_t i = 0; i < kSeeds / 3; ++i) run_well(first + i);
}

class PlantedBug : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBug, IsFound) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const CoordinatorReport report = run_coordinator(draw_coordinator(seed, {}), GetParam().make);
    if (report.complaints.empty()) continue;
    fmt::print("seed {}: {}\n", seed, report.complaints.front());
    return;
  }
  FAIL() << "a scheduler that " << GetParam().name << " goes well with 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBug, testing::ValuesIn(kBugs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sidereal::sim
