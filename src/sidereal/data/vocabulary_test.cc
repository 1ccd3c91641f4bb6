#include "sidereal/data/vocabulary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/data/features_file.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/statistics.h"
#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr const char* kRows =
    "label,city,tags,history,item\n"
    "1,Rome,a|b,i1|i2|i3,i1\n"
    "0,Bonn,b,i2,i2\n"
    "1,Rome,,,i3\n"
    "0,,c|a|b,i9|i1,i1\n";

DataSpec spec_of(const std::string& file) {
  DataSpec spec;
  spec.files = {file};
  spec.categorical = {"city", "tags", "item"};
  spec.multi_hot = {{.column = "tags", .separator = '|', .max_length = 2}};
  spec.sequences = {{.column = "history", .max_length = 2, .like = "item"}};
  spec.hash_buckets = 10;
  return spec;
}

ReadOptions batches_of(int64_t size) {
  ReadOptions options;
  options.batch_size = size;
  return options;
}

Batch read(const DataSpec& spec) {
  auto reader = Reader::open(spec, batches_of(8));
  EXPECT_TRUE(reader.ok()) << reader.status();
  Batch batch;
  const auto some = (*reader)->next(&batch);
  EXPECT_TRUE(some.ok() && *some) << some.status();
  return batch;
}

std::vector<int64_t> values(const tensor::Tensor& tensor) {
  const auto all = tensor.data<const int64_t>();
  return {all.begin(), all.end()};
}

TEST(Vocabulary, IsLearnedMostFrequentFirstAndNumbersTexts) {
  const TestFolder folder;
  DataSpec spec = spec_of(folder.write("a.csv", kRows));
  spec.vocabularies = {{.column = "city"}, {.column = "tags"}, {.column = "item"}};
  EXPECT_TRUE(needs_statistics(spec));
  const auto known = with_statistics(spec);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_FALSE(needs_statistics(*known));
  EXPECT_THAT(known->vocabularies[0].tokens, ElementsAre("Rome", "Bonn"));
  EXPECT_THAT(known->vocabularies[1].tokens, ElementsAre("b", "a", "c"));
  // The tokens of the history count: i1 4 times, i2 3, i3 2, i9 once.
  EXPECT_THAT(known->vocabularies[2].tokens, ElementsAre("i1", "i2", "i3", "i9"));
  const auto schema = inspect(*known);
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->rows, 3 + 4 + 5);
  EXPECT_THAT(schema->sequences, ElementsAre(Pair("history", 2)));
  const Batch batch = read(*known);
  EXPECT_THAT(values(batch.ids), ElementsAre(1, 5, 4, 8,   //
                                             2, 4, -1, 9,  //
                                             1, -1, -1, 10, 0, 6, 5, 8));
  ASSERT_NE(batch.find("history"), nullptr);
  EXPECT_THAT(values(*batch.find("history")), ElementsAre(8, 9, 9, -1, -1, -1, 11, 8));
}

TEST(Vocabulary, PaddingAndTruncatingMayBeInFront) {
  const TestFolder folder;
  DataSpec spec = spec_of(folder.write("a.csv", kRows));
  spec.vocabularies = {{.column = "item", .tokens = {"i1", "i2"}}};
  spec.sequences[0].padding = "pre";
  spec.sequences[0].truncating = "pre";
  spec.defaults = {{"history", "i1"}};
  EXPECT_THAT(values(*read(spec).find("history")), ElementsAre(22, 20, -1, 22, -1, 21, 20, 21));
  // Ids of its own, behind those of the others.
  spec.sequences[0].like = "";
  spec.vocabularies = {{.column = "history", .tokens = {"i1", "i2"}}};
  EXPECT_THAT(values(*read(spec).find("history")), ElementsAre(32, 30, -1, 32, -1, 31, 30, 31));
}

TEST(Vocabulary, OovNumbersAreChosenByFarmHash) {
  const FieldIds ids(0, 100, Vocabulary{.column = "c", .num_oov_indices = 3, .tokens = {"x"}});
  EXPECT_EQ(ids.size(), 4);
  EXPECT_EQ(ids.id("x"), 103);
  // As in TensorFlow's page of tf.strings.to_hash_bucket_fast.
  const FieldIds hashed(0, 0, Hash::kFarmhash, 3);
  EXPECT_EQ(hashed.id("Hello"), 0);
  EXPECT_EQ(hashed.id("TensorFlow"), 2);
  EXPECT_EQ(hashed.id("2.x"), 2);
}

TEST(Vocabulary, OptionsAndFiles) {
  const TestFolder folder;
  const std::string file = folder.write("v.txt", "a\nb\r\nc\n");
  auto made = parse_vocabulary_option("city=" + file + ":max=4:oov=2");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->column, "city");
  EXPECT_EQ(made->num_oov_indices, 2);
  EXPECT_THAT(made->tokens, ElementsAre("a", "b"));
  EXPECT_EQ(vocabulary_text(*made), "a\nb\n");
  EXPECT_EQ(vocabulary_file_name("a/b"), "vocabulary_a_b.txt");
  made = parse_vocabulary_option("city");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->tokens.empty());
  const auto message = [&](const std::string& text) {
    return std::string(parse_vocabulary_option(text).status().message());
  };
  EXPECT_THAT(message("=auto"), HasSubstr("is not COLUMN[=FILE|auto]"));
  EXPECT_THAT(message("c=auto:max=x"), HasSubstr("is no number"));
  EXPECT_THAT(message("c=auto:oov=0"), HasSubstr("it must be 1 or more"));
  EXPECT_THAT(message("c=auto:max=2:oov=2"), HasSubstr("at most 2 numbers, 2 of them"));
  EXPECT_THAT(message("c=none.txt"), HasSubstr("cannot read the vocabulary file none.txt"));
  EXPECT_THAT(message("c=" + folder.write("w.txt", "a\na\n")), HasSubstr("w.txt:2: the token"));
  EXPECT_THAT(message("c=" + folder.write("x.txt", "a\n\xff\n")), HasSubstr("x.txt:2: "));
  EXPECT_THAT(message("c=" + folder.write("y.txt", "")), HasSubstr("has no tokens"));
  const auto sequence = parse_sequence_option("a:b:|:5:truncating=pre:like=item");
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(*sequence, (Sequence{.column = "a:b",
                                 .separator = '|',
                                 .max_length = 5,
                                 .truncating = "pre",
                                 .like = "item"}));
  EXPECT_FALSE(parse_sequence_option("a|5").ok());
  EXPECT_FALSE(parse_sequence_option("a:|:5:padding=left").ok());
  EXPECT_FALSE(parse_sequence_option("a:|:0").ok());
}

