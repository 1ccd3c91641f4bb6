#include "sidereal/data/statistics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sidereal/data/numeric_transform.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DataSpec spec_of(const std::string& file, Transform transform = Transform::kAuto) {
  DataSpec spec;
  spec.files = {file};
  spec.numeric = {"x", "y"};
  spec.numeric_transform = transform;
  return spec;
}

// x is 0, 1, ... and each fourth cell is empty; y is 0 but for a few that are large.
std::string some_rows(int rows) {
  std::string text = "label,x,y,city\n";
  for (int i = 0; i < rows; ++i) {
    const std::string x = i % 4 == 3 ? "" : std::to_string(i);
    text += fmt::format("{},{},{},c{}\n", i % 2, x, i % 50 == 1 ? 100000 + i : 0, i % 7);
  }
  return text;
}

TEST(Statistics, AreThoseOfTheCells) {
  const TestFolder folder;
  const auto found = column_statistics(spec_of(folder.write("a.csv", some_rows(400))));
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 4U);
  const ColumnStatistics& x = (*found)[1];
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.rows, 400);
  EXPECT_EQ(x.missing, 100);
  EXPECT_EQ(x.numbers, 300);
  EXPECT_EQ(x.integers, 300);
  EXPECT_EQ(x.distinct, 300);
  EXPECT_EQ(x.min, 0);
  EXPECT_EQ(x.max, 398);
  EXPECT_NEAR(x.mean, 199, 1e-9);
  EXPECT_NEAR(x.stddev, 115.5, 0.5);
  EXPECT_NEAR(x.skewness, 0, 1e-6);
  const ColumnStatistics& y = (*found)[2];
  EXPECT_GT(y.skewness, 5);
  EXPECT_NEAR(y.log_mean, std::log(100176.0) / 50, 0.01);
  const ColumnStatistics& city = (*found)[3];
  EXPECT_EQ(city.numbers, 0);
  EXPECT_EQ(city.distinct, 7);
  EXPECT_THAT(city.examples, ElementsAre("c0", "c1", "c2", "c3", "c4"));
}

TEST(Statistics, AutoTakesTheLogarithmOfAHeavyTail) {
  const TestFolder folder;
  const auto spec = with_statistics(spec_of(folder.write("a.csv", some_rows(400))));
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->transforms.size(), 2U);
  EXPECT_EQ(spec->transforms[0].kind, Transform::kStandard);
  EXPECT_EQ(spec->transforms[1].kind, Transform::kLog1pStandard);
  EXPECT_FALSE(needs_statistics(*spec));
  // What is known stays.
  EXPECT_EQ(*with_statistics(*spec), *spec);
}

TEST(Statistics, EachTransformGivesNumbersOfItsOwnRange) {
  const TestFolder folder;
  const std::string file = folder.write("a.csv", some_rows(400));
  for (const Transform kind : {Transform::kAuto, Transform::kStandard, Transform::kLog1pStandard,
                               Transform::kMinmax, Transform::kQuantile, Transform::kLog1p}) {
    const auto spec = with_statistics(spec_of(file, kind));
    ASSERT_TRUE(spec.ok()) << spec.status();
    auto reader = Reader::open(*spec, {});
    ASSERT_TRUE(reader.ok()) << reader.status();
    Batch batch;
    ASSERT_TRUE(*(*reader)->next(&batch));
    ASSERT_EQ(batch.rows, 400);
    const auto dense = batch.dense.data<float>();
    for (const int column : {0, 1}) {
      double sum = 0;
      double squares = 0;
      float low = dense[column];
      float high = dense[column];
      for (int64_t r = 0; r < batch.rows; ++r) {
        const float value = dense[r * 2 + column];
        sum += value;
        squares += value * value;
        low = std::min(low, value);
        high = std::max(high, value);
      }
      const bool is_part = kind == Transform::kMinmax || kind == Transform::kQuantile;
      if (is_part) {
        EXPECT_EQ(low, 0) << name_of(kind);
        EXPECT_FLOAT_EQ(high, 1) << name_of(kind);
      } else if (kind != Transform::kLog1p) {
        EXPECT_NEAR(sum / 400, 0, 1e-3) << name_of(kind);
        // An empty cell counts as the mean, and adds nothing.
        EXPECT_NEAR(squares / (column == 0 ? 300 : 400), 1, 1e-2) << name_of(kind);
      } else if (column == 1) {
        EXPECT_EQ(low, 0);
        EXPECT_FLOAT_EQ(high, std::log1p(100351.0F));
      }
    }
  }
}

TEST(Statistics, AReaderWantsThemBefore) {
  const TestFolder folder;
  const DataSpec spec = spec_of(folder.write("a.csv", some_rows(8)));
  EXPECT_TRUE(inspect(spec).ok());
  EXPECT_THAT(base::message_of(Reader::open(spec, {}).status()), HasSubstr("with_statistics()"));
}

TEST(Statistics, AColumnOfTextsIsNamed) {
  const TestFolder folder;
  DataSpec spec = spec_of(folder.write("a.csv", some_rows(8)));
  spec.numeric = {"city"};
  EXPECT_THAT(base::message_of(with_statistics(spec).status()),
              HasSubstr("column 'city' has no number among the first 8 rows, but 'c0'"));
  spec.numeric = {"town"};
  EXPECT_THAT(base::message_of(with_statistics(spec).status()),
              HasSubstr("no column 'town'; the columns are: label, x, y, city"));
}

TEST(Statistics, AConstantColumnIsNothing) {
  const TestFolder folder;
  DataSpec spec = spec_of(folder.write("a.csv", "label,x,y\n0,7,\n1,7,\n"));
  for (const Transform kind : {Transform::kAuto, Transform::kMinmax, Transform::kQuantile}) {
    spec.numeric_transform = kind;
    const auto known = with_statistics(spec);
    ASSERT_TRUE(known.ok()) << known.status();
    auto reader = Reader::open(*known, {});
    Batch batch;
    ASSERT_TRUE(*(*reader)->next(&batch));
    EXPECT_THAT(batch.dense.data<float>(), testing::Each(0.0F)) << name_of(kind);
  }
}

TEST(Statistics, ASampleIsSpreadOverFiles) {
  const TestFolder folder;
  DataSpec spec;
  for (int i = 0; i < 10; ++i) {
    std::string text = "label,x\n";
    for (int r = 0; r < 100; ++r) text += fmt::format("0,{}\n", i);
    spec.files.push_back(folder.write(fmt::format("{}.csv", i), text));
  }
  const auto found = column_statistics(spec, 50);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)[1].rows, 50);
  EXPECT_EQ((*found)[1].distinct, 10);
  EXPECT_NEAR((*found)[1].mean, 4.5, 1e-9);
}

TEST(Statistics, TheColumnOfTheLargestNumbersIsFound) {
  const TestFolder folder;
  DataSpec spec = spec_of(folder.write("a.csv", some_rows(400)), Transform::kNone);
  EXPECT_EQ(*largest_scale(spec), std::make_pair(std::string("y"), 100351.0));
  spec.numeric_transform = Transform::kAuto;
  EXPECT_LT(largest_scale(*with_statistics(spec))->second, 10);
}

TEST(NumericTransform, LogarithmsKeepTheSign) {
  const NumericTransform log{.kind = Transform::kLog1p};
  EXPECT_EQ(transformed(0, log), 0);
  EXPECT_EQ(transformed(-7, log), -std::log1p(7.0F));
}

}  // namespace
}  // namespace sidereal::data
