#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "sidereal/data/reader.h"
#include "sidereal/data/testing/files.h"
#include "sidereal/data/vocabulary.h"

namespace sidereal::data {
namespace {

using testing::HasSubstr;

constexpr int64_t kItems = 7;

struct Told {
  float label = 0;
  float buy = 0;
  float weight = 1;
  int64_t user = 0;
  int64_t item = 0;
  friend bool operator==(const Told&, const Told&) = default;
};

/// Rows label, buy, user, item; users are all different, so that copies are known.
std::string text_of(int rows, int items, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string text = "label,buy,user,item\n";
  for (int i = 0; i < rows; ++i) {
    text += fmt::format("{},1,u{},i{}\n", random() % 3 == 0 ? 1 : 0, i, random() % items);
  }
  return text;
}

DataSpec spec_of(const std::string& file, const std::string& sampler, int64_t count) {
  DataSpec spec;
  spec.files = {file};
  spec.targets = {"buy"};
  spec.hash_buckets = int64_t{1} << 30;
  spec.negatives = {.column = "item", .count = count, .sampler = sampler};
  Vocabulary& items = spec.vocabularies.emplace_back(Vocabulary{.column = "item"});
  for (int64_t i = 0; i < kItems; ++i) items.tokens.push_back(fmt::format("i{}", i));
  return spec;
}

std::vector<Told> read(const DataSpec& spec, ReadOptions options = {}) {
  options.batch_size = 64;
  auto reader = Reader::open(spec, options);
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::vector<Told> out;
  while (reader.ok()) {
    Batch batch;
    const auto more = (*reader)->next(&batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    for (int64_t i = 0; i < batch.rows; ++i) {
      const auto at = static_cast<size_t>(i);
      const auto ids = batch.ids.data<const int64_t>();
      Told& one = out.emplace_back();
      one.label = batch.label.data<const float>()[at];
      one.buy = batch.find("buy")->data<const float>()[at];
      if (batch.sample_weight.defined()) {
        one.weight = batch.sample_weight.data<const float>()[at];
      }
      one.user = ids[2 * at];
      one.item = ids[2 * at + 1];
    }
  }
  return out;
}

std::string error_of(const DataSpec& spec) { return base::message_of(inspect(spec).status()); }

TEST(Negatives, stand_behind_each_positive_and_are_never_it) {
  const TestFolder folder;
  std::mt19937 random(7);
  for (const char* const sampler : {"popularity", "uniform"}) {
    for (uint32_t seed = 1; seed < 20; ++seed) {
      const int64_t count = 1 + random() % 5;
      const int items = 2 + static_cast<int>(random() % 6);
      const std::string file = folder.write("a.csv", text_of(150, items, seed));
      DataSpec without = spec_of(file, sampler, count);
      without.negatives = {};
      const std::vector<Told> before = read(without);
      const std::vector<Told> all = read(spec_of(file, sampler, count));
      std::set<int64_t> seen;
      size_t at = 0;
      for (const Told& row : before) {
        ASSERT_LT(at, all.size());
        EXPECT_EQ(all[at++], row);
        seen.insert(row.item);
        if (row.label == 0) continue;
        const bool is_first = std::string(sampler) == "popularity" && seen.size() == 1;
        for (int64_t i = 0; i < (is_first ? 0 : count); ++i) {
          ASSERT_LT(at, all.size());
          const Told& negative = all[at++];
          EXPECT_EQ(negative.user, row.user);
          EXPECT_NE(negative.item, row.item);
          EXPECT_EQ(negative.label, 0);
          EXPECT_EQ(negative.buy, 0);
          const bool is_of_vocabulary = std::string(sampler) == "uniform";
          EXPECT_TRUE(is_of_vocabulary || seen.contains(negative.item));
        }
      }
      EXPECT_EQ(at, all.size());
    }
  }
}

TEST(Negatives, are_the_same_for_the_same_seed_and_row) {
  const TestFolder folder;
  for (const char* const sampler : {"popularity", "uniform"}) {
    DataSpec spec = spec_of(folder.write("a.csv", text_of(400, kItems)), sampler, 3);
    const std::vector<Told> all = read(spec);
    EXPECT_EQ(read(spec), all);
    // A reader that goes on in the middle of a row's negatives, or anywhere else.
    for (const int64_t rows : {1, 17, 18, 19, 20, 301}) {
      ReadOptions later;
      later.rows_before = rows;
      EXPECT_EQ(read(spec, later), std::vector<Told>(all.begin() + rows, all.end())) << rows;
    }
    ReadOptions next;
    next.epoch = 1;
    EXPECT_NE(read(spec, next), all);
    spec.seed = 2;
    EXPECT_NE(read(spec), all);
    // Rows are mixed, and are the same ones.
    spec.seed = 0;
    spec.shuffle_rows = 50;
    const std::vector<Told> shuffled = read(spec);
    EXPECT_EQ(shuffled.size(), all.size());
    ReadOptions half;
    half.rows_before = 100;
    EXPECT_EQ(read(spec, half), std::vector<Told>(shuffled.begin() + 100, shuffled.end()));
  }
}

TEST(Negatives, are_drawn_as_often_as_they_are_there_or_all_alike) {
  const TestFolder folder;
  std::string text = "label,buy,user,item\n";
  // Six rows of i0 to three of i1 and one of i2; negatives of i6 alone.
  for (int i = 0; i < 20'000; ++i) {
    const int place = i % 10;
    text += fmt::format("0,0,u,i{}\n", place < 6 ? 0 : (place < 9 ? 1 : 2));
    if (place == 9) text += "1,0,u,i6\n";
  }
  const std::string file = folder.write("a.csv", text);
  const auto shares = [&](const char* sampler) {
    std::map<int64_t, double> out;
    DataSpec spec = spec_of(file, sampler, 4);
    DataSpec without = spec;
    without.negatives = {};
    for (const Told& one : read(spec)) out[one.item] += 1;
    for (const Told& one : read(without)) out[one.item] -= 1;
    double total = 0;
    for (const auto& [item, count] : out) total += count;
    EXPECT_GT(total, 7990);
    std::vector<double> by_item;
    const int64_t first = out.rbegin()->first - (kItems - 1);
    for (int64_t i = 0; i < kItems; ++i) by_item.push_back(out[first + i] / total);
    return by_item;
  };
  const std::vector<double> popular = shares("popularity");
  EXPECT_NEAR(popular[0], 0.6, 0.03);
  EXPECT_NEAR(popular[1], 0.3, 0.03);
  EXPECT_NEAR(popular[2], 0.1, 0.03);
  const std::vector<double> uniform = shares("uniform");
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(uniform[i], 1.0 / 6, 0.02) << i;
  EXPECT_EQ(uniform[6], 0);
}

TEST(Negatives, count_what_rows_of_their_label_count) {
  const TestFolder folder;
  DataSpec spec = spec_of(folder.write("a.csv", text_of(60, kItems)), "uniform", 2);
  spec.class_weights = {{"1", "5"}, {"0", "0.5"}};
  for (const Told& one : read(spec)) EXPECT_EQ(one.weight, one.label > 0 ? 5 : 0.5F);
}

TEST(Negatives, of_what_has_no_other_value_there_are_none) {
  const TestFolder folder;
  const std::string file = folder.write("a.csv", text_of(60, 1));
  EXPECT_EQ(read(spec_of(file, "popularity", 3)).size(), 60U);
  DataSpec spec = spec_of(file, "uniform", 3);
  spec.vocabularies[0].tokens = {"i0"};
  EXPECT_EQ(read(spec).size(), 60U);
  // What is no token may have any of them.
  spec.vocabularies[0].tokens = {"other"};
  EXPECT_GT(read(spec).size(), 60U);
}

TEST(Negatives, that_cannot_be_are_told) {
  const TestFolder folder;
  const DataSpec good = spec_of(folder.write("a.csv", text_of(9, kItems)), "uniform", 2);
  EXPECT_EQ(error_of(good), "");
  const auto said = [&](const auto& change) {
    DataSpec spec = good;
    change(&spec);
    return error_of(spec);
  };
  EXPECT_THAT(said([](DataSpec* s) { s->negatives.column = "age"; }),
              HasSubstr("no categorical column 'age', which is to have negatives; they are: user"));
  EXPECT_THAT(said([](DataSpec* s) { s->vocabularies.clear(); }), HasSubstr("it has none"));
  EXPECT_THAT(said([](DataSpec* s) { s->negatives.sampler = "best"; }),
              HasSubstr("by 'best'; it must be popularity or uniform"));
  EXPECT_THAT(said([](DataSpec* s) { s->negatives.count = 0; }), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(said([](DataSpec* s) { s->crosses = {{"user", "item"}}; }), HasSubstr("is crossed"));
  EXPECT_THAT(said([](DataSpec* s) {
                s->vocabularies.clear();
                s->multi_hot = {{.column = "item", .max_length = 2}};
              }),
              HasSubstr("several values in a cell"));
  EXPECT_THAT(said([](DataSpec* s) {
                s->targets.clear();
                s->group = "buy";
              }),
              HasSubstr("go with no group ('buy')"));
}

TEST(Negatives, are_said_by_an_option) {
  const auto option = [](const std::string& text) { return parse_negatives_option(text); };
  EXPECT_EQ(*option("item=4"), (Negatives{.column = "item", .count = 4}));
  EXPECT_EQ(*option(" a=b = 4:sampler=uniform"),
            (Negatives{.column = "a=b", .count = 4, .sampler = "uniform"}));
  for (const char* const wrong : {"item", "item=", "=4", "item=x", "", ":sampler=uniform",
                                  "item:sampler=uniform", "item=4:uniform"}) {
    EXPECT_THAT(base::message_of(option(wrong).status()), HasSubstr("is not COLUMN=N")) << wrong;
  }
  EXPECT_THAT(base::message_of(option("item=0").status()), HasSubstr("--negatives: "));
  EXPECT_FALSE(option("item=4:sampler=best").ok());
}

}  // namespace
}  // namespace sidereal::data
