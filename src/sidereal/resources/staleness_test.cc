#include "sidereal/resources/staleness.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "sidereal/metrics/staleness.h"

namespace sidereal::resources {
namespace {

metrics::Readings figures_of(const Staleness& of, std::string_view key) {
  metrics::Readings out;
  of.read(key, &out);
  return out;
}

metrics::HistogramSnapshot seen(const Staleness& of, std::string_view key, std::string table) {
  const metrics::Readings all = figures_of(of, key);
  const auto found = all.all().find(metrics::series_of(metrics::staleness(std::move(table))));
  return found == all.all().end() ? metrics::HistogramSnapshot() : found->second.histogram;
}

TEST(Staleness, IsHowManyChangesOfOthersCameBetween) {
  Staleness of;
  of.note_read(1);
  of.note_change(1, true);  // Nobody had begun to count.
  EXPECT_TRUE(figures_of(of, "w").all().empty());
  of.note_read(10);
  of.note_read(20);
  of.note_read(30);
  of.note_change(40, true);  // It has not read; it is one for the others.
  of.note_change(20, true);  // 1
  of.note_change(30, true);  // 2
  of.note_change(10, true);  // 3
  of.note_change(10, true);  // 0: of its own.
  const metrics::HistogramSnapshot all = seen(of, "w", "w");
  EXPECT_EQ(all.count, 4);
  EXPECT_EQ(all.sum, 6);
  EXPECT_EQ(all.max, 3);
}

TEST(Staleness, OfPartsIsThatOfTheirTable) {
  Staleness of;
  of.note_change(1, true);
  of.note_read(2);
  of.note_change(2, true);
  for (const char* const key : {"t", "t/part_0", "c|t", "c|t/part_17", "t/part_3_1"}) {
    EXPECT_EQ(seen(of, key, "t").count, 1) << key;
  }
  for (const char* const key : {"t/part_x", "t/part_", "t/part_1_", "t/part__1", "t/part_1_x"}) {
    EXPECT_EQ(seen(of, key, key).count, 1) << key;
  }
  metrics::Readings both;
  of.read("t/part_0", &both);
  of.read("t/part_1", &both);
  ASSERT_EQ(both.all().size(), 1U);
  EXPECT_EQ(both.all().begin()->second.histogram.count, 2);
}

TEST(Staleness, OfWhatIsNoTableHasNoName) {
  Staleness of;
  of.note_change(1, false);
  of.note_read(2);
  of.note_change(2, false);
  EXPECT_EQ(seen(of, "bias", "").count, 1);
}

/// What many steps read meanwhile may be forgotten; it is never mistaken for another one's.
TEST(Staleness, ThatIsNotKnownIsNotCounted) {
  Staleness of;
  of.note_change(1, true);
  constexpr uint64_t kSteps = 10'000;
  for (uint64_t step = 2; step < kSteps; ++step) of.note_read(step << 8);
  for (uint64_t step = 2; step < kSteps; ++step) of.note_change(step << 8, true);
  const metrics::HistogramSnapshot many = seen(of, "w", "w");
  EXPECT_GT(many.count, 100);
  EXPECT_LE(many.count, 256);
  EXPECT_LT(many.max, static_cast<int64_t>(kSteps));
  // A few at once are nearly all known.
  for (uint64_t step = 1; step <= 8; ++step) of.note_read(step);
  for (uint64_t step = 1; step <= 8; ++step) of.note_change(step, true);
  EXPECT_GE(seen(of, "w", "w").count, many.count + 6);
}

TEST(Staleness, OfAnIntervalIsWhatCameInIt) {
  metrics::Histogram histogram;
  for (const int64_t changes : {0, 5}) histogram.record(changes);
  const metrics::HistogramSnapshot before = histogram.snapshot();
  for (const int64_t changes : {1, 2, 2}) histogram.record(changes);
  const std::optional<metrics::HistogramSnapshot> lately =
      metrics::since(before, histogram.snapshot());
  ASSERT_TRUE(lately.has_value());
  EXPECT_EQ(lately->count, 3);
  EXPECT_EQ(lately->sum, 5);
  EXPECT_EQ(lately->max, 2);
  EXPECT_EQ(metrics::since({}, before)->count, 2);
  EXPECT_FALSE(metrics::since(histogram.snapshot(), before).has_value()) << "of another server";
}

}  // namespace
}  // namespace sidereal::resources