TEST(Vocabulary, IsPartOfAFileOfFeatures) {
  const TestFolder folder;
  static_cast<void>(folder.write("words.txt", "Bonn\nRome\n"));
  const std::string path = folder.write("features.toml",
                                        "hash = \"farmhash\"\n"
                                        "[columns.city]\ntype = \"categorical\"\n"
                                        "vocabulary = \"words.txt\"\nnum_oov_indices = 2\n"
                                        "[columns.item]\ntype = \"categorical\"\n"
                                        "vocabulary = \"auto\"\nmax_tokens = 3\n"
                                        "[columns.history]\ntype = \"sequence\"\n"
                                        "separator = \"|\"\nmax_length = 3\nlike = \"item\"\n");
  DataSpec spec;
  ASSERT_TRUE(take_features(path, &spec).ok());
  EXPECT_EQ(spec.hash, Hash::kFarmhash);
  EXPECT_THAT(
      spec.vocabularies,
      ElementsAre(Vocabulary{.column = "city", .num_oov_indices = 2, .tokens = {"Bonn", "Rome"}},
                  Vocabulary{.column = "item", .max_tokens = 3}));
  EXPECT_THAT(spec.sequences,
              ElementsAre(Sequence{.column = "history", .max_length = 3, .like = "item"}));
  const auto message = [](const std::string& column) {
    DataSpec made;
    return std::string(take_features_text("[columns.c]\n" + column, "f.toml", &made).message());
  };
  EXPECT_THAT(message("type = \"numeric\"\nvocabulary = \"auto\""), HasSubstr("only categorical"));
  EXPECT_THAT(message("type = \"categorical\"\nmax_tokens = 3"),
              HasSubstr("vocabulary = \"auto\""));
  EXPECT_THAT(message("type = \"categorical\"\nvocabulary = [\"a\", \"a\"]"), HasSubstr("twice"));
  EXPECT_THAT(message("type = \"sequence\""), HasSubstr("has 'separator' and 'max_length'"));
  EXPECT_THAT(message("type = \"categorical\"\nlike = \"x\""), HasSubstr("of the type sequence"));
}

TEST(Vocabulary, MoreLabelsGroupsAndWeightsOfClasses) {
  const TestFolder folder;
  DataSpec spec;
  spec.files = {folder.write("a.csv", "label,buy,q,w,c\n1,0,a,2,x\n0,1,b,3,y\n1,1,a,4,x\n")};
  spec.targets = {"buy"};
  spec.group = "q";
  spec.weight = "w";
  spec.class_weights = {{"1", "5"}};
  const Batch batch = read(spec);
  const auto floats = [](const tensor::Tensor& tensor) {
    const auto all = tensor.data<const float>();
    return std::vector<float>(all.begin(), all.end());
  };
  EXPECT_THAT(floats(*batch.find("buy")), ElementsAre(0, 1, 1));
  EXPECT_THAT(floats(batch.sample_weight), ElementsAre(10, 3, 20));
  const auto group = values(*batch.find(kGroup));
  EXPECT_EQ(group[0], group[2]);
  EXPECT_NE(group[0], group[1]);
  EXPECT_GE(group[0], 0);
  spec.class_weights = {{"1", "-5"}};
  EXPECT_THAT(std::string(inspect(spec).status().message()), HasSubstr("is not negative"));
  spec.class_weights.clear();
  spec.targets = {"c"};
  EXPECT_THAT(std::string(Reader::open(spec, batches_of(8))
                              .value()
                              ->next(std::make_unique<Batch>().get())
                              .status()
                              .message()),
              HasSubstr("column 'c': the label"));
}

TEST(Vocabulary, WrongColumnsAreTold) {
  const TestFolder folder;
  const auto message = [&](const auto& change) {
    DataSpec spec = spec_of(folder.write("a.csv", kRows));
    change(&spec);
    return std::string(inspect(spec).status().message());
  };
  EXPECT_THAT(message([](DataSpec* s) { s->vocabularies = {{.column = "town"}}; }),
              HasSubstr("column 'town' has a vocabulary and is neither"));
  EXPECT_THAT(message([](DataSpec* s) { s->sequences[0].like = "town"; }),
              HasSubstr("no categorical column 'town', whose ids a sequence is to have"));
  EXPECT_THAT(message([](DataSpec* s) { s->categorical.emplace_back("history"); }),
              HasSubstr("named twice"));
  EXPECT_THAT(message([](DataSpec* s) {
                s->vocabularies = {{.column = "city"}};
                s->id_space = 5;
              }),
              HasSubstr("they go with no id space"));
}

}  // namespace
}  // namespace sidereal::data
