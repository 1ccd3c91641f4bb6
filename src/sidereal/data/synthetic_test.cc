#include "sidereal/data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "sidereal/data/auc.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

struct OneRow {
  float label = 0;
  float truth = 0;
  std::array<float, SyntheticStream::kNumeric> dense{};
  std::array<int64_t, SyntheticStream::kFields> ids{};
  bool operator==(const OneRow&) const = default;
};

OneRow row_of(const SyntheticStream& stream, int64_t row) {
  OneRow out;
  stream.generate(row, {&out.label, &out.truth, out.dense.data(), out.ids.data()});
  return out;
}

TEST(SyntheticStream, ARowDependsOnSeedAndNumberOnly) {
  const SyntheticStream a({.seed = 5});
  const SyntheticStream b({.rows = 3, .first_row = 9, .seed = 5});
  const SyntheticStream other({.seed = 6});
  for (const int64_t row : {int64_t{0}, int64_t{77}, int64_t{1} << 45}) {
    EXPECT_EQ(row_of(a, row), row_of(b, row));
    EXPECT_NE(row_of(a, row), row_of(other, row));
    EXPECT_NE(row_of(a, row), row_of(a, row + 1));
  }
}

TEST(SyntheticStream, IdsStayInTheirSpaceAndAreSkewed) {
  const SyntheticStream stream({.seed = 1});
  EXPECT_GT(stream.id_space(), 3'500'000);
  EXPECT_LT(stream.id_space(), 4'000'000);
  constexpr int kLargest = 2;
  EXPECT_EQ(stream.vocabulary(kLargest), 1'000'000);
  std::map<int64_t, int> counts;
  constexpr int kRows = 50000;
  for (int r = 0; r < kRows; ++r) {
    const OneRow row = row_of(stream, r);
    for (const int64_t id : row.ids) ASSERT_TRUE(id >= 0 && id < stream.id_space());
    for (const float x : row.dense) ASSERT_TRUE(x >= 0 && x < 30);
    ++counts[row.ids[kLargest]];
  }
  int top = 0;
  for (const auto& [id, count] : counts) top = std::max(top, count);
  EXPECT_GT(top, kRows / 50);
  EXPECT_GT(counts.size(), 10000);
}

TEST(SyntheticStream, DifferentFieldsNeverShareAnId) {
  const SyntheticStream stream({.seed = 2, .vocabulary_max = 50});
  std::map<int64_t, int> field_of;
  for (int r = 0; r < 5000; ++r) {
    const OneRow row = row_of(stream, r);
    for (int f = 0; f < SyntheticStream::kFields; ++f) {
      const auto [at, fresh] = field_of.emplace(row.ids[f], f);
      ASSERT_EQ(at->second, f);
    }
  }
  EXPECT_LE(static_cast<int64_t>(field_of.size()), stream.id_space());
  EXPECT_GT(static_cast<int64_t>(field_of.size()), stream.id_space() * 9 / 10);
}

TEST(SyntheticStream, FrequentIdsAreScatteredEvenlyOverTheIdSpace) {
  const SyntheticStream stream({.seed = 1});
  std::vector<int> quarter(4, 0);
  constexpr int kRows = 4000;
  for (int r = 0; r < kRows; ++r) {
    for (const int64_t id : row_of(stream, r).ids) ++quarter[id * 4 / stream.id_space()];
  }
  for (const int n : quarter) EXPECT_NEAR(n, kRows * 26 / 4, kRows * 26 / 10);
}

TEST(SyntheticStream, LabelsFollowTheTruthAndTheBestAucIsAbout081) {
  for (const uint64_t seed : {1, 2, 3}) {
    const SyntheticStream stream({.seed = seed});
    constexpr int kRows = 60000;
    double ones = 0;
    double expected = 0;
    for (int r = 0; r < kRows; ++r) {
      const OneRow row = row_of(stream, r);
      ones += row.label;
      expected += row.truth;
    }
    EXPECT_NEAR(ones / kRows, 0.25, 0.015);
    EXPECT_NEAR(ones / kRows, expected / kRows, 0.006);
    const double best = best_auc(stream, 0, kRows);
    EXPECT_GT(best, 0.795);
    EXPECT_LT(best, 0.825);
  }
}

TEST(SyntheticReader, BatchesHoldTheRowsOfTheirPartWithTheTruth) {
  DataSpec spec;
  spec.format = Format::kSynthetic;
  spec.synthetic = {.rows = 100, .first_row = 1000, .seed = 4};
  const SyntheticStream stream(spec.synthetic);
  std::set<int64_t> seen;
  for (int64_t index = 0; index < 3; ++index) {
    ReadOptions options;
    options.part = {index, 3};
    options.batch_size = 16;
    auto reader = Reader::open(spec, options);
    ASSERT_TRUE(reader.ok());
    Batch batch;
    int64_t row = 1000 + index;
    while (*(*reader)->next(&batch)) {
      for (int64_t r = 0; r < batch.rows; ++r, row += 3) {
        const OneRow want = row_of(stream, row);
        EXPECT_TRUE(seen.insert(row).second);
        EXPECT_EQ(batch.label.data<float>()[r], want.label);
        EXPECT_EQ(batch.truth.data<float>()[r], want.truth);
        EXPECT_EQ(batch.dense.data<float>()[r * 13 + 5], want.dense[5]);
        EXPECT_EQ(batch.ids.data<int64_t>()[r * 26 + 25], want.ids[25]);
      }
    }
    EXPECT_EQ((*reader)->stats().progress, 1);
  }
  EXPECT_EQ(seen.size(), 100);
  EXPECT_EQ(*seen.rbegin(), 1099);
}

// A plain logistic regression on a small vocabulary must get most of the way: the signal is there
// to be learned, and what is missing is what the pairs of fields add.
TEST(SyntheticStream, ALinearModelLearnsMostOfTheSignal) {
  const SyntheticStream stream({.seed = 1, .vocabulary_max = 2000});
  std::vector<float> weights(stream.id_space(), 0.0F);
  std::vector<float> squares(stream.id_space(), 1e-4F);
  std::array<float, SyntheticStream::kNumeric> dense_weights{};
  float bias = 0;
  const auto logit = [&](const OneRow& row) {
    float sum = bias;
    for (size_t k = 0; k < row.dense.size(); ++k) sum += dense_weights[k] * row.dense[k];
    for (const int64_t id : row.ids) sum += weights[id];
    return sum;
  };
  constexpr int kTrain = 150000;
  for (int r = 0; r < kTrain; ++r) {
    const OneRow row = row_of(stream, r);
    const float error = 1 / (1 + std::exp(-logit(row))) - row.label;
    bias -= 0.01F * error;
    for (size_t k = 0; k < row.dense.size(); ++k) dense_weights[k] -= 0.002F * error * row.dense[k];
    for (const int64_t id : row.ids) {
      squares[id] += error * error;
      weights[id] -= 0.05F * error / std::sqrt(squares[id]);
    }
  }
  std::vector<float> scores;
  std::vector<float> labels;
  constexpr int64_t kTestFrom = int64_t{1} << 40;
  constexpr int64_t kTest = 20000;
  for (int64_t r = 0; r < kTest; ++r) {
    const OneRow row = row_of(stream, kTestFrom + r);
    scores.push_back(logit(row));
    labels.push_back(row.label);
  }
  const double best = best_auc(stream, kTestFrom, kTest);
  const double linear = *auc(scores, labels);
  EXPECT_GT(linear, 0.70);
  EXPECT_LT(linear, best - 0.01);
}

}  // namespace
}  // namespace sidereal::data
