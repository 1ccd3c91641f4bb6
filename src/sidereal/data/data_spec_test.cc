#include "sidereal/data/data_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DataSpec unusual_spec() {
  DataSpec spec;
  spec.format = Format::kArrays;
  spec.files = {"a b", "c\"d"};
  spec.arrays = {{"x", "x.npy"}, {"y", "y.npy"}};
  spec.label = "y";
  spec.numeric = {"x"};
  spec.categorical = {"u", "v"};
  spec.label_rule = {.op = ">=", .value = "4"};
  spec.weight = "w";
  spec.numeric_transform = Transform::kAuto;
  spec.column_transforms = {{"x", "minmax"}};
  spec.transforms = {{.kind = Transform::kQuantile,
                      .offset = 0.1F,
                      .scale = 1.0F / 3,
                      .missing = -1e-30F,
                      .boundaries = {-1.5F, 0.1F}}};
  spec.defaults = {{"u", "none"}};
  spec.multi_hot = {{.column = "v", .separator = ';', .max_length = 3}};
  spec.bucketized = {{.column = "x", .buckets = 2, .boundaries = {0.3F}}};
  spec.crosses = {{"u", "x"}};
  spec.vocabularies = {
      {.column = "u", .max_tokens = 9, .num_oov_indices = 2, .tokens = {"\u00e9", "b"}}};
  spec.sequences = {{.column = "s",
                     .separator = ' ',
                     .max_length = 4,
                     .padding = "pre",
                     .truncating = "pre",
                     .like = "u"}};
  spec.hash = Hash::kFarmhash;
  spec.targets = {"z"};
  spec.group = "q";
  spec.negatives = {.column = "u", .count = 4, .sampler = "uniform"};
  spec.class_weights = {{"1", "2.5"}};
  spec.delimiter = '\t';
  spec.hash_buckets = 17;
  spec.id_space = 99;
  spec.binary_label = false;
  spec.bad_rows = BadRows::kSkip;
  spec.shuffle_rows = 1000;
  spec.seed = ~uint64_t{0};
  spec.synthetic = {.rows = 5, .first_row = 6, .seed = 7, .vocabulary_max = 8};
  return spec;
}

TEST(DataSpec, SurvivesTheWayThroughJson) {
  for (const DataSpec& spec : {DataSpec(), unusual_spec()}) {
    const auto back = spec_from_json(to_json(spec));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, spec);
  }
}

TEST(DataSpec, MissingKeysKeepTheirDefaults) {
  EXPECT_EQ(*spec_from_json("{}"), DataSpec());
  EXPECT_EQ(spec_from_json(R"({"format":"criteo"})")->format, Format::kCriteo);
}

TEST(DataSpec, RefusesTextThatIsNoSpecNamingTheKey) {
  const auto message = [](std::string_view text) {
    const auto spec = spec_from_json(text);
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
    return base::message_of(spec.status());
  };
  EXPECT_THAT(message("{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message(R"({"colour":1})"), HasSubstr("unknown key 'colour'"));
  EXPECT_THAT(message(R"({"seed":-1})"), HasSubstr("'seed'"));
  EXPECT_THAT(message(R"({"id_space":1.5})"), HasSubstr("'id_space'"));
  EXPECT_THAT(message(R"({"id_space":18446744073709551615})"), HasSubstr("'id_space'"));
  EXPECT_THAT(message(R"({"files":"a"})"), HasSubstr("'files' must be a list of strings"));
  EXPECT_THAT(message(R"({"files":[1]})"), HasSubstr("'files' must be a list of strings"));
  EXPECT_THAT(message(R"({"arrays":[["a"]]})"), HasSubstr("'arrays'"));
  EXPECT_THAT(message(R"({"label":null})"), HasSubstr("'label' must be a string"));
  EXPECT_THAT(message(R"({"binary_label":1})"), HasSubstr("'binary_label'"));
  EXPECT_THAT(message(R"({"delimiter":"ab"})"), HasSubstr("one character"));
  EXPECT_THAT(message(R"({"format":"xml"})"), HasSubstr("criteo, csv, libsvm, arrays, synthetic"));
  EXPECT_THAT(message(R"({"bad_rows":"keep"})"), HasSubstr("say fail or skip"));
  EXPECT_THAT(message(R"({"transforms":[{"kind":"log"}]})"), HasSubstr("none, auto, log1p"));
  EXPECT_THAT(message(R"({"transforms":[{"power":2}]})"), HasSubstr("'transforms.power'"));
  EXPECT_THAT(message(R"({"transforms":[{"scale":1e300}]})"), HasSubstr("'scale'"));
  EXPECT_THAT(message(R"({"transforms":[{"boundaries":[2,1]}]})"), HasSubstr("ascending"));
  EXPECT_THAT(message(R"({"multi_hot":[{"separator":""}]})"), HasSubstr("one character"));
  EXPECT_THAT(message(R"({"bucketized":{}})"), HasSubstr("a list of objects"));
  EXPECT_THAT(message(R"({"crosses":["a"]})"), HasSubstr("'crosses'"));
  EXPECT_THAT(message(R"({"label_rule":{"is":3}})"), HasSubstr("'label_rule.is'"));
  EXPECT_THAT(message(R"({"synthetic":3})"), HasSubstr("'synthetic'"));
  EXPECT_THAT(message(R"({"synthetic":{"x":3}})"), HasSubstr("'synthetic.x'"));
}

TEST(ExpandGlobs, SortsMatchesAndNamesAPatternWithout) {
  const TestFolder folder;
  const std::string b = folder.write("day_1.tsv", "x");
  const std::string a = folder.write("day_0.tsv", "x");
  const std::string odd = folder.write("odd[1].tsv", "x");
  EXPECT_THAT(*expand_globs({folder.path("day_*.tsv"), odd}), ElementsAre(a, b, odd));
  const auto none = expand_globs({folder.path("night_*.tsv")});
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("night_*.tsv'"));
  const auto missing = expand_globs({folder.path("day_2.tsv")});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("day_2.tsv: no such file"));
}

TEST(Inspect, ChecksEveryFileAndTheNumbers) {
  const TestFolder folder;
  DataSpec spec;
  EXPECT_THAT(base::message_of(inspect(spec).status()), HasSubstr("no data files are named"));
  spec.files = {folder.write("a.csv", "label,x\n"), folder.path("b.csv")};
  EXPECT_EQ(inspect(spec).status().code(), StatusCode::kNotFound);
  spec.files.pop_back();
  EXPECT_TRUE(inspect(spec).ok());
  spec.hash_buckets = 0;
  EXPECT_THAT(base::message_of(inspect(spec).status()), HasSubstr("hash_buckets is 0"));
  spec.id_space = -1;
  EXPECT_THAT(base::message_of(inspect(spec).status()), HasSubstr("id_space is -1"));
  spec.id_space = 1;
  spec.delimiter = '"';
  EXPECT_THAT(base::message_of(inspect(spec).status()), HasSubstr("delimiter"));
}

TEST(Inspect, KnowsTheSyntheticStream) {
  DataSpec spec;
  spec.format = Format::kSynthetic;
  const auto schema = inspect(spec);
  ASSERT_TRUE(schema.ok());
  EXPECT_EQ(schema->dense_width, 13);
  EXPECT_EQ(schema->fields, 26);
  EXPECT_GT(schema->rows, 3'000'000);
  EXPECT_LT(schema->rows, 4'000'000);
}

}  // namespace
}  // namespace sidereal::data
