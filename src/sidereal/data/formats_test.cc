#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "sidereal/data/csv_parser.h"
#include "sidereal/data/random.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/row_parser.h"
#include "sidereal/data/testing/files.h"
#include "sidereal/parse/csv.h"

namespace sidereal::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const DataSpec& spec) {
  const auto rows = rows_of(spec);
  EXPECT_FALSE(rows.ok());
  return base::message_of(rows.status());
}

DataSpec spec_of(Format format, const std::string& file) {
  DataSpec spec;
  spec.format = format;
  spec.files = {file};
  spec.hash_buckets = 1000;
  return spec;
}

TEST(Criteo, TurnsIntegersIntoLogsAndCategoriesIntoIdsOfTheirField) {
  const TestFolder folder;
  std::string row = "1\t\t-3\t5000";
  for (int i = 4; i <= 13; ++i) row += "\t0";
  for (int i = 0; i < 26; ++i) row += i == 3 ? "\t" : "\t68fd1e64";
  const DataSpec spec = spec_of(Format::kCriteo, folder.write("day.tsv", row + "\n"));
  auto reader = Reader::open(spec, {});
  ASSERT_TRUE(reader.ok());
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  ASSERT_EQ(batch.rows, 1);
  EXPECT_EQ(batch.label.data<float>()[0], 1);
  EXPECT_EQ(batch.dense.data<float>()[0], 0);
  EXPECT_EQ(batch.dense.data<float>()[1], 0);
  EXPECT_EQ(batch.dense.data<float>()[2], std::log1p(5000.0F));
  for (int i = 0; i < 26; ++i) {
    const int64_t id = batch.ids.data<int64_t>()[i];
    EXPECT_EQ(id, category_id(i == 3 ? "" : "68fd1e64", i, 1000));
    EXPECT_EQ(id / 1000, i);
  }
  EXPECT_FALSE(*(*reader)->next(&batch));
}

TEST(Criteo, SmallCountsUseTheSameLogarithmAsLargeOnes) {
  const TestFolder folder;
  std::string text;
  for (const int x : {1, 4095, 4096, 100000}) {
    text += "0\t" + std::to_string(x);
    for (int i = 2; i <= 39; ++i) text += "\t1";
    text += "\n";
  }
  auto reader = Reader::open(spec_of(Format::kCriteo, folder.write("d", text)), {});
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  const auto dense = batch.dense.data<float>();
  EXPECT_EQ(dense[0], std::log1p(1.0F));
  EXPECT_EQ(dense[13], std::log1p(4095.0F));
  EXPECT_EQ(dense[26], std::log1p(4096.0F));
  EXPECT_EQ(dense[39], std::log1p(100000.0F));
}

TEST(Criteo, NamesFileLineAndFieldOfABadRow) {
  const TestFolder folder;
  const std::string good = criteo_row("0") + "\n";
  const auto message = [&](const std::string& row) {
    return error_of(spec_of(Format::kCriteo, folder.write("day_0.tsv", good + good + row + "\n")));
  };
  EXPECT_THAT(message(criteo_row("1").substr(2)),
              HasSubstr("day_0.tsv:3: 39 fields where 40 are expected"));
  EXPECT_THAT(message(criteo_row("1") + "\tx"), HasSubstr("41 fields where 40 are expected"));
  EXPECT_THAT(message("hello"), HasSubstr(":3: "));
  EXPECT_THAT(message(criteo_row("2")), HasSubstr("the label '2' is neither 0 nor 1"));
  EXPECT_THAT(message(criteo_row("")), HasSubstr("the label '' is not a number"));
  std::string bad = criteo_row("1");
  bad.replace(bad.find("\t7\t"), 3, "\t7x\t");
  EXPECT_THAT(message(bad), HasSubstr("day_0.tsv:3: field 8 (I7) is '7x', not an integer"));
}

TEST(Csv, ReadsColumnsByNameInTheirOwnOrder) {
  const TestFolder folder;
  DataSpec spec =
      spec_of(Format::kCsv, folder.write("a.csv",
                                         "\xef\xbb\xbf"
                                         "age,click,city,kind\r\n"
                                         "31.5,1,Rome,x\r\n,0,\"New, \"\"York\"\"\",\r\n"));
  spec.label = "click";
  spec.numeric = {"age"};
  EXPECT_THAT(*rows_of(spec),
              ElementsAre(fmt::format("1|31.5|{},{}|", category_id("Rome", 0, 1000),
                                      category_id("x", 1, 1000)),
                          fmt::format("0|0|{},{}|", category_id("New, \"York\"", 0, 1000),
                                      category_id("", 1, 1000))));
  const auto schema = inspect(spec);
  ASSERT_TRUE(schema.ok());
  EXPECT_EQ(schema->dense_width, 1);
  EXPECT_EQ(schema->fields, 2);
  EXPECT_EQ(schema->rows, 2000);
  EXPECT_THAT(schema->categorical, ElementsAre("city", "kind"));
}

