#include "sidereal/base/ref_counted.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace sidereal::base {
namespace {

std::atomic<int> alive = 0;

class Thing final : public RefCounted {
 public:
  explicit Thing(int value) : value_(value) { ++alive; }
  ~Thing() override {
    value_ = -1;
    --alive;
  }
  [[nodiscard]] int value() const { return value_; }

 private:
  int value_;
};
using Ptr = RefPtr<Thing>;

void on_another_thread(const std::function<void()>& fn) { std::thread(fn).join(); }

/// Whether the calling thread is an owner.
class RefCountedThings : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) owner_ = std::make_unique<CountOwner>([this] { ++woken_; });
  }
  void TearDown() override {
    owner_.reset();
    EXPECT_EQ(alive, 0);
  }

  std::unique_ptr<CountOwner> owner_;
  std::atomic<int> woken_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Of, RefCountedThings, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "an_owner" : "others"; });

TEST_P(RefCountedThings, live_as_long_as_somebody_holds_them) {
  Ptr one = Ptr::make(3);
  EXPECT_TRUE(one->has_one_holder());
  Ptr two = one;
  EXPECT_EQ(one->holders(), 2);
  const Ptr three = std::move(one);
  EXPECT_EQ(one, nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(three, two);
  two = nullptr;
  EXPECT_TRUE(three->has_one_holder());
  EXPECT_EQ(three->value(), 3);
  two = three;
  two = Ptr(two);
  EXPECT_EQ(three->holders(), 2);
  EXPECT_EQ(alive, 1);
}

TEST_P(RefCountedThings, may_be_held_and_let_go_elsewhere) {
  Ptr one = Ptr::make(3);
  Ptr kept;
  on_another_thread([&] { kept = one; });
  EXPECT_EQ(one->holders(), 2);
  one.reset();
  EXPECT_EQ(alive, 1);
  on_another_thread([&] { kept.reset(); });
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(woken_, 0);
}

TEST_P(RefCountedThings, that_were_given_away_go_when_their_owner_looks) {
  Ptr one = Ptr::make(3);
  Ptr other = Ptr::make(4);
  on_another_thread([one = std::move(one), other = std::move(other)]() mutable {
    one.reset();
    other.reset();
  });
  if (owner_ == nullptr) return;
  EXPECT_EQ(woken_, 1);
  EXPECT_EQ(alive, 2);
  EXPECT_TRUE(owner_->has_left_over());
  owner_->settle();
  EXPECT_FALSE(owner_->has_left_over());
  EXPECT_EQ(alive, 0);
}

TEST_P(RefCountedThings, come_back_from_those_they_were_given_to) {
  for (const bool settles : {false, true}) {
    Ptr one = Ptr::make(3);
    on_another_thread([given = one]() mutable { given.reset(); });
    if (owner_ != nullptr && settles) owner_->settle();
    EXPECT_TRUE(one->has_one_holder());
    Ptr back;
    on_another_thread([&] { back = one; });
    one.reset();
    EXPECT_EQ(alive, 1);
    EXPECT_TRUE(!settles || back->has_one_holder());
    back.reset();
    if (owner_ != nullptr) owner_->settle();
    EXPECT_EQ(alive, 0);
  }
}

TEST_P(RefCountedThings, outlive_their_owner) {
  std::vector<Ptr> held;
  for (int i = 0; i < 3; ++i) held.push_back(Ptr::make(i));
  const Ptr copy = held[1];
  owner_.reset();
  held[0].reset();
  held[1].reset();
  on_another_thread([&] { held[2].reset(); });
  EXPECT_EQ(alive, 1);
  EXPECT_TRUE(copy->has_one_holder());
}

TEST_P(RefCountedThings, are_taken_over_by_their_only_holder) {
  Ptr one;
  on_another_thread([&] { one = Ptr::make(1); });
  one->take_over();
  EXPECT_TRUE(one->has_one_holder());
  {
    const Ptr two = one;
    one->take_over();
    EXPECT_EQ(one->holders(), 2);
  }
  // Where another thread counts, nobody else knows.
  bool known = false;
  on_another_thread([&] { known = one->has_one_holder(); });
  EXPECT_EQ(known, owner_ == nullptr);
}

/// Threads, half of them owners who come and go, take from, and put into, places that all know.
TEST(RefCountedThingsOfMany, live_until_the_last_lets_go) {
  constexpr int kThreads = 4;
  constexpr int kTurns = 60'000;
  struct Place {
    std::mutex mutex;
    Ptr thing;
  };
  std::array<Place, 8> places;
  const auto work = [&](int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    std::unique_ptr<CountOwner> owner;
    std::vector<Ptr> held;
    for (int i = 0; i < kTurns; ++i) {
      if (number % 2 == 0 && random() % 2000 == 0) {
        owner.reset();
        owner = std::make_unique<CountOwner>(nullptr);
      }
      if (owner != nullptr && random() % 64 == 0) owner->settle();
      Place& place = places[random() % places.size()];
      switch (random() % 6) {
        case 0:
          held.push_back(Ptr::make(i));
          break;
        case 1: {
          const std::lock_guard lock(place.mutex);
          held.push_back(place.thing);
          break;
        }
        case 2: {
          Ptr given = held.empty() ? nullptr : held[random() % held.size()];
          const std::lock_guard lock(place.mutex);
          std::swap(place.thing, given);
          break;
        }
        case 3: {
          if (held.empty()) break;
          Ptr given = std::move(held.back());
          held.pop_back();
          const std::lock_guard lock(place.mutex);
          std::swap(place.thing, given);
          break;
        }
        case 4:
          if (!held.empty() && held.back() != nullptr && held.back()->has_one_holder()) {
            held.back()->take_over();
          }
          break;
        default:
          if (!held.empty())
            held.erase(held.begin() + static_cast<int64_t>(random() % held.size()));
      }
      for (const Ptr& one : held) {
        ASSERT_TRUE(one == nullptr || one->value() >= 0);
      }
      if (held.size() > 16) held.clear();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& one : threads) one.join();
  for (Place& place : places) place.thing.reset();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace sidereal::base
