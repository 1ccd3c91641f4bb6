#include "sidereal/data/table_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace sidereal::data {
namespace {

using testing::HasSubstr;

TEST(TableFormats, EndingsSayTheFormat) {
  EXPECT_EQ(table_file("day.parquet").format->name, "parquet");
  EXPECT_EQ(table_file("DAY.PQ").format->name, "parquet");
  EXPECT_EQ(table_file("a/b.jsonl.gz").format->name, "json_lines");
  EXPECT_EQ(table_file("day.tsv.gz").format->name, "tsv");
  EXPECT_EQ(table_file("day_0").format->name, "csv");
  EXPECT_EQ(table_file(".parquet").format->name, "csv");
  EXPECT_FALSE(table_file("day.csv.gz").is_fed);
  EXPECT_TRUE(table_file("day.parquet").is_fed);
}

TEST(TableFormats, AFormatMayStandBeforeTheFile) {
  const TableFile file = table_file("parquet:/data/part-0");
  EXPECT_EQ(file.format->name, "parquet");
  EXPECT_EQ(file.path, "/data/part-0");
  EXPECT_EQ(table_file("csv:/data/x.parquet").format->name, "csv");
  EXPECT_EQ(table_file("other:/data/x").path, "other:/data/x");
}

TEST(TableFormats, PlacesElsewhereAreFed) {
  EXPECT_TRUE(is_remote("s3://bucket/day.csv"));
  EXPECT_FALSE(is_remote("/data/a://b"));
  EXPECT_FALSE(is_remote("://x"));
  const TableFile file = table_file("https://host/day.parquet?version=2");
  EXPECT_EQ(file.format->name, "parquet");
  EXPECT_TRUE(table_file("s3://bucket/day.csv").is_fed);
  EXPECT_EQ(table_file("json_lines:s3://bucket/x").path, "s3://bucket/x");
}

TEST(TableFormats, NamesHoldEverywhere) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(absolute_name("x.parquet"), here + "/x.parquet");
  EXPECT_EQ(absolute_name("orc:a/../x"), "orc:" + here + "/x");
  EXPECT_EQ(absolute_name("/data/x"), "/data/x");
  EXPECT_EQ(absolute_name("s3://bucket/x"), "s3://bucket/x");
  EXPECT_EQ(absolute_name("orc:s3://bucket/x"), "orc:s3://bucket/x");
}

TEST(TableFormats, FilesAreNamedByTheirFormat) {
  EXPECT_EQ(*named_as("part-0", "parquet"), "parquet:part-0");
  EXPECT_EQ(*named_as("x.parquet", "parquet"), "x.parquet");
  EXPECT_EQ(*named_as("x.parquet", "csv"), "x.parquet");
  EXPECT_EQ(*named_as("parquet:x", "orc"), "orc:x");
  EXPECT_THAT(base::message_of(named_as("x", "excel").status()), HasSubstr("json_lines"));
  EXPECT_EQ(delimiter_of({"x.tsv"}, ','), '\t');
  EXPECT_EQ(delimiter_of({"x.tsv"}, ';'), ';');
  EXPECT_EQ(delimiter_of({"x.csv"}, ','), ',');
}

}  // namespace
}  // namespace sidereal::data