TEST(Csv, LabelsAreComparedAsTheRuleSays) {
  const TestFolder folder;
  const auto labels = [&](const std::string& rows, const std::string& op,
                          const std::string& value) {
    DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "label\n" + rows));
    spec.label_rule = {.op = op, .value = value};
    std::string found;
    auto reader = Reader::open(spec, {});
    EXPECT_TRUE(reader.ok()) << reader.status();
    Batch batch;
    const auto more = (*reader)->next(&batch);
    if (!more.ok()) return base::message_of(more.status());
    for (const float label : batch.label.data<float>()) found += label == 1 ? '1' : '0';
    return found;
  };
  const std::string ratings = "1\n3.5\n 4 \n4.0\n5\n";
  EXPECT_EQ(labels(ratings, ">=", "4"), "00111");
  EXPECT_EQ(labels(ratings, ">", "4"), "00001");
  EXPECT_EQ(labels(ratings, "<", "4"), "11000");
  EXPECT_EQ(labels(ratings, "<=", "4"), "11110");
  EXPECT_EQ(labels(ratings, "=", "4"), "00110");
  EXPECT_EQ(labels(ratings, "!=", "4"), "11001");
  const std::string incomes = " >50K\n <=50K\n>50K\n";
  EXPECT_EQ(labels(incomes, "=", ">50K"), "101");
  EXPECT_EQ(labels(incomes, "!=", ">50K"), "010");
  EXPECT_THAT(labels(incomes, ">", "4"), HasSubstr("a.csv:2: the label '>50K' is not a number"));
  EXPECT_THAT(labels("\"\"\n", "=", "x"), HasSubstr("the label is empty"));
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "label\n1\n"));
  spec.label_rule = {.op = "~", .value = "4"};
  EXPECT_THAT(error_of(spec), HasSubstr("say one of =, !=, <, <=, >, >="));
  spec.label_rule = {.op = ">", .value = "four"};
  EXPECT_THAT(error_of(spec), HasSubstr("takes a number"));
}

TEST(Csv, RowsHaveWeights) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "w,label,c\n0.5,1,a\n2,0,b\n"));
  spec.weight = "w";
  for (const int64_t shuffle : {0, 10}) {
    spec.shuffle_rows = shuffle;
    auto reader = Reader::open(spec, {});
    ASSERT_TRUE(reader.ok()) << reader.status();
    Batch batch;
    ASSERT_TRUE(*(*reader)->next(&batch));
    EXPECT_EQ(batch.ids.shape().dim(1), 1);
    for (int64_t r = 0; r < batch.rows; ++r) {
      EXPECT_EQ(batch.sample_weight.data<float>()[r], batch.label.data<float>()[r] == 1 ? 0.5F : 2);
    }
  }
  spec.files = {folder.write("b.csv", "w,label,c\n-1,1,a\n")};
  EXPECT_THAT(error_of(spec), HasSubstr("column 'w' is '-1'; the weight of a row"));
  spec.categorical = {"w"};
  EXPECT_THAT(error_of(spec), HasSubstr("column 'w' is named twice"));
}

TEST(Csv, CellsMayHaveSeveralValues) {
  const TestFolder folder;
  DataSpec spec =
      spec_of(Format::kCsv, folder.write("a.csv", "label,tags,c\n1,x| y|x|z,k\n0,,k\n0,x||,\n"));
  spec.multi_hot = {{.column = "tags", .separator = '|', .max_length = 3}};
  const auto tag = [](const char* text) { return category_id(text, 0, 1000); };
  EXPECT_THAT(
      *rows_of(spec),
      ElementsAre(
          fmt::format("1||{},{},{},{}|", tag("x"), tag("y"), tag("x"), category_id("k", 1, 1000)),
          fmt::format("0||-1,-1,-1,{}|", category_id("k", 1, 1000)),
          fmt::format("0||{},{},{},{}|", tag("x"), tag(""), tag(""), category_id("", 1, 1000))));
  const auto schema = inspect(spec);
  EXPECT_EQ(schema->fields, 4);
  EXPECT_EQ(schema->rows, 2000);
  spec.multi_hot[0].max_length = 0;
  EXPECT_THAT(error_of(spec), HasSubstr("up to 0 values in a cell"));
  spec.multi_hot[0] = {.column = "town", .separator = '|', .max_length = 3};
  EXPECT_THAT(error_of(spec), HasSubstr("no categorical column 'town', which has several values"));
}

