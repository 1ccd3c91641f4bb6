#include "sidereal/security/flood_watch.h"

#include <gtest/gtest.h>

namespace sidereal::security {
namespace {

ConnectionCalls seen(int64_t begun, int64_t answered) {
  return {.id = 1, .peer = {}, .begun = begun, .answered = answered, .under_way = begun - answered};
}

TEST(RecentCalls, of_a_peer_that_is_answered_are_no_flood_however_many_they_are) {
  RecentCalls calls;
  for (int64_t begun = 0; begun < 1'000'000; begun += 1000) {
    calls.see(seen(begun, begun * 3 / 4));
    EXPECT_FALSE(calls.mostly_begins()) << begun;
  }
}

TEST(RecentCalls, that_are_few_are_no_flood) {
  RecentCalls calls;
  calls.see(seen(100, 0));
  EXPECT_FALSE(calls.mostly_begins());
  calls.see(seen(200, 0));
  EXPECT_TRUE(calls.mostly_begins());
}

TEST(RecentCalls, answered_long_ago_do_not_make_up_for_those_of_now) {
  RecentCalls calls;
  int64_t begun = 0;
  int64_t answered = 0;
  for (int i = 0; i < 1000; ++i) calls.see(seen(begun += 1000, answered += 1000));
  EXPECT_FALSE(calls.mostly_begins());
  int looks = 0;
  while (!calls.mostly_begins() && looks < 100) {
    calls.see(seen(begun += 500, answered));
    ++looks;
  }
  EXPECT_LE(looks, 10);
  // And the other way round.
  while (calls.mostly_begins() && looks < 200) {
    calls.see(seen(begun += 500, answered += 500));
    ++looks;
  }
  EXPECT_LE(looks, 40);
}

}  // namespace
}  // namespace sidereal::security
