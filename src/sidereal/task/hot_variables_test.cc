#include "sidereal/task/hot_variables.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sidereal/metrics/hot_rows.h"

namespace sidereal::task {
namespace {

using resources::RowCount;

HotVariable pulled(std::string name, int64_t total, std::vector<RowCount> rows,
                   std::string group = "g") {
  return {.group = std::move(group),
          .name = std::move(name),
          .pulls = {.total = total, .rows = std::move(rows)},
          .pushes = {}};
}

TEST(HotVariables, LeavesTheRowsOfATableThatAreUsedMostOverItsParts) {
  std::vector<HotVariable> all = {
      pulled("w/part_0", 100, {{.row = 1, .count = 50}, {.row = 2, .count = 30}}),
      pulled("w/part_1", 10, {{.row = 3, .count = 40, .error = 35}}),
      pulled("w/part_2", 0, {}),
      pulled("v", 20, {{.row = 4, .count = 2}}),
  };
  keep_hottest(&all, 2);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].pulls.rows.size(), 2U);
  EXPECT_TRUE(all[1].pulls.rows.empty()) << "5 at least";
  EXPECT_EQ(all[3].pulls.rows.size(), 1U) << "of another table";
  keep_hottest(&all, 0);
  EXPECT_TRUE(all[0].pulls.rows.empty());
  EXPECT_EQ(all[0].pulls.total, 100);
}

TEST(HotVariables, TellsOfNoMoreTablesThanItMay) {
  std::vector<HotVariable> all;
  for (size_t i = 0; i < kHotTablesMax + 10; ++i) {
    const auto total = static_cast<int64_t>(i);
    all.push_back(pulled(fmt::format("t{}/part_0", i), total, {}));
    all.push_back(pulled(fmt::format("t{}/part_1", i), total, {}));
  }
  keep_hottest(&all, 5);
  ASSERT_EQ(all.size(), 2 * kHotTablesMax);
  EXPECT_EQ(all.front().name, "t10/part_0");
}

TEST(HotVariables, TellWhatShareOfATableItsHottestRowsHave) {
  std::vector<RowCount> rows;
  for (int64_t row = 0; row < 20; ++row) rows.push_back({.row = row, .count = 10});
  metrics::Readings figures;
  read_hot_rows({pulled("w/part_0", 600, rows),
                 pulled("w/part_1", 400, {{.row = 0, .count = 260, .error = 10}}),
                 pulled("w/part_0", 1000, rows, "other group")},
                &figures);
  const auto told = [&](const metrics::Declaration& what) {
    return static_cast<double>(figures.series(metrics::series_of(what))) * 1e-9;
  };
  EXPECT_DOUBLE_EQ(told(metrics::hottest_row("w", "pull")), 0.25);
  EXPECT_DOUBLE_EQ(told(metrics::hottest_ten("w", "pull")), 0.34);
  EXPECT_EQ(metrics::wrong_with(metrics::hottest_row("w", "pull")), "");
  EXPECT_EQ(metrics::wrong_with(metrics::hottest_ten("w", "pull")), "");
  EXPECT_EQ(figures.all().size(), 6U) << "no push, and those that are always there";
}

}  // namespace
}  // namespace sidereal::task
