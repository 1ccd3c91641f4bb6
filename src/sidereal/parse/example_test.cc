#include "sidereal/parse/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace sidereal::parse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A field of bytes with a number below 16 and less than 128 bytes.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string entry(const std::string& name, const std::string& feature) {
  return field(1, field(1, name) + field(2, feature));
}

std::string ints(const std::string& varints) { return field(3, field(1, varints)); }

Result<std::vector<NamedFeature>> read(std::string_view example) {
  std::vector<NamedFeature> out;
  SR_RETURN_IF_ERROR(read_example(example, &out));
  return out;
}

template <class T>
std::vector<T> values(const Feature& feature) {
  std::vector<T> out;
  const Status status = append_values(feature, &out);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST(Example, gives_names_and_lists) {
  const std::string floats = field(2, field(1, std::string("\0\0\x80\x3f\0\0\0\xc0", 8)));
  const std::string example =
      field(1, entry("i", ints("\x05\xac\x02")) + entry("f", floats) +
                   entry("s", field(1, field(1, "one") + field(1, std::string("\0\xff", 2)))));
  const auto found = read(example);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ((*found)[0].name, "i");
  EXPECT_THAT(values<int64_t>((*found)[0].feature), ElementsAre(5, 300));
  EXPECT_THAT(values<float>((*found)[1].feature), ElementsAre(1, -2));
  EXPECT_THAT(values<std::string_view>((*found)[2].feature),
              ElementsAre("one", std::string("\0\xff", 2)));
}

TEST(Example, reads_numbers_that_are_not_packed) {
  const std::string unpacked_ints = field(3, std::string("\x08\x07\x08\x09", 4));
  const std::string unpacked_floats = field(2, std::string("\x0d\0\0\x80\x3f", 5));
  const std::string negative = ints("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  const std::string example =
      field(1, entry("a", unpacked_ints) + entry("b", unpacked_floats) + entry("c", negative));
  const auto found = read(example);
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(values<int64_t>((*found)[0].feature), ElementsAre(7, 9));
  EXPECT_THAT(values<float>((*found)[1].feature), ElementsAre(1));
  EXPECT_THAT(values<int64_t>((*found)[2].feature), ElementsAre(-1));
}

TEST(Example, the_last_list_of_a_feature_counts_and_equal_ones_are_one) {
  const std::string lists = ints("\x01") + field(1, "") + ints("\x02") + ints("\x03");
  const std::string example = field(1, entry("a", lists));
  const auto found = read(example);
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(values<int64_t>((*found)[0].feature), ElementsAre(2, 3));
}

TEST(Example, skips_fields_it_does_not_know) {
  const std::string unknown = std::string("\x98\x06\x07", 3) +            // Field 99, a varint.
                              std::string("\x21\1\2\3\4\5\6\7\x08", 9) +  // Field 4, 64 bits.
                              field(5, "text");
  const std::string example = unknown + field(1, unknown + entry("a", unknown + ints("\x04")));
  const auto found = read(example);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 1U);
  EXPECT_THAT(values<int64_t>((*found)[0].feature), ElementsAre(4));
}

TEST(Example, of_no_bytes_has_no_features) {
  EXPECT_TRUE(read("")->empty());
  const std::string example = field(1, entry("a", ""));
  const auto found = read(example);
  EXPECT_EQ((*found)[0].feature.kind, FeatureKind::kNone);
  EXPECT_TRUE(values<float>((*found)[0].feature).empty());
}

TEST(Example, lists_of_another_kind_are_errors) {
  const std::string example = field(1, entry("a", ints("\x01")));
  const auto found = read(example);
  std::vector<float> out;
  EXPECT_THAT(base::message_of(append_values((*found)[0].feature, &out)),
              HasSubstr("a list of int64, not of float"));
}

TEST(Example, says_where_bytes_make_no_sense) {
  EXPECT_THAT(base::message_of(read("\x0a\x05xy").status()),
              HasSubstr("the 4 bytes make no sense"));
  EXPECT_FALSE(read("\x0b").ok());                      // A group.
  EXPECT_FALSE(read(std::string("\x00\x01", 2)).ok());  // Field 0.
  EXPECT_FALSE(read(std::string(11, '\xff')).ok());     // A varint without end.
  EXPECT_FALSE(read(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)).ok());
}

TEST(Example, of_any_bytes_is_read_or_refused) {
  const std::string good = field(1, entry("i", ints("\x05\xac\x02")) + entry("s", field(1, "one")));
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good.substr(0, random() % 2 == 0 ? good.size() : random() % good.size());
    for (uint32_t flips = random() % 4; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto found = read(bytes);
    if (!found.ok()) continue;
    for (const NamedFeature& named : *found) {
      std::vector<int64_t> numbers;
      std::vector<float> floats;
      std::vector<std::string_view> texts;
      (void)append_values(named.feature, &numbers).ok();
      (void)append_values(named.feature, &floats).ok();
      (void)append_values(named.feature, &texts).ok();
      EXPECT_LE(numbers.size() + texts.size(), bytes.size());
    }
  }
}

}  // namespace
}  // namespace sidereal::parse