TEST(Csv, NumbersBecomeBucketsAndColumnsAreCrossed) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv",
                                                     "label,age,city\n1,9,a\n0,20,b\n0,,a\n"
                                                     "1,21,\"a\"\n"));
  spec.numeric = {"age"};
  spec.bucketized = {{.column = "age", .boundaries = {10, 20}}};
  spec.crosses = {{"city", "age"}};
  spec.defaults = {{"city", "none"}};
  const auto row = [](const char* start, const char* city, int64_t bucket) {
    return fmt::format("{}|{},{},{}|", start, category_id(city, 0, 1000), 1000 + bucket,
                       category_id(fmt::format("{}\x1f{}", city, bucket), 2, 1000));
  };
  EXPECT_THAT(*rows_of(spec), ElementsAre(row("1|9", "a", 0), row("0|20", "b", 2),
                                          row("0|0", "a", 3), row("1|21", "a", 2)));
  EXPECT_EQ(inspect(spec)->rows, 3000);
  spec.defaults = {{"age", "15"}};
  EXPECT_EQ((*rows_of(spec))[2], row("0|15", "a", 1));
  spec.defaults = {{"age", "old"}};
  EXPECT_THAT(error_of(spec), HasSubstr("the default of column 'age' is 'old'"));
  spec.defaults = {{"town", "x"}};
  EXPECT_THAT(error_of(spec), HasSubstr("no categorical column 'town', which has a default"));
  spec.defaults.clear();
  spec.crosses = {{"city"}};
  EXPECT_THAT(error_of(spec), HasSubstr("two columns or more"));
  spec.crosses = {{"city", "town"}};
  EXPECT_THAT(error_of(spec), HasSubstr("no categorical column 'town', which is to be crossed"));
  spec.crosses.clear();
  spec.hash_buckets = 3;
  EXPECT_THAT(error_of(spec), HasSubstr("make it larger"));
}

TEST(Csv, TakesIdsAsTheyStandInOneSharedSpace) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "label;u;i\n1;3;7\n0; 9 ;0\n"));
  spec.delimiter = ';';
  spec.id_space = 10;
  EXPECT_THAT(*rows_of(spec), ElementsAre("1||3,7|", "0||9,0|"));
  EXPECT_EQ(inspect(spec)->rows, 10);
  spec.id_space = 9;
  EXPECT_THAT(error_of(spec), HasSubstr("a.csv:3: id 9 in column 'u' is outside [0, 9)"));
}

TEST(Csv, FilesMayOrderTheirColumnsDifferently) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "label,a,b\n1,1,2\n"));
  spec.files.push_back(folder.write("b.csv", "b,label,extra,a\n4,0,zzz,3\n"));
  spec.id_space = 10;
  EXPECT_THAT(*rows_of(spec), ElementsAre("1||1,2|", "0||3,4|"));
  // The part that reads only the second file still orders fields as the first file has them.
  ReadOptions second;
  second.part = {1, 2};
  EXPECT_THAT(*rows_of(spec, second), ElementsAre("0||3,4|"));
}

TEST(Csv, NamesTheColumnsFoundWhenOneIsMissing) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "label,user,item\n1,2,3\n"));
  spec.label = "click";
  const auto schema = inspect(spec);
  EXPECT_EQ(schema.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(schema.status().message()),
              HasSubstr("a.csv:1: no column 'click'; the columns are: label, user, item"));
  spec = spec_of(Format::kCsv, folder.write("b.csv", "label,\x1b[31muser,caf\xc3\xa9\n1,2,3\n"));
  spec.label = "click";
  EXPECT_THAT(error_of(spec), HasSubstr("the columns are: label, \\x1b[31muser, caf\xc3\xa9"));
  spec = spec_of(Format::kCsv, folder.write("a.csv", "label,user,item\n1,2,3\n"));
  spec.numeric = {"user", "user"};
  EXPECT_THAT(error_of(spec), HasSubstr("column 'user' is named twice"));
  spec.numeric = {};
  spec.files = {folder.write("c.csv", "label,x,x\n1,2,3\n")};
  EXPECT_THAT(error_of(spec), HasSubstr("column 'x' stands in the header twice"));
}

