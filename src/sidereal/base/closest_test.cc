#include "sidereal/base/closest.h"

#include <gtest/gtest.h>

namespace sidereal::base {
namespace {

const std::vector<std::string> kNames = {"train", "serve", "top", "graph", "version"};

TEST(Closest, FindsTheNameThatWasMeant) {
  EXPECT_EQ(closest("trian", kNames), "train");
  EXPECT_EQ(closest("trainn", kNames), "train");
  EXPECT_EQ(closest("srve", kNames), "serve");
  EXPECT_EQ(closest("tap", kNames), "top");
  EXPECT_EQ(closest("ver", kNames), "version");
}

TEST(Closest, FindsNothingThatIsNotAlike) {
  EXPECT_EQ(closest("brew", kNames), "");
  EXPECT_EQ(closest("", kNames), "");
  EXPECT_EQ(closest(std::string(10'000, 'a'), kNames), "");
  EXPECT_EQ(closest("train", {}), "");
}

}  // namespace
}  // namespace sidereal::base
