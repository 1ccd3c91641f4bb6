#include "sidereal/resources/hot_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace sidereal::resources {
namespace {

using std::chrono::minutes;
using std::chrono::system_clock;

TEST(HotRows, CountsAllRowsWhileTheyAreFew) {
  HotRows of;
  EXPECT_EQ(of.read(10, system_clock::now()).total, 0);
  const auto begun = system_clock::now();
  for (int i = 0; i < 100; ++i) of.note(std::vector<int64_t>{7, 1000 + i, 9});
  const RowCounts counts = of.read(10, begun);
  // A minute may have ended meanwhile.
  EXPECT_GE(counts.total, 150);
  EXPECT_LE(counts.total, 300);
  ASSERT_EQ(counts.rows.size(), 2U) << "others were met once, which is chance";
  EXPECT_EQ(counts.rows[0].row + counts.rows[1].row, 16);
  EXPECT_EQ(counts.rows[0].error, 0);
}

TEST(HotRows, EstimatesWhatPartOfCallsARowIsOf) {
  for (const size_t size : {1, 2, 3, 5, 8, 13, 16}) {
    SCOPED_TRACE(size);
    std::mt19937_64 random(size);
    HotRows of;
    int64_t total = 0;
    // One row is first in every other call: an order that no way to draw may keep step with.
    for (int call = 0; total < 4'000'000; ++call) {
      std::vector<int64_t> rows(size);
      for (int64_t& row : rows) row = static_cast<int64_t>(random() % 1'000'000'000);
      if (call % 2 == 0) rows[0] = -1;
      of.note(rows);
      total += static_cast<int64_t>(size);
    }
    const RowCounts counts = of.read(10, system_clock::now());
    const double share = 0.5 / static_cast<double>(size);
    ASSERT_EQ(counts.rows.size(), 1U);
    EXPECT_EQ(counts.rows[0].row, -1);
    const auto of_total = static_cast<double>(counts.total);
    EXPECT_GT(of_total, 0.2 * static_cast<double>(total)) << "minutes may end meanwhile";
    EXPECT_LE(of_total, 1.1 * static_cast<double>(total));
    // Of some hundred that were looked at.
    const double chance = 4 * std::sqrt(share / 512);
    EXPECT_GT(static_cast<double>(counts.rows[0].count) / of_total, share - chance);
    EXPECT_LT(static_cast<double>(counts.rows[0].at_least()) / of_total, share + chance);
  }
}

TEST(HotRows, ForgetsWhatIsLongAgo) {
  HotRows of;
  const auto now = system_clock::now();
  for (int i = 0; i < 1000; ++i) of.note(std::vector<int64_t>{7});
  const int64_t total = of.read(10, now).total;
  EXPECT_LE(of.read(10, now + minutes(2)).total, total / 4 + 1);
  EXPECT_TRUE(of.read(10, now + minutes(60)).rows.empty());
  EXPECT_EQ(of.read(10, now + minutes(600'000)).total, 0);
  EXPECT_GE(of.read(10, now - minutes(60)).total, total / 2) << "a clock that was set back";
}

TEST(HotRows, TellsNoMoreThanIsWanted) {
  HotRows of;
  for (int i = 0; i < 20; ++i) {
    for (int64_t row = 0; row < 30; ++row) {
      if (row <= i + 10) of.note(std::vector<int64_t>{row});
    }
  }
  const RowCounts counts = of.read(3, system_clock::now());
  ASSERT_EQ(counts.rows.size(), 3U);
  for (const RowCount& one : counts.rows) EXPECT_LE(one.row, 10);
}

}  // namespace
}  // namespace sidereal::resources
