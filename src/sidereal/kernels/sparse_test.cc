#include "sidereal/kernels/sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "sidereal/kernels/rows.h"

namespace sidereal::kernels {
namespace {

std::vector<int64_t> random_ids(int64_t n, int64_t rows, uint64_t seed, bool with_padding) {
  std::mt19937_64 rng(seed);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) {
    const double u = static_cast<double>(rng() % 1'000'000) / 1e6;
    id = static_cast<int64_t>(u * u * u * static_cast<double>(rows));
    if (with_padding && rng() % 10 == 0) id = -1 - static_cast<int64_t>(rng() % 3);
  }
  return ids;
}

struct UniqueResult {
  std::vector<int64_t> ids;
  std::vector<int32_t> inverse;
};

UniqueResult run_unique(const std::vector<int64_t>& ids, UniqueScratch& scratch) {
  UniqueResult r;
  r.ids.resize(ids.size());
  r.inverse.resize(ids.size());
  r.ids.resize(unique(ids, scratch, r.ids.data(), r.inverse.data()));
  return r;
}

TEST(Unique, KeepsFirstOccurrencesInOrderAndSkipsNegativeIds) {
  UniqueScratch scratch;
  const UniqueResult r = run_unique({7, -1, 3, 7, 0, 3, -9, 5}, scratch);
  EXPECT_EQ(r.ids, (std::vector<int64_t>{7, 3, 0, 5}));
  EXPECT_EQ(r.inverse, (std::vector<int32_t>{0, -1, 1, 0, 2, 1, -1, 3}));
  EXPECT_TRUE(run_unique({}, scratch).ids.empty());
}

TEST(Unique, AgreesWithAMapOverManyCallsOfOneScratch) {
  UniqueScratch scratch;
  for (int round = 0; round < 60; ++round) {
    const int64_t n = round * round * 3;
    const std::vector<int64_t> ids = random_ids(n, 1 + round * 100, round, round % 2 == 0);
    const UniqueResult r = run_unique(ids, scratch);
    std::map<int64_t, int32_t> seen;
    std::vector<int64_t> want;
    for (int64_t i = 0; i < n; ++i) {
      if (ids[i] < 0) {
        EXPECT_EQ(r.inverse[i], -1);
        continue;
      }
      const auto [it, is_new] = seen.emplace(ids[i], static_cast<int32_t>(want.size()));
      if (is_new) want.push_back(ids[i]);
      EXPECT_EQ(r.inverse[i], it->second);
    }
    EXPECT_EQ(r.ids, want);
  }
}

TEST(Unique, TakesTheLargestIdsAndIdsThatCollide) {
  UniqueScratch scratch;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 2000; ++i) ids.push_back(i << 48);
  ids.push_back(INT64_MAX);
  ids.push_back(0);
  const UniqueResult r = run_unique(ids, scratch);
  EXPECT_EQ(r.ids.size(), 2001U);
  EXPECT_EQ(r.inverse.back(), 0);
}

const std::vector<std::vector<int32_t>> kLaneLists = {
    {1}, {2}, {3}, {1, 1}, {2, 2, 2}, {3, 1, 2}, {4, 4, 4}, {1, 1, 1, 1, 1}};

TEST(ShardLayout, OwnsEachRowOnceInDivOrder) {
  for (const std::vector<int32_t>& lanes : kLaneLists) {
    for (const int64_t rows : {0, 1, 2, 3, 10, 97, 1000}) {
      const ShardLayout layout(rows, lanes);
      int64_t total = 0;
      int64_t next_row = 0;
      for (int32_t task = 0; task < layout.num_tasks(); ++task) {
        EXPECT_EQ(layout.first_row(task), next_row);
        next_row += layout.task_rows(task);
        for (int32_t lane = 0; lane < layout.num_lanes(task); ++lane) {
          const int32_t shard = layout.shard_of(task, lane);
          EXPECT_EQ(layout.task_of(shard), task);
          EXPECT_EQ(layout.lane_of(shard), lane);
          total += layout.shard_rows(shard);
          for (int64_t i = 0; i < layout.shard_rows(shard); ++i) {
            const int64_t row = layout.global_row(shard, i);
            const ShardLayout::Place place = layout.locate(row);
            EXPECT_EQ(place.shard, shard);
            EXPECT_EQ(place.index, i);
            EXPECT_EQ((row - layout.first_row(task)) % layout.num_lanes(task), lane);
          }
        }
      }
      EXPECT_EQ(total, rows);
      EXPECT_EQ(next_row, rows);
    }
  }
}

struct Routed {
  std::vector<int64_t> rows;
  std::vector<int64_t> offsets;
  std::vector<int64_t> position;
};

Routed run_route(const std::vector<int64_t>& ids, const ShardLayout& layout) {
  Routed r;
  r.rows.resize(ids.size());
  r.position.resize(ids.size());
  r.offsets.resize(layout.num_shards() + 1);
  EXPECT_EQ(route(ids, layout, r.rows.data(), r.offsets.data(), r.position.data()), -1);
  return r;
}

