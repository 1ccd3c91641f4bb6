#include "sidereal/resources/staleness.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/metrics/staleness.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/resources/pushed_by.h"

namespace sidereal::resources {
namespace {

constexpr int kOne = 1;
constexpr int kOther = 2;

metrics::Readings figures_of(const Staleness& of, std::string_view key,
                             const std::vector<uint64_t>& committed = {}) {
  metrics::Readings out;
  of.read(key, std::vector<std::string>{"", "one", "other"}, committed, &out);
  return out;
}

metrics::HistogramSnapshot seen(const Staleness& of, std::string_view key, std::string table,
                                std::string worker = "one") {
  const metrics::Readings all = figures_of(of, key);
  const auto found =
      all.all().find(metrics::series_of(metrics::staleness(std::move(table), std::move(worker))));
  return found == all.all().end() ? metrics::HistogramSnapshot() : found->second.histogram;
}

TEST(Staleness, IsHowManyChangesOfOthersCameBetween) {
  Staleness of;
  of.note_read(1, kOne);
  of.note_change(1, kOne, true, 5);  // Nobody had begun to count.
  EXPECT_EQ(seen(of, "w", "w").count, 0);
  of.note_read(10, kOne);
  of.note_read(20, kOne);
  of.note_read(30, kOne);
  of.note_change(40, kOne, true, 5);  // It has not read; it is one for the others.
  of.note_change(20, kOne, true, 5);  // 1
  of.note_change(30, kOne, true, 5);  // 2
  of.note_change(10, kOne, true, 5);  // 3
  of.note_change(10, kOne, true, 5);  // 0: of its own.
  const metrics::HistogramSnapshot all = seen(of, "w", "w");
  EXPECT_EQ(all.count, 4);
  EXPECT_EQ(all.sum, 6);
  EXPECT_EQ(all.max, 3);
}

TEST(Staleness, OfPartsIsThatOfTheirTable) {
  Staleness of;
  of.note_change(1, kOne, true, 5);
  of.note_read(2, kOne);
  of.note_change(2, kOne, true, 5);
  for (const char* const key : {"t", "t/part_0", "c|t", "c|t/part_17", "t/part_3_1"}) {
    EXPECT_EQ(seen(of, key, "t").count, 1) << key;
  }
  for (const char* const key :
       {"t/part_x", "t/part_1_x", "t/part_0/Adam", "t/part_99999999999999"}) {
    EXPECT_EQ(seen(of, key, key).count, 1) << key;
  }
  const std::vector<std::string> names = {"", "one"};
  metrics::Readings both;
  of.read("t/part_0", names, {}, &both);
  of.read("t/part_1", names, {}, &both);
  EXPECT_EQ(both.all().at(metrics::series_of(metrics::staleness("t", "one"))).histogram.count, 2);
  EXPECT_EQ(both.series("sidereal_pushes_total{table=\"t\"}"), 4);
}

TEST(Staleness, OfWhatIsNoTableHasNoName) {
  Staleness of;
  of.note_change(1, kOne, false, 5);
  of.note_read(2, kOne);
  of.note_change(2, kOne, false, 5);
  EXPECT_EQ(seen(of, "bias", "").count, 1);
}

TEST(Staleness, IsToldApartByWhoPushes) {
  Staleness of;
  of.note_change(1, kOne, true, 0);
  of.note_read(2, kOne);
  of.note_read(3, kOther);
  of.note_read(4, Pushers::kOthers);
  of.note_change(3, kOther, true, 0);            // 0
  of.note_change(2, kOne, true, 0);              // 1
  of.note_change(4, Pushers::kOthers, true, 0);  // 2
  EXPECT_EQ(seen(of, "w", "w", "one").sum, 1);
  EXPECT_EQ(seen(of, "w", "w", "other").count, 1);
  EXPECT_EQ(seen(of, "w", "w", "other").sum, 0);
  EXPECT_EQ(seen(of, "w", "w", "").sum, 2);
  // One that goes is one of the others, and its number another one's.
  of.put_aside(std::vector<int>{kOne});
  EXPECT_EQ(seen(of, "w", "w", "one").count, 0);
  EXPECT_EQ(seen(of, "w", "w", "").count, 2);
  EXPECT_EQ(seen(of, "w", "w", "").sum, 3);
  of.note_read(5, kOne);
  of.note_change(5, kOne, true, 0);
  EXPECT_EQ(seen(of, "w", "w", "one").count, 1);
  EXPECT_EQ(seen(of, "w", "w", "one").sum, 0);
  EXPECT_EQ(seen(of, "w", "w", "").count, 2);
}

TEST(Staleness, OfAStepIsKnownWhateverNumbersAFewOthersHave) {
  for (uint64_t slow = 1; slow <= 300; ++slow) {
    Staleness of;
    of.note_change(1000, kOne, true, 0);
    of.note_read(slow, kOne);
    for (uint64_t other = 1001; other <= 1003; ++other) {
      of.note_read(other, kOther);
      of.note_change(other, kOther, true, 0);
    }
    of.note_change(slow, kOne, true, 0);
    EXPECT_EQ(seen(of, "w", "w", "one").sum, 3) << slow;
  }
}

TEST(Staleness, OfManyChangesIsCountedInTheLastBucket) {
  Staleness of;
  of.note_change(1, kOne, true, 0);
  of.note_read(2, kOne);
  constexpr int64_t kChanges = 200'000;
  for (int64_t i = 0; i < kChanges; ++i) of.note_change(3, kOther, true, 0);
  of.note_change(2, kOne, true, 0);
  const metrics::HistogramSnapshot one = seen(of, "w", "w", "one");
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.sum, kChanges);
  EXPECT_EQ(one.max, kChanges);
  EXPECT_GE(one.quantile(1), 131'071);
}

TEST(Staleness, SaysWhatNoCheckpointHasThatIsInPlace) {
  Staleness of;
  std::vector<uint64_t> committed;
  const auto figure = [&](const char* name) {
    return figures_of(of, "c|w/part_1", committed).series(name);
  };
  of.note_cut(100);
  for (uint64_t step = 1; step <= 3; ++step) of.note_change(step, kOne, true, 7);
  EXPECT_EQ(figure("sidereal_unsaved_pushes{table=\"w\"}"), 3);
  EXPECT_EQ(figure("sidereal_unsaved_rows{table=\"w\"}"), 21);
  const Staleness::Pushed cut = of.note_cut(101);
  EXPECT_EQ(cut.pushes, 3);
  EXPECT_EQ(cut.rows, 21);
  EXPECT_TRUE(cut.is_table);
  of.note_change(4, kOther, true, 2);
  // It is being written.
  EXPECT_EQ(figure("sidereal_unsaved_pushes{table=\"w\"}"), 4);
  of.note_cut(102);
  of.note_change(5, kOther, true, 2);
  committed = {101};
  EXPECT_EQ(figure("sidereal_unsaved_pushes{table=\"w\"}"), 2);
  EXPECT_EQ(figure("sidereal_unsaved_rows{table=\"w\"}"), 4);
  // Cut 102 has failed, and the next one is in place.
  of.note_cut(103);
  committed = {101, 103};
  EXPECT_EQ(figure("sidereal_unsaved_pushes{table=\"w\"}"), 0);
  EXPECT_EQ(figure("sidereal_unsaved_rows{table=\"w\"}"), 0);
  EXPECT_EQ(figure("sidereal_held_pushes{table=\"w\"}"), 5);
  EXPECT_EQ(figure("sidereal_held_rows{table=\"w\"}"), 25);
  EXPECT_EQ(figure("sidereal_pushes_total{table=\"w\"}"), 5);
  EXPECT_EQ(figure("sidereal_pushed_rows_total{table=\"w\"}"), 25);
}

TEST(Staleness, OfValuesThatWereRestoredHasWhatTheseHave) {
  const auto counts = std::make_shared<PushCounts>(9);
  {
    Staleness of;
    const auto figure = [&](const char* name) { return figures_of(of, "w").series(name); };
    of.note_change(0, kOne, true, 7);
    EXPECT_EQ(counts->read(3).number, 0) << "by no lane";
    const PushCounts::OnLane here(counts.get(), 3);
    Staleness on;
    for (uint64_t step = 1; step <= 5; ++step) on.note_change(step, kOne, true, 7);
    EXPECT_EQ(counts->read(3).pushes, 5);
    on.note_restored({.pushes = 2, .rows = 14, .is_table = true});
    on.note_change(6, kOne, true, 7);
    const metrics::Readings all = figures_of(on, "w");
    EXPECT_EQ(all.series("sidereal_unsaved_pushes{table=\"w\"}"), 1);
    EXPECT_EQ(all.series("sidereal_held_pushes{table=\"w\"}"), 3);
    EXPECT_EQ(all.series("sidereal_held_rows{table=\"w\"}"), 21);
    EXPECT_EQ(all.series("sidereal_pushes_total{table=\"w\"}"), 6);
    EXPECT_EQ(counts->read(3).number, 6);
    EXPECT_EQ(counts->read(3).pushes, 3);
    EXPECT_EQ(counts->read(3).rows, 21);
    on.end();
    on.end();
    EXPECT_EQ(counts->read(3).pushes, 0);
    EXPECT_EQ(figure("sidereal_pushes_total{table=\"w\"}"), 1);
  }
  EXPECT_EQ(counts->read(3).rows, 0);
  EXPECT_EQ(PushCounts::here(), nullptr);
}

TEST(PushCounts, SayWhatLanesHave) {
  PushCounts counts(9);
  counts.add(1, 5);
  counts.add(1, 0);
  counts.add(1, 2);
  counts.add(255, 2);
  counts.drop(1, 2, 4);
  const PushedSoFar one = counts.read(1);
  EXPECT_EQ(one.life, 9U);
  EXPECT_EQ(one.lane, 1);
  EXPECT_EQ(one.number, 3);
  EXPECT_EQ(one.pushes, 1);
  EXPECT_EQ(one.rows, 3);
  EXPECT_EQ(counts.read(0).number, 0);
}

TEST(PushCounts, KnowWhichCheckpointsAreInPlace) {
  PushCounts counts(9);
  for (const uint64_t cut : {1, 2, 3}) counts.wrote({.cut = cut, .prefix = "model"});
  counts.commit("model", {{7}});
  EXPECT_EQ(counts.written().size(), 3U) << "an index that is older than all";
  counts.commit("model", {{2, 7, 1}});
  ASSERT_EQ(counts.written().size(), 1U);
  EXPECT_EQ(counts.written()[0].cut, 3U);
  EXPECT_EQ(counts.committed(), (std::vector<uint64_t>{1, 2}));
}

TEST(PushCounts, ForgetCheckpointsThatWereReplacedBeforeTheyWereSeen) {
  PushCounts counts(9);
  counts.wrote({.cut = 1, .prefix = "other"});
  for (const uint64_t cut : {2, 3, 4}) counts.wrote({.cut = cut, .prefix = "model"});
  counts.commit("model", {{3}});
  ASSERT_EQ(counts.written().size(), 2U);
  EXPECT_EQ(counts.written()[0].prefix, "other");
  EXPECT_EQ(counts.written()[1].cut, 4U);
  EXPECT_EQ(counts.committed(), std::vector<uint64_t>{3});
}

TEST(Pushers, HaveANumberAsLongAsSomebodyHoldsIt) {
  Pushers all;
  EXPECT_EQ(all.enter("")->number(), Pushers::kOthers);
  auto one = all.enter("one");
  auto again = all.enter("one");
  EXPECT_EQ(one->number(), again->number());
  EXPECT_NE(one->number(), Pushers::kOthers);
  const int first = one->number();
  EXPECT_EQ(all.names()[static_cast<size_t>(first)], "one");
  one.reset();
  EXPECT_TRUE(all.gone().empty());
  again.reset();
  EXPECT_EQ(all.gone(), std::vector<int>{first});
  // What was counted with it is not another life's.
  one = all.enter("one");
  EXPECT_NE(one->number(), first);
  all.set_free(all.gone());
  EXPECT_EQ(all.enter("other")->number(), first);
}

TEST(Pushers, AreOthersWhereThereAreTooMany) {
  Pushers all;
  std::vector<std::shared_ptr<const Pushers::Pusher>> held;
  for (size_t i = 0; i < Pushers::kMax; ++i) held.push_back(all.enter(std::to_string(i)));
  EXPECT_EQ(held.back()->number(), static_cast<int>(Pushers::kMax));
  EXPECT_EQ(all.enter("one more")->number(), Pushers::kOthers);
  EXPECT_EQ(all.enter("3")->number(), held[3]->number());
  held.clear();
  all.set_free(all.gone());
  EXPECT_EQ(all.enter("one more")->number(), 1);
}

/// The numbers of steps are those of their sessions.
TEST(PushedBy, TellsStepsOfSessionsApart) {
  Pushers all;
  const auto one = all.enter("one");
  const int here = pushed_by(*one, 0x1234'5678'9abc'def0);
  const int there = pushed_by(*one, 0x1234'5678'9abc'def1);
  EXPECT_GE(here, 0);
  EXPECT_EQ(pusher_of(here), one->number());
  EXPECT_EQ(pusher_of(there), one->number());
  EXPECT_NE(step_of(5, here), step_of(5, there));
  EXPECT_NE(step_of(5, here), step_of(6, here));
  EXPECT_EQ(pusher_of(pushed_by(*all.enter(""), UINT64_MAX)), Pushers::kOthers);
}

/// What many steps read meanwhile may be forgotten; it is never mistaken for another one's.
TEST(Staleness, ThatIsNotKnownIsNotCounted) {
  Staleness of;
  of.note_change(1, kOne, true, 5);
  constexpr uint64_t kSteps = 10'000;
  for (uint64_t step = 2; step < kSteps; ++step) of.note_read(step << 8, kOne);
  for (uint64_t step = 2; step < kSteps; ++step) of.note_change(step << 8, kOne, true, 5);
  const metrics::HistogramSnapshot many = seen(of, "w", "w");
  EXPECT_GE(many.count, 8);
  EXPECT_LE(many.count, 16);
  EXPECT_LT(many.max, static_cast<int64_t>(kSteps));
  // A few at once are nearly all known.
  for (uint64_t step = 1; step <= 8; ++step) of.note_read(step, kOne);
  for (uint64_t step = 1; step <= 8; ++step) of.note_change(step, kOne, true, 5);
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
