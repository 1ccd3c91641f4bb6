#include "sidereal/passes/layout.h"

#include <gtest/gtest.h>

#include <set>

namespace sidereal::passes {
namespace {

ir::VariableDef dense(const std::string& name, int64_t elements) {
  ir::VariableDef variable;
  variable.name = name;
  variable.shape = {elements};
  return variable;
}

ir::VariableDef embedding(const std::string& name, int64_t rows, int64_t dim) {
  ir::VariableDef variable;
  variable.name = name;
  variable.shape = {rows, dim};
  variable.embedding = true;
  return variable;
}

TEST(Topology, ShardsAreNumberedTaskByTaskThenLaneByLane) {
  const Topology topology{{2, 1, 3}};
  EXPECT_EQ(topology.num_shards(), 6);
  EXPECT_EQ(topology.location_of(0), (ir::Location{0, 0}));
  EXPECT_EQ(topology.location_of(1), (ir::Location{0, 1}));
  EXPECT_EQ(topology.location_of(2), (ir::Location{1, 0}));
  EXPECT_EQ(topology.location_of(5), (ir::Location{2, 2}));
}

TEST(SplitRows, EveryRowHasExactlyOneShardAndOneLocalRow) {
  for (const Topology& topology : {Topology{{1}}, Topology{{3}}, Topology{{2, 1, 3}}}) {
    for (const int64_t rows : {0, 1, 2, 7, 100, 101}) {
      const std::vector<ShardRows> shards = split_rows(rows, topology);
      ASSERT_EQ(shards.size(), static_cast<size_t>(topology.num_shards()));
      std::set<int64_t> seen;
      for (const ShardRows& shard : shards) {
        EXPECT_EQ(shard.location, topology.location_of(shard.shard));
        for (int64_t r = 0; r < shard.rows(); ++r) {
          const int64_t row = shard.global_row(r);
          EXPECT_GE(row, shard.task_first);
          EXPECT_LT(row, shard.task_first + shard.task_rows);
          EXPECT_TRUE(seen.insert(row).second) << row;
        }
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(rows));
      if (rows > 0) {
        EXPECT_EQ(*seen.rbegin(), rows - 1);
      }
    }
  }
}

TEST(SplitRows, TheFirstTasksHoldTheRowsLeftOver) {
  const std::vector<ShardRows> shards = split_rows(8, Topology{{1, 1, 1}});
  EXPECT_EQ(shards[0].task_rows, 3);
  EXPECT_EQ(shards[1].task_rows, 3);
  EXPECT_EQ(shards[2].task_rows, 2);
  EXPECT_EQ(shards[2].task_first, 6);
}

TEST(PlaceVariables, DenseOnesGoLargestFirstToTheLeastLoadedLane) {
  const auto placed = place_variables(
      {dense("a", 10), dense("b", 100), dense("c", 60), dense("d", 50)}, Topology{{1, 1}});
  ASSERT_TRUE(placed.ok()) << base::message_of(placed.status());
  EXPECT_EQ(placed->at("b").location.task, 0);
  EXPECT_EQ(placed->at("c").location.task, 1);
  EXPECT_EQ(placed->at("d").location.task, 1);
  EXPECT_EQ(placed->at("a").location.task, 0);
}

TEST(PlaceVariables, DoesNotDependOnTheOrderOfDeclaration) {
  const std::vector<ir::VariableDef> one = {dense("a", 4), dense("b", 4), embedding("e", 10, 2)};
  const std::vector<ir::VariableDef> two = {embedding("e", 10, 2), dense("b", 4), dense("a", 4)};
  const auto p = place_variables(one, Topology{{2, 2}});
  const auto q = place_variables(two, Topology{{2, 2}});
  ASSERT_TRUE(p.ok());
  ASSERT_TRUE(q.ok());
  for (const auto& [name, place] : *p) EXPECT_EQ(q->at(name).location, place.location) << name;
  EXPECT_EQ(p->at("e").shards.size(), 4U);
  EXPECT_EQ(p->at("e").shards[3].rows(), 2);
}

TEST(PlaceVariables, SaysWhatIsMissingWhenThereIsNoPs) {
  EXPECT_TRUE(place_variables({}, Topology{}).ok());
  const auto none = place_variables({dense("a", 1)}, Topology{});
  EXPECT_EQ(none.status().code(), StatusCode::kFailedPrecondition);
  const auto lanes = place_variables({dense("a", 1)}, Topology{{1, 0}});
  EXPECT_EQ(lanes.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::passes