TEST(Route, SendsEachIdToTheShardThatOwnsIt) {
  for (const std::vector<int32_t>& lanes : kLaneLists) {
    for (const int64_t rows :
         {int64_t{5}, int64_t{97}, int64_t{100'000}, int64_t{999'999'999'999}}) {
      const ShardLayout layout(rows, lanes);
      std::vector<int64_t> ids = random_ids(500, rows, 3, false);
      ids.push_back(0);
      ids.push_back(rows - 1);
      const Routed r = run_route(ids, layout);
      std::vector<int64_t> next(layout.num_shards(), 0);
      for (size_t i = 0; i < ids.size(); ++i) {
        const ShardLayout::Place place = layout.locate(ids[i]);
        const int64_t index = next[place.shard]++;
        EXPECT_EQ(r.position[i], static_cast<int64_t>(place.shard) << kPositionShift | index);
        EXPECT_EQ(r.rows[r.offsets[place.shard] + index], place.index);
      }
      for (int32_t s = 0; s < layout.num_shards(); ++s) {
        EXPECT_EQ(r.offsets[s + 1] - r.offsets[s], next[s]);
      }
    }
  }
}

TEST(Route, NamesTheFirstIdOutsideTheTable) {
  std::vector<int64_t> rows(4);
  std::vector<int64_t> position(4);
  std::vector<int64_t> offsets(20);
  for (const std::vector<int32_t>& lanes : kLaneLists) {
    const ShardLayout layout(10, lanes);
    const std::vector<int64_t> high = {1, 9, 10, 12};
    EXPECT_EQ(route(high, layout, rows.data(), offsets.data(), position.data()), 2);
    const std::vector<int64_t> negative = {1, -1};
    EXPECT_EQ(route(negative, layout, rows.data(), offsets.data(), position.data()), 1);
    EXPECT_EQ(route({}, layout, rows.data(), offsets.data(), position.data()), -1);
  }
}

TEST(FindOutOfRange, SeesEveryPlace) {
  for (const size_t n : {0, 1, 5, 1024, 1025, 3000}) {
    std::vector<int64_t> rows(n, 7);
    EXPECT_EQ(find_out_of_range(rows, 8), -1);
    for (size_t i = 0; i < n; i += 97) {
      for (const int64_t bad : {int64_t{8}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
        rows[i] = bad;
        EXPECT_EQ(find_out_of_range(rows, 8), static_cast<int64_t>(i));
      }
      rows[i] = 7;
    }
  }
}

template <class T>
class Sparse : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Sparse, Reals);

TYPED_TEST(Sparse, LookupAndItsGradientAgreeWithPlainLoopsForAnySharding) {
  using T = TypeParam;
  const int64_t rows = 1000;
  for (const int64_t dim : {1, 3, 4, 8, 16, 32, 64, 65}) {
    const std::vector<int64_t> ids = random_ids(700, rows, dim, true);
    std::vector<T> table(rows * dim);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<T>(i % 1013) / T(7);
    std::vector<T> grad(ids.size() * dim);
    for (size_t i = 0; i < grad.size(); ++i) grad[i] = static_cast<T>(i % 101) / T(3);
    UniqueScratch scratch;
    const UniqueResult u = run_unique(ids, scratch);
    for (const std::vector<int32_t>& lanes : kLaneLists) {
      const ShardLayout layout(rows, lanes);
      const Routed r = run_route(u.ids, layout);
      std::vector<std::vector<T>> data(layout.num_shards());
      std::vector<const T*> parts;
      std::vector<std::vector<T>> sums(layout.num_shards());
      std::vector<T*> sum_pointers;
      for (int32_t s = 0; s < layout.num_shards(); ++s) {
        const int64_t count = r.offsets[s + 1] - r.offsets[s];
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = layout.global_row(s, r.rows[r.offsets[s] + i]);
          data[s].insert(data[s].end(), &table[row * dim], &table[row * dim] + dim);
        }
        parts.push_back(data[s].data());
        sums[s].assign(count * dim, T(-77));  // Must be overwritten.
        sum_pointers.push_back(sums[s].data());
      }
      std::vector<T> out(ids.size() * dim, T(-5));
      gather_parts<T>(parts, r.position, u.inverse, dim, out.data());
      sum_parts<T>(grad.data(), dim, r.position, u.inverse, dim, sum_pointers);
      std::map<int64_t, std::vector<T>> want;
      for (size_t i = 0; i < ids.size(); ++i) {
        for (int64_t j = 0; j < dim; ++j) {
          EXPECT_EQ(out[i * dim + j], ids[i] < 0 ? T(0) : table[ids[i] * dim + j]);
        }
        if (ids[i] < 0) continue;
        std::vector<T>& sum = want[ids[i]];
        sum.resize(dim);
        for (int64_t j = 0; j < dim; ++j) sum[j] += grad[i * dim + j];
      }
      for (size_t i = 0; i < u.ids.size(); ++i) {
        const int64_t p = r.position[i];
        const T* got =
            sum_pointers[p >> kPositionShift] + (p & ((int64_t{1} << kPositionShift) - 1)) * dim;
        EXPECT_EQ(std::vector<T>(got, got + dim), want[u.ids[i]]);
      }
    }
  }
}

