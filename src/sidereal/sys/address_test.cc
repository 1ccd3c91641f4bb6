#include "sidereal/sys/address.h"

#include <gtest/gtest.h>

namespace sidereal::sys {
namespace {

TEST(Address, ParsesAndPrintsBothFamiliesAndNames) {
  for (const char* text : {"127.0.0.1:2222", "[::1]:80", "some.host:0", "localhost:65535"}) {
    const Result<Address> address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(Address, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "host", ":1", "host:", "host:x", "host:65536", "host:-1", "::1:80",
                           "a b:1", "[:: ]:1", "a\t:1", " a:1"}) {
    EXPECT_EQ(Address::parse(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Address, KnowsLoopback) {
  EXPECT_TRUE((Address{"127.0.0.1", 1}.is_loopback()));
  EXPECT_TRUE((Address{"127.9.0.1", 1}.is_loopback()));
  EXPECT_TRUE((Address{"::1", 1}.is_loopback()));
  EXPECT_TRUE((Address{"localhost", 1}.is_loopback()));
  EXPECT_FALSE((Address{"0.0.0.0", 1}.is_loopback()));
  EXPECT_FALSE((Address{"::", 1}.is_loopback()));
  EXPECT_FALSE((Address{"127.example.org", 1}.is_loopback()));
  EXPECT_FALSE((Address{"10.0.0.1", 1}.is_loopback()));
}

}  // namespace
}  // namespace sidereal::sys
