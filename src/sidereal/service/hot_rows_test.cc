#include "sidereal/service/hot_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/service/hot_rows_message.h"
#include "sidereal/service/session.pb.h"

namespace sidereal::service {
namespace {

using resources::RowCount;
using task::HotVariable;

HotVariable part(const std::string& name, int64_t total, std::vector<RowCount> rows,
                 int64_t rows_of_it = 100) {
  return {.group = "g",
          .name = name,
          .lane = 1,
          .rows = rows_of_it,
          .pulls = {.total = total, .rows = rows},
          .pushes = {.total = total > INT64_MAX / 2 ? total : 2 * total, .rows = std::move(rows)}};
}

std::vector<TaskReport> reports(const std::vector<std::vector<HotVariable>>& hot) {
  std::vector<TaskReport> out;
  for (size_t i = 0; i < hot.size(); ++i) {
    TaskReport& one = out.emplace_back();
    one.task = fmt::format("/job:ps/replica:0/task:{}", i);
    one.hot = hot[i];
  }
  return out;
}

const std::vector<TaskReport> kTasks = reports(
    {{part("w/part_0", 100, {{.row = 4, .count = 40, .error = 10}}), part("w/part_2", 0, {})},
     {part("w/part_1", 100, {{.row = 7, .count = 60}}), part("v", 50, {{.row = 3, .count = 50}})}});

TEST(HotTables, HaveTheRowsOfAllPartsByTheirNumbersInTheTable) {
  const std::vector<HotTable> tables = hot_tables_of(kTasks, 10);
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[0].table, "v");
  EXPECT_EQ(tables[0].rows.at(0).row, 3);
  EXPECT_FALSE(tables[0].rows.at(0).part.has_value());
  const HotTable& w = tables[1];
  EXPECT_EQ(w.table, "w");
  EXPECT_EQ(w.group, "g");
  EXPECT_EQ(w.pulled_rows, 200);
  EXPECT_EQ(w.pushed_rows, 400);
  ASSERT_EQ(w.rows.size(), 2U);
  EXPECT_EQ(w.rows[0].row, 7 * 3 + 1);
  EXPECT_EQ(w.rows[0].task, "/job:ps/replica:0/task:1");
  EXPECT_EQ(w.rows[0].lane, 1);
  EXPECT_DOUBLE_EQ(w.rows[0].pulls->at_least, 0.3);
  EXPECT_DOUBLE_EQ(w.rows[0].pushes->at_least, 0.15);
  EXPECT_EQ(w.rows[1].row, 4 * 3);
  EXPECT_DOUBLE_EQ(w.rows[1].pulls->at_least, 0.15);
  EXPECT_DOUBLE_EQ(w.rows[1].pulls->error, 0.05);
  EXPECT_EQ(hot_tables_of(kTasks, 1)[1].rows.size(), 1U);
}

TEST(HotTables, HaveThemAsTheirPartsAreMeant) {
  const std::vector<HotTable> blocks = hot_tables_of(kTasks, 10, Parts::kBlocks);
  EXPECT_EQ(blocks.at(1).rows.at(0).row, 107);
  EXPECT_EQ(blocks.at(1).rows.at(1).row, 4);
  const std::vector<HotTable> apart = hot_tables_of(kTasks, 10, Parts::kApart);
  ASSERT_EQ(apart.size(), 3U);
  EXPECT_EQ(apart[1].table, "w/part_1");
  EXPECT_EQ(apart[1].rows.at(0).row, 7);
}

TEST(HotTables, DoNotNumberRowsOfATableThatLacksAPart) {
  std::vector<TaskReport> tasks = kTasks;
  tasks[1].hot.clear();
  const std::vector<HotTable> tables = hot_tables_of(tasks, 10);
  ASSERT_EQ(tables.size(), 1U);
  ASSERT_EQ(tables[0].rows.size(), 1U);
  EXPECT_FALSE(tables[0].rows[0].row.has_value());
  EXPECT_EQ(tables[0].rows[0].part, 0);
  EXPECT_EQ(tables[0].rows[0].row_of_part, 4);
}

TEST(HotTables, AreOnesOfTheirGroup) {
  std::vector<TaskReport> tasks = kTasks;
  for (TaskReport& one : reports({{part("w/part_0", 10, {{.row = 1, .count = 10}})}})) {
    one.hot[0].group = "other";
    tasks.push_back(one);
  }
  const std::vector<HotTable> tables = hot_tables_of(tasks, 10);
  ASSERT_EQ(tables.size(), 3U);
  EXPECT_EQ(tables[2].rows.at(0).row, 22);
}

TEST(HotTables, HaveWhatAStrategyCallsAgainAndNoSlots) {
  const auto tasks =
      reports({{part("w/part_0", 10, {}), part("w/part_1_1", 10, {{.row = 2, .count = 10}}),
                part("w/part_1/Adagrad", 10, {{.row = 3, .count = 10}}),
                part("w/part_99999999999", 10, {{.row = 4, .count = 10}})}});
  const std::vector<HotTable> tables = hot_tables_of(tasks, 10);
  ASSERT_EQ(tables.size(), 3U);
  EXPECT_EQ(tables[0].table, "w/part_1/Adagrad");
  EXPECT_EQ(tables[0].rows.at(0).row, 3);
  EXPECT_EQ(tables[1].table, "w/part_99999999999");
  EXPECT_EQ(tables[2].table, "w");
  EXPECT_EQ(tables[2].rows.at(0).row, 2 * 2 + 1);
}

TEST(HotTables, TakeWhateverNumbersTasksSay) {
  const std::vector<RowCount> rows = {{.row = INT64_MAX, .count = INT64_MAX}, {.row = 1}};
  for (const std::string name : {"w/part_99999999999999999999", "w/part_2147483647", "/part_0",
                                 "w/part_1_99999999999999999999", "c|", "|", "", "c|w/part_1"}) {
    for (const Parts parts : {Parts::kApart, Parts::kModulo, Parts::kBlocks}) {
      const auto tasks =
          reports({{part(name, INT64_MAX, rows, INT64_MAX), part("w/part_0", INT64_MAX, rows),
                    part("w/part_1", INT64_MAX, rows, INT64_MAX), part("w/part_2", 1, rows)}});
      EXPECT_FALSE(hot_tables_of(tasks, 10, parts).empty()) << name;
    }
  }
}

TEST(HotRowsInMessages, arrive_as_they_were) {
  session::v1::TaskStatus message;
  write_hot_variables(kTasks[0].hot, &message);
  const std::vector<HotVariable> got = hot_variables_of(message);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].group, "g");
  EXPECT_EQ(got[0].name, "w/part_0");
  EXPECT_EQ(got[0].lane, 1);
  EXPECT_EQ(got[0].rows, 100);
  EXPECT_EQ(got[0].pulls.total, 100);
  ASSERT_EQ(got[0].pushes.rows.size(), 1U);
  EXPECT_EQ(got[0].pushes.rows[0].row, 4);
  EXPECT_EQ(got[0].pushes.rows[0].count, 40);
  EXPECT_EQ(got[0].pushes.rows[0].error, 10);
}

