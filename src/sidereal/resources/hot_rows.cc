#include "sidereal/resources/hot_rows.h"

#include <algorithm>
#include <functional>

namespace sidereal::resources {

namespace {

using std::chrono::system_clock;

/// Rows that are looked at in a minute at most, and, if there are as many, a quarter at least: what
/// that takes is nothing beside what steps do in a minute.
constexpr int64_t kLooksMax = 2048;
/// Of so many rows it always looks at one.
constexpr int64_t kEveryMax = int64_t{1} << 24;
/// How often it looks at the clock, in rows that were looked at.
constexpr int64_t kClockEvery = 16;

/// Counts are halved from one of these to the next.
int64_t minute_of(system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::minutes>(time.time_since_epoch()).count();
}

}  // namespace

struct HotRows::Sample {
  /// How many rows further is the next to be looked at: 1 to 2 * every - 1, `every` in the mean, so
  /// that no order of rows in calls keeps step with it.
  size_t draw() {
    if (every == 1) return 1;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    const auto drawn = static_cast<int64_t>(random & static_cast<uint64_t>(2 * every - 1));
    return static_cast<size_t>(drawn == 0 ? every : drawn);
  }
  /// One row was looked at.
  void looked() {
    if (++looks % kClockEvery == 0) keep_time();
    if (looks < kLooksMax || every == kEveryMax) return;
    // From now on a count stands for twice as many.
    looks /= 2;
    every *= 2;
    counts.halve(1, {every, minute});
  }
  void keep_time() {
    const int64_t now = minute_of(system_clock::now());
    if (now == minute) return;
    // A clock that was set back is gone by from here on.
    int64_t times = std::max<int64_t>(now - minute, 0);
    minute = now;
    // A count that stands for half as many has been halved.
    while (times > 0 && every > 1 && looks < kLooksMax / 4) {
      every /= 2;
      looks = 0;
      --times;
    }
    looks = 0;
    counts.halve(times, {every, minute});
  }

  SpaceSaving counts;
  int64_t every = 1;
  int64_t looks = 0;
  int64_t minute = minute_of(system_clock::now());
  uint64_t random = 0x2545f4914f6cdd1d;
};

HotRows::~HotRows() { delete sample_.load(std::memory_order_relaxed); }

void HotRows::look_at(std::span<const int64_t> rows) {
  Sample* sample = sample_.load(std::memory_order_relaxed);
  if (sample == nullptr) {
    sample = new Sample();
    sample->counts.halve(0, {sample->every, sample->minute});
    sample_.store(sample, std::memory_order_release);
  }
  size_t at = skip_;
  while (at < rows.size()) {
    sample->counts.add(rows[at]);
    sample->looked();
    at += sample->draw();
  }
  skip_ = at - rows.size();
}

RowCounts HotRows::read(size_t rows_max, system_clock::time_point now) const {
  const Sample* const sample = sample_.load(std::memory_order_acquire);
  RowCounts out;
  SpaceSaving::Notes notes = {};
  if (sample == nullptr || !sample->counts.read(&out, &notes)) return {};
  const int64_t every = notes[0];
  const int64_t minute = notes[1];
  std::erase_if(out.rows, [](const RowCount& one) { return one.at_least() < kMetMin; });
  // The lane halves when it looks the next time, which may be never.
  const int64_t by = std::clamp<int64_t>(minute_of(now) - minute, 0, 62);
  const auto scaled = [&](int64_t count) { return (count >> by) * every; };
  out.total = scaled(out.total);
  for (RowCount& one : out.rows) {
    one = {.row = one.row, .count = scaled(one.count), .error = scaled(one.error)};
  }
  std::erase_if(out.rows, [](const RowCount& one) { return one.at_least() <= 0; });
  std::ranges::sort(out.rows, std::greater(), &RowCount::at_least);
  if (out.rows.size() > rows_max) out.rows.resize(rows_max);
  return out;
}

}  // namespace sidereal::resources
