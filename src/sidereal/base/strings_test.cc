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
