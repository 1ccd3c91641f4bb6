#include "sidereal/train/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "sidereal/base/part_name.h"
#include "sidereal/train/models.h"

namespace sidereal::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

CompiledModel wide_and_deep(int64_t rows = 100) {
  ModelOptions options;
  options.kind = "wdl";
  options.schema.fields = 3;
  options.schema.rows = rows;
  options.embedding_dim = 4;
  options.hidden = {8};
  options.optimizer = optimizer_of("adam");
  return build_model(options).value();
}

/// How many parts of a table each task has.
std::vector<int64_t> counts(const Placement& placement, const std::string& table) {
  std::vector<int64_t> out(static_cast<size_t>(placement.topology.ps));
  for (const int task : placement.tasks.at(table)) ++out[static_cast<size_t>(task)];
  return out;
}

/// The parts of a table that each lane of a task has.
std::vector<int64_t> lanes_of(const Placement& placement, const std::string& table, int task) {
  std::vector<int64_t> out(static_cast<size_t>(placement.topology.lanes));
  const std::vector<int>& tasks = placement.tasks.at(table);
  for (size_t k = 0; k < tasks.size(); ++k) {
    if (tasks[k] != task) continue;
    ++out[base::lanes_further(static_cast<int>(k), placement.topology.ps) % out.size()];
  }
  return out;
}

constexpr const char* kTable = "embedding/table";

TEST(Placement, a_table_has_parts_for_each_lane_of_the_whole_cluster_and_begins_where_it_is_told) {
  const CompiledModel model = wide_and_deep();
  const Topology topology{.ps = 3, .lanes = 2};
  EXPECT_THAT(counts(first_placement(model, topology).value(), kTable), ElementsAre(8, 8, 8));
  const Placement one = first_placement(model, topology, {.start_ps = 1}).value();
  EXPECT_THAT(counts(one, kTable), ElementsAre(24, 0, 0));
  EXPECT_THAT(one.ps, ElementsAre(0));
  for (int task = 0; task < 2; ++task) {
    const Placement two = first_placement(model, topology, {.start_ps = 2}).value();
    EXPECT_THAT(counts(two, kTable), ElementsAre(12, 12, 0));
    EXPECT_THAT(lanes_of(two, kTable, task), ElementsAre(6, 6));
  }
  // Round robin, where it is on all.
  const Placement all = first_placement(model, topology, {.parts_per_lane = 1}).value();
  EXPECT_THAT(all.tasks.at(kTable), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_EQ(first_placement(wide_and_deep(2), topology).value().tasks.at(kTable).size(), 2U);
}

TEST(Placement, says_what_options_cannot_be) {
  const CompiledModel model = wide_and_deep();
  const auto code = [&](const Topology& topology, const PlacementOptions& options) {
    return first_placement(model, topology, options).status().code();
  };
  EXPECT_EQ(code({.ps = 0}, {}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({.ps = 2}, {.parts_per_lane = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.ps = 2}, {.parts_per_lane = 1 << 20}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.ps = 2}, {.start_ps = 3}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.ps = 2}, {.start_ps = -1}), StatusCode::kInvalidArgument);
}

TEST(Placement, a_third_parameter_server_gets_a_third_and_nothing_else_moves) {
  const CompiledModel model = wide_and_deep();
  const Placement two = first_placement(model, {.ps = 3, .lanes = 2}, {.start_ps = 2}).value();
  const Placement three = scaled(to_spread(model, two), two, 3).value();
  EXPECT_THAT(three.ps, ElementsAre(0, 1, 2));
  EXPECT_THAT(counts(three, kTable), ElementsAre(8, 8, 8));
  for (const PartMove& move : moves_between(to_spread(model, two), two, three))
    EXPECT_EQ(move.to, 2);
  for (const int task : {0, 1, 2}) EXPECT_THAT(lanes_of(three, kTable, task), ElementsAre(4, 4));
  // And back: what the third one has goes to the two, half to each.
  const Placement back = scaled(to_spread(model, three), three, 2).value();
  EXPECT_THAT(counts(back, kTable), ElementsAre(12, 12, 0));
  for (const PartMove& move : moves_between(to_spread(model, three), three, back)) {
    EXPECT_TRUE(move.variable != kTable || move.from == 2);
  }
}

