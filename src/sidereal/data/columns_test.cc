#include "sidereal/data/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "sidereal/base/bytes.h"
#include "sidereal/data/random.h"
#include "sidereal/data/row_parser.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Writes frames as feeders do.
class Writer {
 public:
  Writer(uint32_t rows, uint32_t columns, uint32_t version = 1) {
    out_.put(version);
    out_.put(rows);
    out_.put(columns);
  }
  Writer& column(std::string_view name) {
    out_.put_string(name);
    return *this;
  }
  Writer& kind(CellKind kind, const std::vector<bool>& is_there = {}) {
    out_.put(kind);
    if (kind == CellKind::kNone) return *this;
    out_.put(static_cast<uint8_t>(!is_there.empty()));
    std::string bits((is_there.size() + 7) / 8, '\0');
    for (size_t i = 0; i < is_there.size(); ++i) {
      if (is_there[i]) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << (i % 8));
    }
    out_.put_bytes(bits);
    return *this;
  }
  template <class T>
  Writer& values(const std::vector<T>& values) {
    for (const T value : values) out_.put(value);
    return *this;
  }
  Writer& texts(const std::vector<std::string>& texts) {
    uint32_t at = 0;
    out_.put(at);
    for (const std::string& text : texts) out_.put(at += static_cast<uint32_t>(text.size()));
    for (const std::string& text : texts) out_.put_bytes(text);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return out_.bytes(); }

 private:
  base::ByteWriter out_;
};

std::vector<std::string> texts_of(const Cells& cells) {
  std::vector<std::string> out;
  std::string scratch;
  for (int64_t i = 0; i < cells.size(); ++i) out.emplace_back(cells.text(i, &scratch));
  return out;
}

template <class T>
std::string text_of(CellKind kind, T value) {
  Writer frame(1, 1);
  frame.column("x").kind(kind).values<T>({value});
  return texts_of(read_columns(frame.bytes())->columns.front().cells).front();
}

template <class T>
float number_of(CellKind kind, T value) {
  Writer frame(1, 1);
  frame.column("x").kind(kind).values<T>({value});
  float out = 0;
  const bool is_number = read_columns(frame.bytes())->columns.front().cells.number(0, &out);
  return is_number ? out : std::numeric_limits<float>::quiet_NaN();
}

TEST(Columns, HaveTheirCells) {
  Writer frame(3, 5);
  frame.column("n").kind(CellKind::kInt8, {true, false, true}).values<int8_t>({-7, 1, 9});
  frame.column("left out").kind(CellKind::kNone);
  frame.column("t").kind(CellKind::kText).texts({"a", "", std::string("\xff\0", 2)});
  frame.column("d").kind(CellKind::kDictionary).values<uint32_t>({2}).texts({"x", "yy"});
  frame.values<uint32_t>({1, 0, 1});
  frame.column("l").kind(CellKind::kList).values<uint32_t>({0, 2, 2, 3});
  frame.kind(CellKind::kFloat32, {true, false, true}).values<float>({1.5F, 0, 2});
  const auto found = read_columns(frame.bytes());
  ASSERT_TRUE(found.ok()) << base::message_of(found.status());
  EXPECT_EQ(found->rows, 3);
  EXPECT_THAT(texts_of(found->columns[0].cells), ElementsAre("-7", "", "9"));
  EXPECT_TRUE(found->columns[0].cells.is_missing(1));
  EXPECT_EQ(found->columns[1].name, "left out");
  EXPECT_TRUE(found->columns[1].cells.is_missing(0));
  EXPECT_THAT(texts_of(found->columns[2].cells), ElementsAre("a", "", std::string("\xff\0", 2)));
  EXPECT_THAT(texts_of(found->columns[3].cells), ElementsAre("yy", "x", "yy"));
  EXPECT_THAT(texts_of(found->columns[4].cells), ElementsAre("1.5|", "", "2"));
}

TEST(Columns, NumbersHaveTheTextOfArrow) {
  const std::vector<std::pair<double, std::string>> doubles = {
      {1, "1"},
      {-0.0, "-0"},
      {0.1, "0.1"},
      {1e9, "1000000000"},
      {9999999999.5, "9999999999.5"},
      {1e10, "1e+10"},
      {12345678901, "1.2345678901e+10"},
      {1e-6, "0.000001"},
      {1.5e-5, "0.000015"},
      {9.99e-7, "9.99e-7"},
      {5e-324, "5e-324"},
      {1.7e308, "1.7e+308"},
      {-123.25, "-123.25"},
      {1e22, "1e+22"},
      {std::numeric_limits<double>::infinity(), "inf"},
      {std::numeric_limits<double>::quiet_NaN(), ""}};
  for (const auto& [value, text] : doubles) EXPECT_EQ(text_of(CellKind::kFloat64, value), text);
  EXPECT_EQ(text_of(CellKind::kFloat32, 0.1F), "0.1");
  EXPECT_EQ(text_of(CellKind::kFloat32, 16777216.0F), "16777216");
  EXPECT_EQ(text_of(CellKind::kFloat32, 3.4e38F), "3.4e+38");
  EXPECT_EQ(text_of(CellKind::kUint64, std::numeric_limits<uint64_t>::max()),
            "18446744073709551615");
  EXPECT_EQ(text_of(CellKind::kInt64, std::numeric_limits<int64_t>::min()), "-9223372036854775808");
}

