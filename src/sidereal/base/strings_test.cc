#include "sidereal/base/strings.h"

#include <gtest/gtest.h>

namespace sidereal::base {
namespace {

TEST(Strings, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ',').size(), 1u);
  EXPECT_EQ(join({"a", "b"}, ", "), "a, b");
}

TEST(Strings, NumbersMustBeWhole) {
  EXPECT_EQ(*parse_int("-12"), -12);
  EXPECT_FALSE(parse_int("12x").ok());
  EXPECT_FALSE(parse_int("").ok());
  EXPECT_DOUBLE_EQ(*parse_double("1e-3"), 1e-3);
  EXPECT_FALSE(parse_double("one").ok());
}

TEST(Strings, MessagesCarryUtf8AndNoMoreThanTheyMay) {
  EXPECT_EQ(message_text("a\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", 100),
            "a\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  // No beginning, no end, too long a form, half of a pair, past the last character.
  EXPECT_EQ(message_text("\xff|\xc3", 100), "\\xff|\\xc3");
  EXPECT_EQ(message_text("\xc0\xaf", 100), "\\xc0\\xaf");
  EXPECT_EQ(utf8_bytes("a\xc3\xa9"), 3);
  EXPECT_EQ(utf8_bytes("a\xc3|"), 1);
  EXPECT_EQ(message_text("\xed\xa0\x80", 100), "\\xed\\xa0\\x80");
  EXPECT_EQ(message_text("\xf4\x90\x80\x80", 100), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(message_text("12345", 5), "12345");
  EXPECT_EQ(message_text("123456", 5), "12345 ... (6 bytes)");
  EXPECT_EQ(message_text("1234\xc3\xa9", 5), "1234 ... (6 bytes)");
}

TEST(Strings, ListsSayHowManyTheyLeaveOut) {
  const std::vector<int> numbers = {1, 2, 3};
  const auto text = [](int i) { return std::to_string(i); };
  EXPECT_EQ(some_of(numbers, 3, text), "1, 2, 3");
  EXPECT_EQ(some_of(numbers, 1, text), "1 and 2 more");
  EXPECT_EQ(some_of(std::vector<int>(), 3, text), "");
}

TEST(Strings, HumanUnits) {
  EXPECT_EQ(human_count(1234567), "1.23M");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(trim("  x \n"), "x");
}

TEST(Strings, NamesAreALetterThenLettersDigitsAndUnderscores) {
  for (const char* text : {"a", "ps", "Job_9", "Z__"}) EXPECT_TRUE(is_name(text)) << text;
  for (const char* text : {"", "_a", "9a", "a b", "a-b", "\xC3\xA4"})
    EXPECT_FALSE(is_name(text)) << text;
}

}  // namespace
}  // namespace sidereal::base