TEST(HotRowsInMessages, that_lie_are_left_out) {
  using v1 = session::v1::HotVariable;
  const std::vector<std::function<void(v1*)>> lies = {
      [](v1* one) { one->set_lane(-1); },
      [](v1* one) { one->set_rows(-2); },
      [](v1* one) { one->mutable_pulls()->set_total(-1); },
      [](v1* one) { one->mutable_pulls()->add_rows(1); },
      [](v1* one) { one->mutable_pushes()->add_counts(1); },
      [](v1* one) { one->mutable_pushes()->add_errors(1); },
      [](v1* one) { one->mutable_pulls()->set_rows(0, -1); },
      [](v1* one) { one->mutable_pulls()->set_counts(0, -1); },
      [](v1* one) { one->mutable_pulls()->set_errors(0, -1); },
      [](v1* one) { one->mutable_pulls()->set_errors(0, 41); },
      [](v1* one) { one->mutable_pulls()->set_errors(0, INT64_MIN); },
      [](v1* one) {
        for (size_t i = 0; i < task::kHotRowsMax; ++i) {
          one->mutable_pulls()->add_rows(1);
          one->mutable_pulls()->add_counts(1);
          one->mutable_pulls()->add_errors(0);
        }
      },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    session::v1::TaskStatus message;
    write_hot_variables(kTasks[0].hot, &message);
    lies[i](message.mutable_hot_variables(0));
    const std::vector<HotVariable> got = hot_variables_of(message);
    ASSERT_EQ(got.size(), 1U) << i;
    EXPECT_EQ(got[0].name, "w/part_2");
  }
}

TEST(HotRowsInMessages, are_not_more_than_are_looked_at) {
  session::v1::TaskStatus message;
  for (int i = 0; i < 70'000; ++i) message.add_hot_variables()->set_name("w");
  EXPECT_EQ(hot_variables_of(message).size(), 65'536U);
}

}  // namespace
}  // namespace sidereal::service