TEST(Placement, what_changes_nothing_is_as_it_was) {
  const CompiledModel model = wide_and_deep();
  const Placement two = first_placement(model, {.ps = 2}).value();
  EXPECT_EQ(scaled(to_spread(model, two), two, 2).value(), two);
  EXPECT_EQ(rebalanced(to_spread(model, two), two, {}).value(), two);
  EXPECT_EQ(rebalanced(to_spread(model, two), two, {1.0, 1.02}).value(), two);
  EXPECT_THAT(moves_between(to_spread(model, two), two, two), IsEmpty());
}

TEST(Placement, a_task_that_is_drained_has_nothing) {
  const CompiledModel model = wide_and_deep();
  const Placement three = first_placement(model, {.ps = 3, .lanes = 2}).value();
  const Placement made = drained(to_spread(model, three), three, 1).value();
  EXPECT_THAT(made.ps, ElementsAre(0, 2));
  EXPECT_THAT(counts(made, kTable), ElementsAre(12, 0, 12));
  for (const auto& [name, tasks] : made.tasks) EXPECT_THAT(tasks, Each(testing::Ne(1))) << name;
  for (const PartMove& move : moves_between(to_spread(model, three), three, made))
    EXPECT_EQ(move.from, 1);
}

TEST(Placement, refuses_what_cannot_be_and_says_what_to_do) {
  const CompiledModel model = wide_and_deep();
  const Placement two = first_placement(model, {.ps = 3}, {.start_ps = 2}).value();
  const auto text = [](const auto& made) { return base::message_of(made.status()); };
  EXPECT_THAT(text(scaled(to_spread(model, two), two, 0)), HasSubstr("end its program"));
  EXPECT_THAT(text(scaled(to_spread(model, two), two, 4)),
              HasSubstr("the cluster has 3 parameter servers"));
  EXPECT_THAT(text(drained(to_spread(model, two), two, 2)),
              HasSubstr("the model is not on /job:ps/task:2"));
  EXPECT_THAT(text(drained(to_spread(model, two), two, 7)),
              HasSubstr("the cluster has no /job:ps/task:7"));
  EXPECT_THAT(text(drained(to_spread(model, two), two, -1)), HasSubstr("the cluster has no"));
  EXPECT_THAT(text(drained(to_spread(model, two), two, 0)), HasSubstr("drain another one"));
  const Placement one = scaled(to_spread(model, two), two, 1).value();
  EXPECT_THAT(text(drained(to_spread(model, one), one, 0)),
              HasSubstr("scale to more of them first"));
}

TEST(Placement, parts_leave_the_task_that_has_more_to_do) {
  const CompiledModel model = wide_and_deep();
  const Placement two = first_placement(model, {.ps = 2, .lanes = 4}).value();
  const Placement made = rebalanced(to_spread(model, two), two, {3.0, 1.0}).value();
  Placement none = two;
  for (auto& [name, tasks] : none.tasks) tasks.assign(tasks.size(), 2);
  double first = 0;
  for (const PartMove& part : moves_between(to_spread(model, two), two, none)) {
    if (part.from == 0) first += static_cast<double>(part.bytes);
  }
  double moved = 0;
  for (const PartMove& move : moves_between(to_spread(model, two), two, made)) {
    EXPECT_EQ(move.from, 0);
    moved += static_cast<double>(move.bytes);
  }
  // A third of what the first one had, so that each has 2.
  EXPECT_THAT(3 * moved / first, testing::DoubleNear(1, 0.1));
}

