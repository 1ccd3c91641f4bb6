#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "sidereal/data/data_spec.h"
#include "sidereal/data/reader.h"

// The public data sets beside the source tree, where there are any.

namespace sidereal::data {
namespace {

std::string data_file(const std::string& name) {
  return std::string(SIDEREAL_SOURCE_DIR) + "/../shared/data/" + name;
}

struct Counts {
  int64_t rows = 0;
  double ones = 0;
};

Counts read_all(const DataSpec& spec) {
  Counts counts;
  auto reader = Reader::open(spec, {});
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return counts;
  Batch batch;
  while (true) {
    const auto more = (*reader)->next(&batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return counts;
    counts.rows += batch.rows;
    for (const float label : batch.label.data<float>()) counts.ones += label;
  }
}

#define SR_NEED_DATA(name)                                     \
  if (!std::filesystem::exists(data_file(name))) {             \
    GTEST_SKIP() << "skipped: no data at " << data_file(name); \
  }

TEST(RealData, FrappeHas202027TrainingRows) {
  SR_NEED_DATA("frappe_x1/train.csv.gz");
  DataSpec spec;
  spec.files = {data_file("frappe_x1/train.csv.gz")};
  spec.id_space = 5382;
  const auto schema = inspect(spec);
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->fields, 10);
  const Counts counts = read_all(spec);
  EXPECT_EQ(counts.rows, 202027);
  EXPECT_NEAR(counts.ones / 202027, 0.335, 0.001);
}

TEST(RealData, Criteo1TbHas10000Rows) {
  SR_NEED_DATA("criteo_1tb_day0_10k/day_0.part.tsv.gz");
  DataSpec spec;
  spec.format = Format::kCriteo;
  spec.files = {data_file("criteo_1tb_day0_10k/day_0.part.tsv.gz")};
  const Counts counts = read_all(spec);
  EXPECT_EQ(counts.rows, 10000);
  EXPECT_NEAR(counts.ones / 10000, 0.026, 0.001);
}

TEST(RealData, A9aHas32561RowsOf123Features) {
  SR_NEED_DATA("a9a/a9a.libsvm.gz");
  DataSpec spec;
  spec.format = Format::kLibsvm;
  spec.files = {data_file("a9a/a9a.libsvm.gz")};
  spec.id_space = 124;
  const Counts counts = read_all(spec);
  EXPECT_EQ(counts.rows, 32561);
  EXPECT_NEAR(counts.ones / 32561, 0.241, 0.001);
  spec.id_space = 123;
  Batch batch;
  auto reader = Reader::open(spec, {});
  Result<bool> more = true;
  while (more.ok() && *more) more = (*reader)->next(&batch);
  EXPECT_EQ(more.status().code(), StatusCode::kInvalidArgument);
}

TEST(RealData, AgaricusHas6513Rows) {
  SR_NEED_DATA("agaricus/agaricus.txt.train.gz");
  DataSpec spec;
  spec.format = Format::kLibsvm;
  spec.files = {data_file("agaricus/agaricus.txt.train.gz")};
  spec.id_space = 127;
  EXPECT_EQ(read_all(spec).rows, 6513);
}

TEST(RealData, CriteoAttributionHas115382Rows) {
  SR_NEED_DATA("criteo_attribution_small/train.csv.gz");
  DataSpec spec;
  spec.files = {data_file("criteo_attribution_small/train.csv.gz")};
  spec.label = "click";
  const Counts counts = read_all(spec);
  EXPECT_EQ(counts.rows, 115382);
  EXPECT_NEAR(counts.ones / 115382, 0.361, 0.001);
}

TEST(RealData, CriteoSampleHas200RowsWithFloatsForIntegers) {
  SR_NEED_DATA("criteo_sample200/criteo_sample.csv");
  DataSpec spec;
  spec.files = {data_file("criteo_sample200/criteo_sample.csv")};
  for (int i = 1; i <= 13; ++i) spec.numeric.push_back("I" + std::to_string(i));
  EXPECT_EQ(inspect(spec)->fields, 26);
  EXPECT_EQ(read_all(spec).rows, 200);
}

TEST(RealData, AvazuSampleHas100Rows) {
  SR_NEED_DATA("avazu_sample100/avazu_sample.csv");
  DataSpec spec;
  spec.files = {data_file("avazu_sample100/avazu_sample.csv")};
  spec.label = "click";
  EXPECT_EQ(inspect(spec)->fields, 23);
  EXPECT_EQ(read_all(spec).rows, 100);
}

TEST(RealData, MovielensRatingsAreReadAsNumbers) {
  SR_NEED_DATA("movielens_1m/ratings_test.csv.gz");
  DataSpec spec;
  spec.files = {data_file("movielens_1m/ratings_test.csv.gz")};
  spec.label = "rating";
  spec.categorical = {"user_id", "movie_id"};
  spec.binary_label = false;
  EXPECT_EQ(read_all(spec).rows, 100021);
}

}  // namespace
}  // namespace sidereal::data
