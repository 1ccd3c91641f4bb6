#include "sidereal/data/features_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/data/toml.h"

namespace sidereal::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string error_of(const std::string& text) {
  DataSpec spec;
  const Status status = take_features_text(text, "f.toml", &spec);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  return base::message_of(status);
}

TEST(Toml, IsReadAsTheJsonThatSaysTheSame) {
  const auto json = parse_toml(R"(a = "x # \"y\"\n"  # a comment
b = -1.5
'c d' = [1, [true, 'q\'],   # over lines
   ]

[t."u.v"]
w.x = 3
[t]
z = false
)");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->dump(), R"({"a":"x # \"y\"\n","b":-1.5,"c d":[1,[true,"q\\"]],)"
                          R"("t":{"u.v":{"w":{"x":3}},"z":false}})");
  EXPECT_EQ(parse_toml("")->dump(), "{}");
  const std::string odd = "a\"b\\c\td\n\x1b[31m\x7f";
  EXPECT_EQ((*parse_toml("k = " + toml_string(odd)))["k"], odd);
  EXPECT_THAT(toml_string(odd), HasSubstr("\\u001B[31m\\u007F"));
  EXPECT_EQ((*parse_toml("k = \"\\u00e9\\u20AC\""))["k"], "\u00e9\u20ac");
}

TEST(Toml, TellsTheLinesOfTheOutermostKeys) {
  std::map<std::string, int> lines;
  const auto json = parse_toml(R"(a = ["x = 1",
  "b = 2",  # b = 3
]
'c d'.e = 1
"c d".f = 1

[t]
a = 1
x = 1
[t.u]
[ v . w ]
)",
                               &lines);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(lines, (std::map<std::string, int>{{"a", 1}, {"c d", 4}, {"t", 7}, {"v", 11}}));
}

TEST(Toml, ErrorsNameTheLine) {
  const auto error = [](const std::string& text) {
    return base::message_of(parse_toml(text).status());
  };
  EXPECT_THAT(error("a = 1\na = 2"), HasSubstr("line 2: 'a' stands there twice"));
  EXPECT_THAT(error("[t]\n[t]\n"), HasSubstr("line 2: the table 't' stands there twice"));
  EXPECT_THAT(error("\n\na = yes"), HasSubstr("line 3: 'yes' is no value"));
  EXPECT_THAT(error("a = \"x"), HasSubstr("no closing quote"));
  EXPECT_THAT(error("a = [1 2]"), HasSubstr("commas"));
  EXPECT_THAT(error("a = [1"), HasSubstr("no ]"));
  EXPECT_THAT(error("a 1"), HasSubstr("followed by no ="));
  EXPECT_THAT(error("a = 1 b = 2"), HasSubstr("behind the end"));
  EXPECT_THAT(error("[[t]]"), HasSubstr("lists of tables"));
  EXPECT_THAT(error("a = inf"), HasSubstr("no value"));
  EXPECT_THAT(error("a = " + std::string(1000, '[')), HasSubstr("at most 32"));
  EXPECT_THAT(error("a = \"\\q\""), HasSubstr("backslash"));
  for (const char* digits : {"12", "12g4", "d800", "1\"23", ""}) {
    EXPECT_THAT(error(std::string("a = \"\\u") + digits + "\""), HasSubstr("hexadecimal"));
  }
}

TEST(Features, AreUtf8) {
  const auto error = [](const std::string& text) {
    DataSpec spec;
    return base::message_of(take_features_text(text, "f.toml", &spec));
  };
  EXPECT_THAT(error("label = 'y'\nweight = '\xe9'"), HasSubstr("f.toml: line 2 is not UTF-8"));
  const std::string column = "[columns.a]\ntype = 'categorical'\nmax_length = 2\nseparator = ";
  EXPECT_THAT(error(column + "'\xb7'"), HasSubstr("line 4 is not UTF-8"));
  EXPECT_THAT(error(column + "'\xc2\xb7'"), HasSubstr("one character of ASCII"));
  EXPECT_EQ(error(column + "';'"), "");
}

TEST(Features, HaveFiniteBoundaries) {
  DataSpec spec;
  const std::string text = "[columns.a]\ntype = 'bucketized'\nboundaries = [1, 1e39]";
  EXPECT_THAT(base::message_of(take_features_text(text, "f.toml", &spec)),
              HasSubstr("'boundaries' has 1e+39, which is no finite number of 32 bits"));
}

TEST(Features, SayWhatColumnsAre) {
  DataSpec spec;
  const Status status = take_features_text(R"(label = "income"
positive = ">50K"
weight = "w"
numeric_transform = "standard"
hash_buckets = 1000
crosses = [["city", "age"]]

[columns.age]
type = "numeric"
transform = "minmax"
default = 30
buckets = 10
[columns.hours]
type = "bucketized"
boundaries = [20, 40.5]
[columns.city]
type = "categorical"
default = "none"
[columns."a b"]
type = "categorical"
separator = "|"
max_length = 4
[columns.id]
type = "ignored"
)",
                                           "f.toml", &spec);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(spec.label, "income");
  EXPECT_EQ(spec.label_rule, (LabelRule{.op = "=", .value = ">50K"}));
  EXPECT_EQ(spec.weight, "w");
  EXPECT_EQ(spec.numeric_transform, Transform::kStandard);
  EXPECT_EQ(spec.hash_buckets, 1000);
  EXPECT_THAT(spec.numeric, ElementsAre("age"));
  EXPECT_THAT(spec.categorical, ElementsAre("city", "a b"));
  EXPECT_THAT(spec.column_transforms, ElementsAre(Pair("age", "minmax")));
  EXPECT_THAT(spec.defaults, ElementsAre(Pair("age", "30"), Pair("city", "none")));
  EXPECT_THAT(spec.crosses, ElementsAre(ElementsAre("city", "age")));
  EXPECT_THAT(spec.bucketized,
              ElementsAre(Bucketized{.column = "age", .buckets = 10},
                          Bucketized{.column = "hours", .boundaries = {20.0F, 40.5F}}));
  EXPECT_THAT(spec.multi_hot,
              ElementsAre(MultiHot{.column = "a b", .separator = '|', .max_length = 4}));
}

