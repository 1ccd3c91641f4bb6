#include "sidereal/base/printable.h"

#include <gtest/gtest.h>

namespace sidereal::base {
namespace {

TEST(Printable, KeepsWhatCanBeRead) {
  EXPECT_EQ(printable("price in \xe2\x82\xac, caf\xc3\xa9"), "price in \xe2\x82\xac, caf\xc3\xa9");
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, WritesWhatATerminalObeysAsHex) {
  EXPECT_EQ(printable("\x1b[31mRED\x7f"), "\\x1b[31mRED\\x7f");
  EXPECT_EQ(printable("a\tb\r\n"), "a\\x09b\\x0d\\x0a");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(printable("\xff\xc2"), "\\xff\\xc2");
}

}  // namespace
}  // namespace sidereal::base
