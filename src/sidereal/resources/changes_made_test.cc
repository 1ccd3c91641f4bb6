#include "sidereal/resources/changes_made.h"

#include <gtest/gtest.h>

namespace sidereal::resources {
namespace {

constexpr uint64_t kClient = 7;

ClosureKey key(uint64_t place, uint64_t turn, uint64_t client = kClient) {
  return {.client = client, .closure = closure_number(place, turn)};
}

/// Makes a change if that is due.
bool make(ChangesMade* made, const ClosureKey& closure, uint64_t change) {
  const bool is_due = *made->is_due(closure, change);
  if (is_due) made->note(closure, change);
  return is_due;
}

TEST(ChangesMade, are_made_once_by_each_closure) {
  ChangesMade made;
  EXPECT_TRUE(make(&made, key(0, 0), 1));
  EXPECT_FALSE(make(&made, key(0, 0), 1));
  // Another change of the same closure, and the same of others.
  EXPECT_TRUE(make(&made, key(0, 0), 2));
  EXPECT_TRUE(make(&made, key(1, 0), 1));
  EXPECT_TRUE(make(&made, key(0, 0, 8), 1));
  EXPECT_FALSE(make(&made, key(0, 0), 1));
  EXPECT_FALSE(make(&made, key(0, 0), 2));
}

TEST(ChangesMade, of_a_place_are_forgotten_with_its_next_closure) {
  ChangesMade made;
  EXPECT_TRUE(make(&made, key(3, 0), 1));
  EXPECT_TRUE(make(&made, key(3, 1), 1));
  EXPECT_FALSE(make(&made, key(3, 1), 1));
}

TEST(ChangesMade, of_a_closure_that_has_ended_are_not_made) {
  ChangesMade made;
  EXPECT_TRUE(make(&made, key(3, 5), 1));
  // A leftover of one that had the place before: nobody waits for it.
  EXPECT_FALSE(make(&made, key(3, 4), 1));
  EXPECT_FALSE(make(&made, key(3, 4), 2));
}

TEST(ChangesMade, of_a_closure_that_has_ended_are_not_noted_over_those_of_the_next_one) {
  ChangesMade made;
  made.note(key(3, 1), 1);
  made.note(key(3, 0), 2);
  EXPECT_FALSE(*made.is_due(key(3, 1), 1));
  EXPECT_TRUE(*made.is_due(key(3, 1), 2));
}

TEST(ChangesMade, that_failed_are_due_again) {
  ChangesMade made;
  EXPECT_TRUE(*made.is_due(key(0, 0), 1));
  EXPECT_TRUE(*made.is_due(key(0, 0), 1));
}

TEST(ChangesMade, of_the_least_recent_client_are_forgotten) {
  ChangesMade made;
  for (uint64_t client = 1; client <= ChangesMade::kClientsMax; ++client) {
    EXPECT_TRUE(make(&made, key(0, 0, client), 1));
  }
  EXPECT_TRUE(make(&made, key(1, 0, 1), 1));  // The first one goes on.
  EXPECT_TRUE(make(&made, key(0, 0, 100), 1));
  EXPECT_FALSE(make(&made, key(0, 0, 1), 1));
  EXPECT_FALSE(make(&made, key(0, 0, 3), 1));
  EXPECT_TRUE(make(&made, key(0, 0, 2), 1));
}

TEST(ChangesMade, of_a_closure_are_bounded) {
  ChangesMade made;
  for (uint64_t change = 0; change < ChangesMade::kChangesMax; ++change) {
    made.note(key(0, 0), change);
  }
  const Result<bool> more = made.is_due(key(0, 0), ChangesMade::kChangesMax);
  EXPECT_EQ(more.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(make(&made, key(0, 1), 0));
}

TEST(ChangesMade, have_places_and_turns_in_one_number) {
  const uint64_t last_place = (uint64_t{1} << kClosurePlaceBits) - 1;
  const uint64_t number = closure_number(last_place, kClosureTurnsMax);
  EXPECT_EQ(place_of_closure(number), last_place);
  EXPECT_EQ(turn_of_closure(number), kClosureTurnsMax);
}

}  // namespace
}  // namespace sidereal::resources