TEST(Csv, NamesFileLineAndColumnOfABadRow) {
  const TestFolder folder;
  const auto message = [&](const std::string& row) {
    DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "label,n,c\n\n1,1,1\n" + row));
    spec.numeric = {"n"};
    return error_of(spec);
  };
  EXPECT_THAT(message("1,2\n"), HasSubstr("a.csv:4: 2 fields where the header has 3"));
  EXPECT_THAT(message("1,2,3,4"), HasSubstr("a.csv:4: 4 fields where the header has 3"));
  EXPECT_THAT(message("1,two,3"), HasSubstr("a.csv:4: column 'n' is 'two', not a finite number"));
  EXPECT_THAT(message("1,inf,3"), HasSubstr("not a finite number"));
  EXPECT_THAT(message("1,1e99,3"), HasSubstr("not a finite number"));
  EXPECT_THAT(message("yes,2,3"), AllOf(HasSubstr("a.csv:4: the label 'yes' is not a number"),
                                        HasSubstr("say which labels are 1: --positive TEXT")));
  EXPECT_THAT(message("0.5,2,3"), AllOf(HasSubstr("the label '0.5' is neither 0 nor 1"),
                                        HasSubstr("--label 'COLUMN>=4'")));
  EXPECT_THAT(message("1,2,\"open\n1,2,3\n"), HasSubstr("a.csv:4: field 3 opens a quote"));
  EXPECT_THAT(message("1,2,\"a\"b"), HasSubstr("field 3 goes on after its closing quote"));
  EXPECT_THAT(message("\"1\",2,\"a\",x"), HasSubstr("4 fields where the header has 3"));
  EXPECT_THAT(message("1,\x01\xff,3"), HasSubstr("'\\x01\\xff'"));
}

TEST(Csv, AnyFiniteLabelIsTakenWhenAskedFor) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "label,c\n4.5,1\n-2,1\n"));
  spec.binary_label = false;
  spec.id_space = 2;
  EXPECT_THAT(*rows_of(spec), ElementsAre("4.5||1|", "-2||1|"));
}