// Whatever comes after whatever: tables are as even as parts allow, and what must not move stays.
TEST(Placement, any_commands_leave_each_table_even) {
  std::mt19937 random(7);
  const auto below = [&](int limit) {
    return std::uniform_int_distribution<int>(0, limit - 1)(random);
  };
  for (int round = 0; round < 50; ++round) {
    const CompiledModel model = wide_and_deep(5 + below(200));
    const Topology topology{.ps = 1 + below(6), .lanes = 1 + below(3)};
    Placement now =
        first_placement(model, topology,
                        {.parts_per_lane = 1 + below(5), .start_ps = below(topology.ps + 1)})
            .value();
    for (int step = 0; step < 8; ++step) {
      const int what = below(topology.ps);
      const auto next = below(2) == 0 ? scaled(to_spread(model, now), now, 1 + what)
                                      : drained(to_spread(model, now), now, what);
      if (!next.ok()) continue;
      for (const auto& [name, tasks] : next->tasks) {
        std::vector<int64_t> had(static_cast<size_t>(topology.ps));
        for (const int task : tasks) {
          EXPECT_TRUE(std::ranges::binary_search(next->ps, task)) << name;
          ++had[static_cast<size_t>(task)];
        }
        std::vector<int64_t> used;
        for (const int task : next->ps) used.push_back(had[static_cast<size_t>(task)]);
        if (tasks.size() > 1) {
          EXPECT_LE(std::ranges::max(used) - std::ranges::min(used), 1) << name;
        }
      }
      for (const PartMove& move : moves_between(to_spread(model, now), now, *next))
        EXPECT_NE(move.from, move.to);
      now = *next;
    }
  }
}

TEST(Placement, of_variables_that_are_no_models_has_parts_of_tables_and_whole_ones) {
  std::vector<HeldVariable> all = {{"t/part_0/Adagrad", 7, 0}, {"u/part_1", 5, 1}, {"v", 9, 0}};
  for (int k = 0; k < 12; ++k) {
    all.push_back({.name = base::part_name("t", k), .bytes = 100 + k, .task = k % 2});
  }
  const Spread two = spread_of(3, {1, 0, 1}, all).value();
  EXPECT_THAT(two.placement.ps, ElementsAre(0, 1));
  EXPECT_THAT(counts(two.placement, "t"), ElementsAre(6, 6, 0));
  EXPECT_THAT(two.variables, SizeIs(4));
  const Placement three = scaled(two.variables, two.placement, 3).value();
  EXPECT_THAT(counts(three, "t"), ElementsAre(4, 4, 4));
  int64_t parts = 0;
  for (const PartMove& move : moves_between(two.variables, two.placement, three)) {
    EXPECT_EQ(move.to, 2);
    const auto is_it = [&](const HeldVariable& one) { return one.name == move.name; };
    const auto found = std::ranges::find_if(all, is_it);
    ASSERT_NE(found, all.end()) << move.name;
    EXPECT_EQ(found->task, move.from);
    EXPECT_EQ(found->bytes, move.bytes);
    if (move.variable == "t") ++parts;
  }
  EXPECT_EQ(parts, 4);
}

TEST(Placement, of_variables_that_cannot_be_is_refused) {
  const auto code = [](int ps, const std::vector<int>& used, const std::vector<HeldVariable>& all) {
    return spread_of(ps, used, all).status().code();
  };
  EXPECT_EQ(code(0, {0}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1 << 30, {0}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, {}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, {2}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, {0}, {{"v", 1, 2}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, {0}, {{"v", -1, 0}}), StatusCode::kInvalidArgument);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(code(2, {0}, {{"v", most, 0}, {"w", most, 0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, {0}, {{"v", 1, 0}, {"v", 1, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, {0}, {{"v", 1, 0}}), StatusCode::kOk);
}

}  // namespace
}  // namespace sidereal::train