TEST(Columns, NumbersAreWhatTheirTextIsReadAs) {
  Random random(7);
  for (int i = 0; i < 200'000; ++i) {
    uint64_t bits = random.next();
    // Some are half way between two floats, or just beside.
    if (i % 4 == 0) {
      const auto beside = static_cast<uint64_t>(i / 4 % 3);
      bits = (bits & ~((uint64_t{1} << 29) - 1)) + (uint64_t{1} << 28) + beside - 1;
    }
    // Most of the others are so large or small that no float is near.
    if (i % 2 == 0) bits = (bits & ~(uint64_t{0x700} << 52)) | (uint64_t{0x380} << 52);
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    const float found = number_of(CellKind::kFloat64, value);
    if (std::isnan(found)) continue;
    float expected = 0;
    ASSERT_TRUE(parse::parse_float(text_of(CellKind::kFloat64, value), &expected)) << value;
    ASSERT_EQ(found, expected) << value;
  }
  EXPECT_EQ(number_of(CellKind::kUint64, uint64_t{1} << 63), 9223372036854775808.0F);
  EXPECT_EQ(number_of(CellKind::kInt32, -16777217), -16777216.0F);
  EXPECT_EQ(number_of(CellKind::kUint8, uint8_t{200}), 200.0F);
  // Half way: the text says which.
  EXPECT_TRUE(std::isnan(number_of(CellKind::kFloat64, 16777217.0)));
  EXPECT_TRUE(std::isnan(number_of(CellKind::kFloat64, 1e39)));
  EXPECT_TRUE(std::isnan(number_of(CellKind::kFloat32, std::numeric_limits<float>::infinity())));
}

TEST(Columns, IntegersThatDoNotFitAreNone) {
  Writer frame(2, 1);
  frame.column("x").kind(CellKind::kUint64).values<uint64_t>({uint64_t{1} << 63, 5});
  const auto found = read_columns(frame.bytes());
  int64_t value = 0;
  EXPECT_FALSE(found->columns.front().cells.integer(0, &value));
  EXPECT_TRUE(found->columns.front().cells.integer(1, &value));
  EXPECT_EQ(value, 5);
}

TEST(Columns, WhatIsWrongIsAnError) {
  const auto said = [](const Writer& frame) {
    const auto found = read_columns(frame.bytes());
    EXPECT_EQ(found.status().code(), StatusCode::kDataLoss);
    return std::string(base::message_of(found.status()));
  };
  EXPECT_THAT(said(Writer(1, 0, 2)), HasSubstr("version 2"));
  EXPECT_THAT(said(Writer(1, 3)), HasSubstr("cut or damaged"));
  EXPECT_THAT(said(Writer(1, 1).column("x").kind(static_cast<CellKind>(77))), HasSubstr("77"));
  EXPECT_THAT(said(Writer(9, 1).column("x").kind(CellKind::kInt64).values<int64_t>({1})),
              HasSubstr("cut or damaged"));
  EXPECT_THAT(said(Writer(0xffffffff, 1).column("x").kind(CellKind::kText).texts({"a"})),
              HasSubstr("cut or damaged"));
  const auto offsets = [](const std::vector<uint32_t>& values) {
    Writer frame(2, 1);
    frame.column("x").kind(CellKind::kText).values(values).values<char>({'a', 'b'});
    return frame;
  };
  EXPECT_TRUE(read_columns(offsets({0, 1, 2}).bytes()).ok());
  EXPECT_THAT(said(offsets({1, 1, 2})), HasSubstr("offsets"));
  EXPECT_THAT(said(offsets({0, 3, 2})), HasSubstr("offsets"));
  EXPECT_THAT(said(offsets({0, 1, 3})), HasSubstr("cut or damaged"));
  EXPECT_THAT(said(offsets({0, 1, 1})), HasSubstr("1 bytes follow"));
  Writer dictionary(1, 1);
  dictionary.column("x").kind(CellKind::kDictionary).values<uint32_t>({1}).texts({"a"});
  EXPECT_THAT(said(dictionary.values<uint32_t>({1})), HasSubstr("dictionary of 1"));
  Writer nested(1, 1);
  nested.column("x").kind(CellKind::kList).values<uint32_t>({0, 0}).kind(CellKind::kList);
  EXPECT_THAT(said(nested.values<uint32_t>({0})), HasSubstr("list"));
}

