#include "sidereal/transport/budget.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace sidereal::transport {
namespace {

struct Guest : Budget::Waiter {
  void on_room() override { has_room = true; }
  bool has_room = false;
};

TEST(Budget, ServesThoseWhoWaitInTurnAndLetsNobodyPassThem) {
  Budget budget(100);
  Guest a, b, c;
  EXPECT_TRUE(budget.take(60, &a));
  EXPECT_FALSE(budget.take(50, &b));
  EXPECT_FALSE(budget.take(1, &c));  // it would fit, but b is first
  EXPECT_EQ(budget.waiting(), 2u);
  budget.give_back(60);
  EXPECT_TRUE(b.has_room && c.has_room);
  EXPECT_EQ(budget.used(), 51u);
}

TEST(Budget, MoreThanThereIsGoesAlone) {
  Budget budget(100);
  Guest a, b;
  EXPECT_TRUE(budget.take(1, &a));
  EXPECT_FALSE(budget.take(1000, &b));
  budget.give_back(1);
  EXPECT_TRUE(b.has_room);
  EXPECT_FALSE(budget.take(1, &a));
  budget.give_back(1000);
  EXPECT_TRUE(a.has_room);
}

TEST(Budget, WhoIsForgottenHoldsNobodyUp) {
  Budget budget(100);
  Guest a, b, c;
  EXPECT_TRUE(budget.take(60, &a));
  EXPECT_FALSE(budget.take(90, &b));
  EXPECT_FALSE(budget.take(40, &c));
  budget.forget(&b);
  EXPECT_TRUE(c.has_room);
  EXPECT_FALSE(b.has_room);
  budget.give_back(40);
  budget.give_back(60);
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_EQ(budget.used_max(), 100u);
}

}  // namespace
}  // namespace sidereal::transport