TEST(Csv, RowsThatArePredictedHaveNoLabel) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kCsv, folder.write("a.csv", "n,c\n4.5,1\n-2,0\n"));
  spec.label = "";
  spec.numeric = {"n"};
  spec.id_space = 2;
  const auto schema = inspect(spec);
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_FALSE(schema->has_label);
  EXPECT_THAT(schema->categorical, ElementsAre("c"));
  auto reader = Reader::open(spec, {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_EQ(batch.rows, 2);
  EXPECT_FALSE(batch.label.defined());
  EXPECT_THAT(batch.dense.data<float>(), ElementsAre(4.5F, -2.0F));
  EXPECT_THAT(batch.ids.data<int64_t>(), ElementsAre(1, 0));
}

TEST(Csv, AnEmptyFileHasNoHeader) {
  const TestFolder folder;
  EXPECT_THAT(error_of(spec_of(Format::kCsv, folder.write("a.csv", "\n"))),
              HasSubstr("a.csv: is empty; its first line must name the columns"));
}

TEST(Csv, SplitsAnyQuotedFieldsBackIntoThemselves) {
  Random random(11);
  constexpr std::string_view kAlphabet = "ab,\"\r\n ;";
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> fields(1 + random.below(5));
    std::string record;
    for (std::string& field : fields) {
      std::string quoted;
      for (uint64_t i = random.below(8); i > 0; --i) field += kAlphabet[random.below(8)];
      for (const char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
      if (&field != &fields[0]) record += ',';
      record += '"' + quoted + '"';
    }
    std::vector<std::string_view> got;
    std::string scratch;
    ASSERT_TRUE(parse::split_csv(record, {}, &got, &scratch).ok());
    ASSERT_EQ(std::vector<std::string>(got.begin(), got.end()), fields);
  }
}

TEST(Libsvm, ReadsIndicesAndValuesAndPadsToTheLongestRow) {
  const TestFolder folder;
  DataSpec spec = spec_of(Format::kLibsvm,
                          folder.write("a", "-1 3:1 7:0.5\r\n+1 0:-2e1  # note 9:9\n1\n0 2\n"));
  spec.id_space = 8;
  auto reader = Reader::open(spec, {});
  ASSERT_TRUE(reader.ok());
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_EQ(batch.ids.shape(), (tensor::Shape{4, 2}));
  EXPECT_THAT(batch.ids.data<int64_t>(), ElementsAre(3, 7, 0, -1, -1, -1, 2, -1));
  EXPECT_THAT(batch.weights.data<float>(), ElementsAre(1, 0.5F, -20, 0, 0, 0, 1, 0));
  EXPECT_THAT(batch.label.data<float>(), ElementsAre(0, 1, 1, 0));
  const auto schema = inspect(spec);
  EXPECT_TRUE(schema->weighted);
  EXPECT_EQ(schema->rows, 8);
  EXPECT_EQ(schema->dense_width, 0);
}

TEST(Libsvm, NamesFileLineAndWhatIsWrong) {
  const TestFolder folder;
  const auto message = [&](const std::string& row) {
    return error_of(spec_of(Format::kLibsvm, folder.write("a.svm", "1 1:1\n" + row + "\n")));
  };
  EXPECT_THAT(message("1 1000:1"), HasSubstr("a.svm:2: index 1000 is outside [0, 1000)"));
  EXPECT_THAT(message("1 -1:1"), HasSubstr("index -1 is outside"));
  EXPECT_THAT(message("1 x:1"), HasSubstr("a.svm:2: 'x:1' is not index:value"));
  EXPECT_THAT(message("1 qid:3 1:1"), HasSubstr("'qid:3' is not index:value"));
  EXPECT_THAT(message("1 1:"), HasSubstr("finite number as value"));
  EXPECT_THAT(message("3 1:1"), HasSubstr("neither 0 nor 1 (nor -1)"));
  EXPECT_THAT(message("# only a note"), HasSubstr("the label '' is not a number"));
}

// Whatever the bytes, a parser answers with a row in range or an error.
TEST(Parsers, MutatedRowsNeverCrashNorGiveIdsOutOfRange) {
  struct Case {
    Format format;
    std::string row;
    bool has_features = false;
  };
  const std::vector<Case> cases = {{Format::kCriteo, criteo_row("1")},
                                   {Format::kCsv, "1,2.5,\"a\"\"b\",17"},
                                   {Format::kCsv, "1,2.5,\"a\"\"b\",17|18||9", true},
                                   {Format::kLibsvm, "-1 3:1 7:0.5 12:-2e1"}};
  constexpr uint64_t kSeed = 20;
  Random random(kSeed);
  for (const Case& c : cases) {
    DataSpec spec = spec_of(c.format, "unused");
    spec.numeric = {"n"};
    if (c.has_features) {
      spec.label_rule = {.op = "!=", .value = "1"};
      spec.transforms = {{.kind = Transform::kLog1pStandard, .offset = 1, .scale = 1e30F}};
      spec.bucketized = {{.column = "n", .boundaries = {1, 2}}};
      spec.multi_hot = {{.column = "b", .separator = '|', .max_length = 3}};
      spec.crosses = {{"a", "n"}};
      spec.defaults = {{"n", "7"}, {"a", "none"}};
    }
    auto parser = make_parser(spec);
    ASSERT_TRUE(parser.ok());
    ASSERT_TRUE((*parser)->start_file("label,n,a,b").ok());
    const int64_t space = (*parser)->schema().rows;
    Row row;
    for (int round = 0; round < 20000; ++round) {
      std::string text = c.row;
      for (uint64_t edits = 1 + random.below(4); edits > 0 && !text.empty(); --edits) {
        const size_t at = random.below(text.size());
        switch (random.below(4)) {
          case 0:
            text[at] = static_cast<char>(random.below(256));
            break;
          case 1:
            text.erase(at, random.below(6));
            break;
          case 2:
            text.insert(at, 1, "\t,:\"\r\n -+.e9"[random.below(12)]);
            break;
          default:
            text = text.substr(0, at) + text.substr(random.below(text.size()));
        }
      }
      if (!(*parser)->parse(text, &row).ok()) continue;
      ASSERT_TRUE(row.label == 0 || row.label == 1);
      const int64_t first = c.has_features ? -1 : 0;
      for (const int64_t id : row.ids) ASSERT_TRUE(id >= first && id < space) << text;
      for (const float x : row.dense) ASSERT_TRUE(std::isfinite(x)) << text;
      for (const float x : row.weights) ASSERT_TRUE(std::isfinite(x)) << text;
    }
  }
}

}  // namespace
}  // namespace sidereal::data
