#include "sidereal/resources/owner.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <utility>

#include "sidereal/resources/variable.h"

namespace sidereal::resources {
namespace {

using tensor::Shape;
using tensor::Tensor;

/// Keeps what is posted until the test runs it.
class HeldLanes final : public Lanes {
 public:
  bool post(int lane, std::function<void()> fn) override {
    if (is_stopping) return false;
    posted.emplace_back(lane, std::move(fn));
    return true;
  }
  /// The lane of the first that was posted, which it runs.
  int run_one() {
    auto [lane, fn] = std::move(posted.front());
    posted.pop_front();
    fn();
    return lane;
  }

  bool is_stopping = false;
  std::deque<std::pair<int, std::function<void()>>> posted;
};

std::shared_ptr<Variable> owned(HeldLanes* lanes, int lane) {
  auto made =
      Variable::make({.name = "v", .shape = Shape{2}}, std::make_shared<Owner>(lanes, lane));
  EXPECT_TRUE((*made)->assign(Tensor::of<float>(Shape{2}, {1, 2})).ok());
  return *std::move(made);
}

TEST(Owner, is_one_lane_until_that_gives_it_to_another) {
  HeldLanes lanes;
  const auto owner = std::make_shared<Owner>(&lanes, 2);
  EXPECT_EQ(owner->lane(), 2);
  owner->give_to(0);
  EXPECT_EQ(owner->lane(), 0);
}

TEST(Owner, goes_with_all_that_it_was_joined_with) {
  HeldLanes lanes;
  std::vector<std::shared_ptr<Owner>> owners;
  for (int i = 0; i < 5; ++i) owners.push_back(std::make_shared<Owner>(&lanes, 1));
  owners[0]->join(owners[1].get());
  owners[2]->join(owners[3].get());
  owners[3]->join(owners[1].get());
  owners[1]->join(owners[2].get());  // They are one group already.
  owners[0]->give_to(4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(owners[static_cast<size_t>(i)]->lane(), 4) << i;
  EXPECT_EQ(owners[4]->lane(), 1);
  // Of a group, each lasts as long as it is needed.
  const std::shared_ptr<Owner> last = owners[1];
  owners.clear();
  last->give_to(3);
  EXPECT_EQ(last->lane(), 3);
}

TEST(Owner, forgets_the_value_of_a_cancelled_variable_on_its_lane) {
  HeldLanes lanes;
  const auto variable = owned(&lanes, 1);
  variable->cancel();
  EXPECT_TRUE(variable->is_initialized());
  // Meanwhile it was given away.
  variable->owner()->give_to(2);
  EXPECT_EQ(lanes.run_one(), 1);
  EXPECT_TRUE(variable->is_initialized());
  EXPECT_EQ(lanes.run_one(), 2);
  EXPECT_FALSE(variable->is_initialized());
  EXPECT_EQ(variable->bytes(), 0);
  EXPECT_TRUE(lanes.posted.empty());
}

TEST(Owner, that_is_stopping_keeps_the_value_to_its_end) {
  HeldLanes lanes;
  const auto variable = owned(&lanes, 0);
  lanes.is_stopping = true;
  variable->cancel();
  EXPECT_TRUE(variable->is_initialized());
}

}  // namespace
}  // namespace sidereal::resources
