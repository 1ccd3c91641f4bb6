#include "sidereal/train/data_position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

namespace sidereal::train {
namespace {

/// Rows of each epoch, part 0 of 1; row r is of part r % parts.
constexpr int64_t kRows = 103;
constexpr int64_t kBatch = 4;

/// How often each row of each epoch was read.
using Counts = std::map<std::pair<int64_t, int64_t>, int>;

/// A lane's loop as a task runs it.
task::LoopPosition run_lane(const task::LoopOptions& loop, int64_t lane, int64_t part,
                            int64_t parts, int64_t steps, Counts* counts) {
  std::vector<BegunPass> passes;
  for (const task::LoopPass& pass : loop.started) {
    if (pass.lane != lane) continue;
    passes.push_back({pass.epoch, pass.part_index, pass.part_count, pass.rows_done});
  }
  for (int64_t i = 0; i < loop.epochs; ++i) {
    passes.push_back({.epoch = loop.first_epoch + i, .part = part, .parts = parts});
  }
  task::LoopPosition at;
  for (size_t i = 0; i < passes.size(); ++i) {
    const BegunPass& pass = passes[i];
    const int64_t mine = (kRows - pass.part + pass.parts - 1) / pass.parts;
    for (int64_t row = pass.rows_done; row < mine;) {
      if (steps > 0 && at.steps == steps) return at;
      const int64_t end = std::min(mine, row + kBatch);
      for (; row < end; ++row) ++(*counts)[{pass.epoch, pass.part + row * pass.parts}];
      at = {.steps = at.steps + 1, .pass = static_cast<int64_t>(i), .rows = row};
    }
  }
  at.is_end = true;
  return at;
}

void run_all(DataSchedule* schedule, const std::vector<int>& workers, int64_t end, int64_t steps,
             Counts* counts) {
  int64_t parts = 0;
  for (const int lanes : workers) parts += lanes;
  int64_t part = 0;
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    task::LoopOptions loop;
    schedule->tell(worker, end, &loop);
    std::vector<task::LoopPosition> positions;
    for (int lane = 0; lane < workers[worker]; ++lane) {
      positions.push_back(run_lane(loop, lane, part++, parts, steps, counts));
    }
    schedule->took(worker, end, positions);
  }
}

void expect_each_row_once(const Counts& counts, int64_t epochs) {
  EXPECT_EQ(counts.size(), static_cast<size_t>(epochs * kRows));
  for (const auto& [row, count] : counts) {
    EXPECT_EQ(count, 1) << "epoch " << row.first << " row " << row.second;
  }
}

TEST(DataSchedule, reads_each_row_once_however_often_it_is_cut) {
  constexpr int64_t kEpochs = 4;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    Counts counts;
    DataPosition position;
    int cuts = 0;
    for (; cuts < 1000; ++cuts) {
      // Each time on other workers, as after a kill.
      std::vector<int> workers(static_cast<size_t>(1 + below(3)));
      for (int& lanes : workers) lanes = 1 + below(3);
      DataSchedule schedule(position, workers);
      const int64_t first = schedule.first_epoch(kEpochs);
      if (first == kEpochs) break;
      for (int loops = below(3); loops >= 0; --loops) {
        const int64_t end = below(2) == 0 ? kEpochs : first + 1;
        if (schedule.first_epoch(end) < end) {
          run_all(&schedule, workers, end, below(5) == 0 ? 0 : 1 + below(20), &counts);
        }
      }
      position = schedule.position();
    }
    ASSERT_LT(cuts, 1000);
    expect_each_row_once(counts, kEpochs);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(DataSchedule, a_lane_that_was_stopped_early_has_the_rest_left) {
  const std::vector<int> workers = {1, 1, 1};
  DataSchedule schedule({}, workers);
  Counts counts;
  std::vector<task::LoopPosition> ends;
  for (int64_t worker = 0; worker < 3; ++worker) {
    task::LoopOptions loop;
    schedule.tell(static_cast<size_t>(worker), 2, &loop);
    // All were told to have 12 steps: one has 5, and one is lost before it has told of any.
    if (worker < 2) ends.push_back(run_lane(loop, 0, worker, 3, worker == 0 ? 12 : 5, &counts));
  }
  ends.emplace_back();
  for (size_t worker = 0; worker < 3; ++worker) schedule.took(worker, 2, {ends[worker]});
  // Two are left, and then one.
  DataSchedule others(schedule.position(), {1, 0, 1});
  EXPECT_EQ(others.first_epoch(2), 0);
  run_all(&others, {1, 0, 1}, 2, 3, &counts);
  DataSchedule last(others.position(), {0, 0, 2});
  run_all(&last, {0, 0, 2}, 2, 0, &counts);
  EXPECT_EQ(last.first_epoch(2), 2);
  expect_each_row_once(counts, 2);
}

TEST(DataSchedule, knows_the_epochs_of_passes) {
  const std::vector<int> workers = {2, 1};
  // Lane 0 has the rest of an epoch of two parts, and all have whole ones from 2 on.
  const DataPosition from = {.begun = {{.epoch = 0, .part = 0, .parts = 2, .rows_done = 3},
                                       {.epoch = 1, .part = 0, .parts = 2, .rows_done = 0}},
                             .next_epoch = 2};
  const DataSchedule schedule(from, workers);
  const auto epochs = [&](size_t worker, size_t lane) {
    std::vector<int64_t> out;
    for (int64_t pass = 0; pass < 3; ++pass) {
      out.push_back(schedule.epoch_of(worker, 4, lane, pass));
    }
    return out;
  };
  EXPECT_THAT(epochs(0, 0), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(epochs(0, 1), ::testing::ElementsAre(2, 3, 4));
  EXPECT_THAT(epochs(1, 0), ::testing::ElementsAre(2, 3, 4));
  // The slowest lane counts, one that has told nothing too.
  EXPECT_EQ(schedule.begun_epoch(0, 4, {{.pass = 1}, {.pass = 0}}), 1);
  EXPECT_EQ(schedule.begun_epoch(0, 4, {{.pass = 3}}), 2);
  EXPECT_EQ(schedule.begun_epoch(1, 4, {}), 2);
}

TEST(DataSchedule, of_the_same_lanes_goes_on_as_if_it_had_not_ended) {
  const std::vector<int> workers = {2, 1};
  DataSchedule one({}, workers);
  Counts counts;
  run_all(&one, workers, 3, 7, &counts);
  const DataSchedule other(one.position(), workers);
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    task::LoopOptions a;
    task::LoopOptions b;
    one.tell(worker, 3, &a);
    other.tell(worker, 3, &b);
    ASSERT_EQ(a.started.size(), static_cast<size_t>(workers[worker]));
    EXPECT_EQ(a.started[0].rows_done, 28);
    EXPECT_EQ(a.started[0].part_count, 3);
    ASSERT_EQ(b.started.size(), a.started.size());
    EXPECT_EQ(b.started[0].rows_done, 28);
    EXPECT_EQ(a.first_epoch, 1);
    EXPECT_EQ(b.first_epoch, 1);
    EXPECT_EQ(b.epochs, 2);
  }
}

TEST(DataSchedule, leaves_out_what_is_left_of_an_epoch) {
  DataSchedule schedule({}, {1});
  Counts counts;
  run_all(&schedule, {1}, 1, 3, &counts);
  EXPECT_EQ(schedule.first_epoch(5), 0);
  schedule.leave_out(1);
  EXPECT_EQ(schedule.position(), (DataPosition{.begun = {}, .next_epoch = 1}));
}

}  // namespace
}  // namespace sidereal::train