TYPED_TEST(Sparse, GatherAndScatterRowsMoveTheRowsNamed) {
  using T = TypeParam;
  for (const int64_t dim : {1, 3, 8, 16, 32, 64, 100}) {
    const int64_t stride = dim * 2 + 1;
    std::vector<T> table(50 * stride);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<T>(i);
    for (const int64_t n : {0, 1, 23, 24, 25, 200}) {
      const std::vector<int64_t> rows = random_ids(n, 50, 1, false);
      std::vector<T> out(n * dim);
      gather_rows<T>(table.data(), stride, rows, dim, out.data());
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < dim; ++j) {
          EXPECT_EQ(out[i * dim + j], static_cast<T>(rows[i] * stride + j));
        }
      }
    }
    const std::vector<int64_t> rows = {4, 2, 49};
    const std::vector<T> in(3 * dim, T(-1));
    scatter_rows<T>(in.data(), rows, dim, table.data(), stride);
    EXPECT_EQ(table[49 * stride + dim - 1], T(-1));
    EXPECT_EQ(table[49 * stride + dim], static_cast<T>(49 * stride + dim));
    EXPECT_EQ(table[3 * stride], static_cast<T>(3 * stride));
  }
}

TEST(SumEqualRows, LeavesSingleRowsWhereTheyAreAndAddsOthersInOrder) {
  UniqueScratch scratch;
  for (const int64_t dim : {1, 3, 16, 40}) {
    for (int round = 0; round < 20; ++round) {
      // Two sources: the first as columns of wider rows.
      const int64_t first = round * 7;
      const int64_t n = first + round;
      const int64_t wide = dim + round % 3;
      const std::vector<int64_t> ids = random_ids(n, 1 + round * 5, round, false);
      const UniqueResult unique_ids = run_unique(ids, scratch);
      std::vector<float> a(first * wide + 1);
      std::vector<float> b(round * dim + 1);
      for (size_t i = 0; i < a.size(); ++i) a[i] = 0.1F * static_cast<float>(i % 97);
      for (size_t i = 0; i < b.size(); ++i) b[i] = 0.3F * static_cast<float>(i % 31);
      const auto row = [&](int64_t i) {
        return i < first ? a.data() + i * wide + round % 3 : b.data() + (i - first) * dim;
      };
      const auto found = static_cast<int64_t>(unique_ids.ids.size());
      std::vector<float> sums(std::min(found, n - found) * dim);
      std::vector<const float*> sum_of(found);
      const std::vector<GradRows<float>> sources = {{row(0), wide, first}, {b.data(), dim, round}};
      sum_equal_rows<float>(sources, unique_ids.inverse, dim, sums.data(), sum_of);
      for (int64_t u = 0; u < found; ++u) {
        std::vector<float> want(dim);
        int64_t times = 0;
        for (int64_t i = 0; i < n; ++i) {
          if (unique_ids.inverse[i] != u) continue;
          for (int64_t j = 0; j < dim; ++j) want[j] = times == 0 ? row(i)[j] : want[j] + row(i)[j];
          if (++times == 1) continue;
          EXPECT_NE(sum_of[u], row(i));
        }
        EXPECT_EQ(std::vector<float>(sum_of[u], sum_of[u] + dim), want);
        EXPECT_EQ(times > 1, sum_of[u] >= sums.data() && sum_of[u] < sums.data() + sums.size());
      }
    }
  }
}

TEST(JoinRows, PutsRowsOfTablesAndValuesSideBySide) {
  std::vector<float> table(50 * 3);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  const std::vector<float> value = {-1, -2, -3, -4};
  for (const int64_t count : {1, 2, 40}) {
    const std::vector<int64_t> rows = random_ids(4 * count, 50, count, false);
    const JoinedPart looked_up{.from = reinterpret_cast<const std::byte*>(table.data()),
                               .rows = rows.data(),
                               .count = count,
                               .row_bytes = 12};
    const JoinedPart given{.from = reinterpret_cast<const std::byte*>(value.data()),
                           .row_bytes = 4};
    const std::vector<JoinedPart> parts = {given, looked_up, given};
    const int64_t width = 2 + 3 * count;
    std::vector<float> out(3 * width);
    join_rows(parts, 1, 4, reinterpret_cast<std::byte*>(out.data()));
    for (int64_t r = 1; r < 4; ++r) {
      const float* got = out.data() + (r - 1) * width;
      EXPECT_EQ(got[0], value[r]);
      EXPECT_EQ(got[width - 1], value[r]);
      for (int64_t i = 0; i < 3 * count; ++i) {
        EXPECT_EQ(got[1 + i], table[rows[r * count + i / 3] * 3 + i % 3]);
      }
    }
  }
}

}  // namespace
}  // namespace sidereal::kernels
