#include "sidereal/parse/text.h"

#include <gtest/gtest.h>

#include <limits>

#include "sidereal/parse/crc32c.h"

namespace sidereal::parse {
namespace {

template <class T>
T number(std::string_view text) {
  T out{};
  EXPECT_TRUE(parse_number(text, &out)) << text;
  return out;
}

template <class T>
bool is_number(std::string_view text) {
  T out{};
  return parse_number(text, &out);
}

TEST(Numbers, are_read_with_space_around_them_and_a_plus) {
  EXPECT_EQ(number<int32_t>(" \t-12\r\n"), -12);
  EXPECT_EQ(number<uint8_t>("+255"), 255);
  EXPECT_EQ(number<int64_t>("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(number<float>(" +1.5e2 "), 150);
  EXPECT_EQ(number<double>("-.5"), -0.5);
  EXPECT_EQ(number<double>("3."), 3);
}

TEST(Numbers, beyond_the_range_of_a_float_become_infinite_or_zero) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(number<float>("1e39"), kInf);
  EXPECT_EQ(number<float>("-1e39"), -kInf);
  EXPECT_EQ(number<float>("1e-60"), 0);
  EXPECT_EQ(number<double>("1e99999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(number<double>("1e-99999"), 0);
  EXPECT_EQ(number<float>("-Infinity"), -kInf);
  EXPECT_EQ(number<float>("INF"), kInf);
  EXPECT_TRUE(std::isnan(number<float>("NaN")));
}

TEST(Numbers, are_told_from_other_text) {
  for (const char* text : {"", " ", "+", "-", "+-1", "1 2", "1x", "0x10", "--1", "1e", "e1"}) {
    EXPECT_FALSE(is_number<float>(text)) << text;
    EXPECT_FALSE(is_number<double>(text)) << text;
    EXPECT_FALSE(is_number<int64_t>(text)) << text;
  }
  EXPECT_FALSE(is_number<int32_t>("2147483648"));
  EXPECT_FALSE(is_number<int32_t>("1.0"));
  EXPECT_FALSE(is_number<uint32_t>("-1"));
  EXPECT_FALSE(is_number<int32_t>(std::string_view("1\0", 2)));
}

TEST(Shown, cuts_long_text_and_spells_odd_bytes) {
  EXPECT_EQ(shown(std::string_view("a\0\xff", 3)), "'a\\x00\\xff'");
  EXPECT_EQ(shown(std::string(50, 'x')), "'" + std::string(40, 'x') + "...'");
}

// The vectors of RFC 3720, appendix B.4.
TEST(Crc32c, is_that_of_iscsi) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("3456789", crc32c("12")), 0xE3069283U);
}

}  // namespace
}  // namespace sidereal::parse