TEST(Features, WhatIsWrongIsNamed) {
  EXPECT_THAT(error_of("labl = \"x\""), HasSubstr("f.toml: unknown key 'labl'"));
  EXPECT_THAT(error_of("[columns.a]\ntype = \"text\""),
              HasSubstr("f.toml: [columns.a]: the type is 'text'"));
  EXPECT_THAT(error_of("[columns.a]\nsize = 3"), HasSubstr("unknown key 'size'"));
  EXPECT_THAT(error_of("[columns.a]\ntype = 3"), HasSubstr("'type' must be a text"));
  EXPECT_THAT(error_of("[columns.a]\ntype = \"categorical\"\nbuckets = 3"),
              HasSubstr("buckets are of numbers"));
  EXPECT_THAT(error_of("[columns.a]\ntype = \"bucketized\""), HasSubstr("has 'buckets'"));
  EXPECT_THAT(error_of("[columns.a]\ntype = \"categorical\"\nseparator = \"|\""),
              HasSubstr("go together"));
  EXPECT_THAT(error_of("[columns.a]\ntype = \"numeric\"\ntransform = \"sqrt\""),
              HasSubstr("no transform 'sqrt'"));
  EXPECT_THAT(error_of("label = \"x\""), HasSubstr("names no column"));
  EXPECT_THAT(error_of("a = b"), HasSubstr("f.toml: line 1"));
  EXPECT_THAT(error_of("crosses = [\"a\"]"), HasSubstr("'crosses'"));
  DataSpec spec;
  spec.numeric = {"a"};
  EXPECT_THAT(base::message_of(take_features_text("", "f.toml", &spec)),
              HasSubstr("leave out --numeric"));
}

TEST(Features, LabelsAreColumnsOrComparisons) {
  DataSpec spec;
  const auto taken = [&](const std::string& text) {
    EXPECT_TRUE(parse_label_option(text, &spec).ok()) << text;
    return spec.label + "|" + spec.label_rule.op + "|" + spec.label_rule.value;
  };
  EXPECT_EQ(taken("click"), "click||");
  EXPECT_EQ(taken("rating >= 4"), "rating|>=|4");
  EXPECT_EQ(taken("rating<4"), "rating|<|4");
  EXPECT_EQ(taken("income=>50K"), "income|=|>50K");
  EXPECT_EQ(taken("income!=<=50K"), "income|!=|<=50K");
  for (const char* const text : {"rating>=", ">=4", "a!b"}) {
    EXPECT_THAT(base::message_of(parse_label_option(text, &spec)), HasSubstr("comparison")) << text;
  }
}

TEST(Features, AProposalIsTakenAsItStands) {
  std::vector<ColumnStatistics> columns;
  const auto add = [&](const std::string& name, bool numbers, int64_t distinct) -> auto& {
    ColumnStatistics& c = columns.emplace_back();
    c.name = name;
    c.rows = 2000;
    c.numbers = c.integers = numbers ? 2000 : 0;
    c.max = 90;
    c.distinct = distinct;
    c.examples = {" <=50K", " >50K"};
    c.parts.assign(kSeparators.size(), 1);
    c.parted.assign(kSeparators.size(), 0);
    return c;
  };
  add("age", true, 70);
  add("few", true, 3);
  add("item", true, 800).max = 900;
  add("price", true, 800).max = 9000;
  add("user_id", true, 1900);
  add("one \"thing\"", true, 1);
  add("comment", false, 2000);
  auto& genres = add("genres", false, 200);
  genres.parts[0] = 6;
  genres.parted[0] = 1500;
  add("income", false, 2);
  const std::string text = proposed_features(columns, "");
  DataSpec spec;
  const Status status = take_features_text(text, "f.toml", &spec);
  ASSERT_TRUE(status.ok()) << status << "\n" << text;
  EXPECT_EQ(spec.label, "income");
  EXPECT_EQ(spec.label_rule, (LabelRule{.op = "=", .value = ">50K"}));
  EXPECT_THAT(spec.numeric, ElementsAre("age", "price"));
  EXPECT_THAT(spec.categorical, ElementsAre("few", "item", "user_id", "genres"));
  EXPECT_THAT(spec.multi_hot,
              ElementsAre(MultiHot{.column = "genres", .separator = '|', .max_length = 6}));
  EXPECT_THAT(text, HasSubstr("whole numbers, 0 to 90"));
}

}  // namespace
}  // namespace sidereal::data
