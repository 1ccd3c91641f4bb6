#include "sidereal/resources/space_saving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

namespace sidereal::resources {
namespace {

RowCounts counts_of(const SpaceSaving& of) {
  RowCounts out;
  SpaceSaving::Notes notes;
  EXPECT_TRUE(of.read(&out, &notes));
  return out;
}

const RowCount* find(const RowCounts& in, int64_t row) {
  const auto found = std::ranges::find(in.rows, row, &RowCount::row);
  return found == in.rows.end() ? nullptr : &*found;
}

/// What Space-Saving promises of a stream, compared with exact counts.
void expect_promises(const SpaceSaving& of, const std::map<int64_t, int64_t>& exact,
                     int64_t total) {
  const RowCounts counts = counts_of(of);
  EXPECT_EQ(counts.total, total);
  EXPECT_LE(counts.rows.size(), SpaceSaving::kCapacity);
  const auto capacity = static_cast<int64_t>(SpaceSaving::kCapacity);
  int64_t sum = 0;
  for (const RowCount& one : counts.rows) {
    sum += one.count;
    const auto found = exact.find(one.row);
    ASSERT_NE(found, exact.end()) << one.row << " was never met";
    EXPECT_GE(one.count, found->second) << one.row;
    EXPECT_LE(one.at_least(), found->second) << one.row;
    EXPECT_LE(one.error, total / capacity) << one.row;
  }
  EXPECT_EQ(sum, total) << "each was counted once";
  for (const auto& [row, count] : exact) {
    EXPECT_TRUE(count <= total / capacity || find(counts, row) != nullptr) << row << ": " << count;
  }
}

int64_t drawn(std::mt19937_64* random, double skew, int64_t rows) {
  const double u = std::uniform_real_distribution<double>(0, 1)(*random);
  const auto rank = static_cast<int64_t>(std::pow(u, skew) * static_cast<double>(rows));
  // Hashes to places that are not next to one another, and negative ones.
  return rank * 7919 - 3;
}

TEST(SpaceSaving, FindsAllThatAreMetMoreOftenThanItsPartOfTheStream) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const double skew : {1.0, 3.0, 10.0, 40.0}) {
      for (const int64_t rows : {1, 100, 128, 129, 1000, 1'000'000}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << " skew " << skew << " rows " << rows);
        std::mt19937_64 random(seed);
        auto of = std::make_unique<SpaceSaving>();
        std::map<int64_t, int64_t> exact;
        const int64_t total = 20'000;
        for (int64_t i = 0; i < total; ++i) {
          const int64_t row = drawn(&random, skew, rows);
          of->add(row);
          ++exact[row];
        }
        expect_promises(*of, exact, total);
      }
    }
  }
}

TEST(SpaceSaving, FindsThemWhateverTheOrder) {
  SpaceSaving of;
  std::map<int64_t, int64_t> exact;
  int64_t total = 0;
  const auto add = [&](int64_t row) {
    of.add(row);
    ++exact[row];
    ++total;
  };
  // First a crowd, then one that is met often, then another crowd that comes round and round.
  for (int64_t row = 0; row < 5000; ++row) add(row);
  for (int i = 0; i < 400; ++i) add(-7);
  for (int turn = 0; turn < 5; ++turn) {
    for (int64_t row = 10'000; row < 10'500; ++row) add(row);
  }
  expect_promises(of, exact, total);
  EXPECT_NE(find(counts_of(of), -7), nullptr);
}

TEST(SpaceSaving, WeighsWhatWasCountedBeforeLess) {
  SpaceSaving of;
  for (int i = 0; i < 1000; ++i) of.add(1);
  of.halve(3, {5, 6});
  for (int i = 0; i < 200; ++i) of.add(2);
  RowCounts counts;
  SpaceSaving::Notes notes;
  ASSERT_TRUE(of.read(&counts, &notes));
  EXPECT_EQ(notes, (SpaceSaving::Notes{5, 6}));
  EXPECT_EQ(counts.total, 325);
  EXPECT_EQ(find(counts, 1)->count, 125);
  EXPECT_EQ(find(counts, 2)->count, 200);
  of.halve(INT64_MAX, {});
  EXPECT_EQ(counts_of(of).total, 0);
  for (const RowCount& one : counts_of(of).rows) EXPECT_EQ(one.count, 0);
}

TEST(SpaceSaving, KeepsCountsWithinTheirErrorsWhenTheyAreHalved) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SpaceSaving of;
    std::map<int64_t, double> exact;
    double total = 0;
    for (int i = 0; i < 20'000; ++i) {
      const int64_t row = drawn(&random, 5, 2000);
      of.add(row);
      ++exact[row];
      ++total;
      if (i % 3000 != 2999) continue;
      of.halve(1, {});
      for (auto& [of_row, count] : exact) count /= 2;
      total /= 2;
    }
    // Halves are rounded: by less than one each time, and by less than two all times together.
    for (const RowCount& one : counts_of(of).rows) {
      EXPECT_GE(static_cast<double>(one.count), exact[one.row] - 2) << one.row;
      EXPECT_LE(static_cast<double>(one.at_least()), exact[one.row] + 2) << one.row;
    }
    for (const auto& [row, count] : exact) {
      const bool is_often = count > total / SpaceSaving::kCapacity + 2;
      EXPECT_TRUE(!is_often || find(counts_of(of), row) != nullptr) << row << ": " << count;
    }
  }
}

TEST(SpaceSaving, IsReadAsItWasAtOneMomentWhileItChanges) {
  SpaceSaving of;
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    std::mt19937_64 random(1);
    for (int64_t i = 0; !ends.load(); ++i) {
      of.add(static_cast<int64_t>(random() % 500));
      if (i % 1000 == 0) of.halve(1, {i, i});
      if (i % 50 == 0) std::this_thread::yield();
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int read = 0;
  int64_t total = 0;
  while (read < 100 && std::chrono::steady_clock::now() < deadline) {
    RowCounts counts;
    SpaceSaving::Notes notes;
    if (!of.read(&counts, &notes) || std::exchange(total, counts.total) == counts.total) continue;
    ++read;  // Of what has changed since the one before.
    EXPECT_EQ(notes[0], notes[1]);
    int64_t sum = 0;
    for (const RowCount& one : counts.rows) {
      EXPECT_LE(one.error, one.count);
      sum += one.count;
    }
    // Halves are rounded down for each row.
    EXPECT_LE(sum, counts.total);
    EXPECT_GE(sum, counts.total - 2 * static_cast<int64_t>(SpaceSaving::kCapacity));
  }
  ends = true;
  writer.join();
  EXPECT_EQ(read, 100);
}

}  // namespace
}  // namespace sidereal::resources
