#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>

#include "sidereal/base/ring_queue.h"
#include "sidereal/base/slot_map.h"

namespace sidereal::base {
namespace {

TEST(RingQueue, is_a_queue) {
  RingQueue<std::unique_ptr<int>> queue;
  std::deque<int> model;
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    // Longer and longer, then shorter: over the end of the places and through several sizes.
    if (model.empty() || random() % 10 < (i < 5000 ? 6U : 4U)) {
      queue.push_back(std::make_unique<int>(i));
      model.push_back(i);
    } else {
      ASSERT_EQ(*queue.pop_front(), model.front());
      model.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.empty(), model.empty());
    if (model.empty()) continue;
    const size_t at = random() % model.size();
    ASSERT_EQ(*queue[at], model[at]);
  }
  queue.clear();
  EXPECT_TRUE(queue.empty());
}

TEST(RingQueue, lets_go_of_what_has_left) {
  RingQueue<std::shared_ptr<int>> queue;
  const auto held = std::make_shared<int>(1);
  queue.push_back(held);
  static_cast<void>(queue.pop_front());
  EXPECT_EQ(held.use_count(), 1);
}

TEST(SlotMap, finds_what_is_there_and_nothing_else) {
  SlotMap<std::shared_ptr<int>> slots;
  std::map<uint64_t, int> model;
  std::vector<uint64_t> gone = {0, ~uint64_t{0}};
  std::mt19937 random(2);
  for (int i = 0; i < 10'000; ++i) {
    if (model.empty() || random() % 2 == 0) {
      const uint64_t id = slots.add(std::make_shared<int>(i));
      ASSERT_NE(id, 0U);
      ASSERT_TRUE(model.try_emplace(id, i).second) << "an id came twice";
    } else {
      const auto one = std::next(model.begin(), static_cast<int64_t>(random() % model.size()));
      const std::weak_ptr<int> value = *slots.find(one->first);
      ASSERT_TRUE(slots.erase(one->first));
      EXPECT_TRUE(value.expired());
      gone.push_back(one->first);
      model.erase(one);
    }
    ASSERT_EQ(slots.size(), model.size());
  }
  for (const auto& [id, value] : model) EXPECT_EQ(**slots.find(id), value);
  for (const uint64_t id : gone) {
    EXPECT_EQ(slots.find(id), nullptr);
    EXPECT_FALSE(slots.erase(id));
  }
}

TEST(SlotMap, has_let_go_of_a_value_before_that_ends) {
  SlotMap<std::shared_ptr<void>> slots;
  uint64_t id = 0;
  id = slots.add(std::shared_ptr<void>(&slots, [&slots, &id](void*) {
    EXPECT_EQ(slots.find(id), nullptr);
    id = slots.add(nullptr);
  }));
  const uint64_t first = id;
  EXPECT_TRUE(slots.erase(first));
  EXPECT_NE(id, first);
  EXPECT_NE(slots.find(id), nullptr);
  EXPECT_EQ(slots.size(), 1U);
}

TEST(SlotMap, clears_all_and_knows_none_of_them_again) {
  SlotMap<int> slots;
  std::vector<uint64_t> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(slots.add(i));
  EXPECT_EQ(slots.take(ids[3]), 3);
  int sum = 0;
  slots.each([&sum](int value) { sum += value; });
  EXPECT_EQ(sum, 0 + 1 + 2 + 4);
  slots.clear();
  EXPECT_EQ(slots.size(), 0U);
  for (int i = 0; i < 5; ++i) slots.add(i);
  for (const uint64_t id : ids) EXPECT_EQ(slots.take(id), std::nullopt);
}

}  // namespace
}  // namespace sidereal::base
