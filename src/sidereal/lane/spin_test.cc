#include "sidereal/lane/spin.h"

#include <gtest/gtest.h>

namespace sidereal::lane {
namespace {

constexpr int64_t kUs = sys::kMicrosecond;

/// A lane whose work comes in given times after it became idle.
class Idle {
 public:
  explicit Idle(int64_t spin_us) : spin_(spin_us) {}

  /// Waits for work that comes after `ns`; true when it was found by looking.
  bool wait(int64_t ns) {
    const int64_t look = spin_.begin(now_);
    const bool found = ns < look;
    if (found) {
      spin_.found(ns);
    } else if (look > 0) {
      spin_.gave_up(look);
      vain_ += look;
    }
    now_ += ns;
    return found;
  }
  [[nodiscard]] double vain() const {
    return static_cast<double>(vain_) / static_cast<double>(now_);
  }
  Spin& spin() { return spin_; }

 private:
  Spin spin_;
  int64_t now_ = kUs;
  int64_t vain_ = 0;
};

TEST(Spin, as_it_was_told) {
  EXPECT_EQ(Spin(0).begin(5), 0);
  EXPECT_EQ(Spin(70).begin(5), 70 * kUs);
  EXPECT_EQ(Spin(kSpinAlways).begin(5), INT64_MAX);
}

TEST(Spin, that_pays_goes_on) {
  Idle lane(kSpinAdaptive);
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(lane.wait(12 * kUs)) << i;
  EXPECT_EQ(lane.vain(), 0);
}

TEST(Spin, in_vain_is_a_small_part_of_the_time) {
  for (const int64_t pause : {110, 200, 1'000, 5'000, 1'000'000}) {
    Idle lane(kSpinAdaptive);
    for (int i = 0; i < 20'000; ++i) EXPECT_FALSE(lane.wait(pause * kUs));
    EXPECT_LE(lane.vain(), 1.0 / 32 + 0.001) << pause;
  }
}

TEST(Spin, begins_again_when_waits_become_short) {
  Idle lane(kSpinAdaptive);
  for (int i = 0; i < 10'000; ++i) lane.wait(500 * kUs);
  int found = 0;
  for (int i = 0; i < 1'000; ++i) found += lane.wait(20 * kUs) ? 1 : 0;
  EXPECT_GT(found, 800);
}

TEST(Spin, of_who_was_in_the_way_stops_for_a_while) {
  Idle lane(kSpinAdaptive);
  EXPECT_TRUE(lane.wait(10 * kUs));
  lane.spin().passed(3 * kUs);
  EXPECT_TRUE(lane.wait(10 * kUs));
  lane.spin().passed(4'000 * kUs);
  int refused = 0;
  while (!lane.wait(10 * kUs)) ++refused;
  EXPECT_GT(refused, 3'000);  // 30 ms
  EXPECT_LT(refused, 4'000);
}

TEST(Spin, is_short_where_lanes_share_processors) {
  Idle lane(kSpinBriefly);
  EXPECT_TRUE(lane.wait(2 * kUs));
  EXPECT_FALSE(lane.wait(20 * kUs));
}

}  // namespace
}  // namespace sidereal::lane