/// A frame that Python wrote (python/tests/test_table_columns.py): the bytes of the format.
std::string golden() {
  std::ifstream file(SIDEREAL_SOURCE_DIR "/tests/corpus/columns/of_every_kind", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Columns, AreReadAsTheFormatSays) {
  const std::string bytes = golden();
  const auto frame = read_columns(bytes);
  ASSERT_TRUE(frame.ok()) << base::message_of(frame.status());
  ASSERT_EQ(frame->columns.size(), 7U);
  const auto texts = [&](size_t column) { return texts_of(frame->columns[column].cells); };
  EXPECT_THAT(texts(0), ElementsAre("1", "", "-3"));
  EXPECT_THAT(texts(1), ElementsAre("0", "1", "18446744073709551615"));
  EXPECT_THAT(texts(2), ElementsAre("0.5", "", "2.5"));
  EXPECT_EQ(frame->columns[3].cells.kind(), CellKind::kNone);
  EXPECT_EQ(frame->columns[4].cells.kind(), CellKind::kDictionary);
  EXPECT_THAT(texts(4), ElementsAre("x", "y", "x"));
  EXPECT_THAT(texts(5), ElementsAre("1|", "", ""));
  EXPECT_THAT(texts(6), ElementsAre("a", "b|c", ""));
}

TEST(Columns, ChangedBytesAreReadWithinTheFrame) {
  const std::string bytes = golden();
  Random random(3);
  size_t good = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = bytes;
    for (uint64_t edits = 1 + random.below(3); edits > 0; --edits) {
      changed[random.below(changed.size())] = static_cast<char>(random.below(256));
    }
    // Of exactly its size, so that sanitizers see what lies behind.
    const std::vector<char> exact(changed.begin(), changed.end());
    const auto frame = read_columns({exact.data(), exact.size()});
    if (!frame.ok()) continue;
    ++good;
    for (const NamedCells& column : frame->columns) {
      if (column.cells.kind() == CellKind::kNone) continue;
      for (const std::string& text : texts_of(column.cells)) ASSERT_LE(text.size(), bytes.size());
    }
  }
  EXPECT_GT(good, 100U);
}

TEST(Columns, RowsAreWhatTheyAreAsText) {
  DataSpec spec;
  spec.numeric = {"a", "b"};
  spec.categorical = {"c", "d"};
  spec.bucketized = {{.column = "a", .boundaries = {1, 2}}};
  spec.multi_hot = {{.column = "d", .separator = '|', .max_length = 3}};
  spec.crosses = {{"c", "a"}};
  spec.defaults = {{"b", "3"}};
  spec.weight = "w";
  spec.targets = {"t"};
  const auto parser = make_parser(spec);
  ASSERT_TRUE(parser.ok());
  ASSERT_TRUE((*parser)->start_file({"label", "w", "t", "a", "b", "c", "d", "e"}).ok());
  EXPECT_THAT((*parser)->wanted(), ElementsAre("label", "w", "t", "a", "b", "c", "d"));
  Writer frame(1, 8);
  frame.column("label").kind(CellKind::kInt8).values<int8_t>({1});
  frame.column("w").kind(CellKind::kFloat64).values<double>({0.5});
  frame.column("t").kind(CellKind::kUint8).values<uint8_t>({1});
  frame.column("a").kind(CellKind::kFloat64).values<double>({1.5});
  frame.column("b").kind(CellKind::kFloat32, {false}).values<float>({9});
  frame.column("c").kind(CellKind::kInt64).values<int64_t>({-12});
  frame.column("d").kind(CellKind::kList).values<uint32_t>({0, 2});
  frame.kind(CellKind::kInt16).values<int16_t>({3, 4});
  frame.column("e").kind(CellKind::kNone);
  const auto columns = read_columns(frame.bytes());
  ASSERT_TRUE(columns.ok());
  Row typed;
  Row text;
  ASSERT_TRUE((*parser)->parse_columns(*columns, 0, &typed).ok());
  ASSERT_TRUE((*parser)->parse("1,0.5,1,1.5,,-12,3|4,", &text).ok());
  EXPECT_EQ(typed.label, text.label);
  EXPECT_EQ(typed.sample_weight, text.sample_weight);
  EXPECT_EQ(typed.dense, text.dense);
  EXPECT_EQ(typed.ids, text.ids);
}

TEST(Columns, WhatIsWrongOfACellIsToldAsOfText) {
  DataSpec spec;
  spec.numeric = {"a"};
  spec.categorical = {"c"};
  spec.id_space = 10;
  const auto parser = make_parser(spec);
  ASSERT_TRUE((*parser)->start_file({"label", "a", "c"}).ok());
  const auto both = [&](double label, double a, uint64_t c, const std::string& line) {
    Writer frame(1, 3);
    frame.column("label").kind(CellKind::kFloat64).values<double>({label});
    frame.column("a").kind(CellKind::kFloat64).values<double>({a});
    frame.column("c").kind(CellKind::kUint64).values<uint64_t>({c});
    Row row;
    const Status typed = (*parser)->parse_columns(*read_columns(frame.bytes()), 0, &row);
    const Status text = (*parser)->parse(line, &row);
    EXPECT_FALSE(text.ok());
    EXPECT_EQ(base::message_of(typed), base::message_of(text));
  };
  both(0.5, 1, 1, "0.5,1,1");
  both(std::nan(""), 1, 1, ",1,1");
  both(1, 1e300, 1, "1,1e+300,1");
  both(1, 1, 10, "1,1,10");
  both(1, 1, uint64_t{1} << 63, "1,1,9223372036854775808");
}

}  // namespace
}  // namespace sidereal::data
