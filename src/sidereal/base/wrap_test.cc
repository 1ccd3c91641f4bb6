#include "sidereal/base/wrap.h"

#include <gtest/gtest.h>

namespace sidereal::base {
namespace {

TEST(Wrap, BreaksLinesBetweenWords) {
  EXPECT_EQ(wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrap("enormous a", 3), "enormous\na");
  EXPECT_EQ(wrap("", 3), "");
}

TEST(Wrap, CountsTheIndentOfLinesAfterTheFirst) {
  EXPECT_EQ(wrap("- one two three", 9, "  "), "- one two\n  three");
  EXPECT_EQ(wrap("a bb cc", 5, "  "), "a bb\n  cc");
}

TEST(Wrap, BeginsNoLineWithASign) {
  EXPECT_EQ(wrap("one two - three", 8), "one\ntwo -\nthree");
  EXPECT_EQ(wrap("a -> b", 1), "a ->\nb");
}

}  // namespace
}  // namespace sidereal::base
