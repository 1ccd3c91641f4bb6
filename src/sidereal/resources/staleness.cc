#include "sidereal/resources/staleness.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sidereal/base/part_name.h"
#include "sidereal/metrics/staleness.h"

namespace sidereal::resources {

namespace {

/// Cuts that are remembered until it is known that their checkpoints are in place.
constexpr size_t kCutsMax = 16;

}  // namespace

std::string_view table_of(std::string_view key) {
  key.remove_prefix(key.find('|') + 1);  // All of it where there is none: npos + 1 is 0.
  const std::optional<base::Part> part = base::find_part(key);
  return part.has_value() && part->slot.empty() ? part->table : key;
}

metrics::HistogramSnapshot Staleness::Seen::snapshot() const {
  metrics::HistogramSnapshot out;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const int64_t count = counts_[i].value();
    if (count == 0) continue;
    out.counts.resize(metrics::HistogramSnapshot::kBuckets);
    out.counts[i] = count;
    out.count += count;
  }
  out.sum = sum_.value();
  out.max = max_.value();
  return out;
}

void Staleness::Seen::clear() {
  for (metrics::Counter& count : counts_) count.set(0);
  sum_.set(0);
  max_.set(0);
}

Staleness::Counted::~Counted() {
  for (const std::atomic<Seen*>& seen : by_pusher) delete seen.load(std::memory_order_relaxed);
}

Staleness::Seen* Staleness::Counted::begin_by(int pusher) {
  auto* const made = new Seen();
  by_pusher[static_cast<size_t>(pusher)].store(made, std::memory_order_release);
  return made;
}

Staleness::Counted* Staleness::begin() {
  auto* const made = new Counted();
  counted_.store(made, std::memory_order_release);
  return made;
}

Staleness::Pushed Staleness::note_cut(uint64_t cut) {
  Counted* const counted = counted_.load(std::memory_order_relaxed);
  if (counted == nullptr) return {};
  const Pushed now = counted->pushed();
  const std::lock_guard lock(counted->mutex);
  // The earliest is dropped: a checkpoint that is not in place by now has failed, mostly.
  if (counted->cuts.size() >= kCutsMax) counted->cuts.erase(counted->cuts.begin());
  counted->cuts.push_back({.cut = cut, .pushed = now});
  return now;
}

void Staleness::note_restored(const Pushed& now) {
  Counted* counted = counted_.load(std::memory_order_relaxed);
  if (counted == nullptr) {
    if (now.pushes == 0) return;
    counted = begin();
  }
  const Pushed before = counted->pushed();
  const Pushed less = {.pushes = before.pushes - now.pushes, .rows = before.rows - now.rows};
  counted->changes_dropped.add(less.pushes);
  counted->rows_dropped.add(less.rows);
  if (now.is_table) counted->is_table.store(true, std::memory_order_relaxed);
  counted->drop(less);
  const std::lock_guard lock(counted->mutex);
  counted->cuts.clear();
  counted->saved = now;
}

void Staleness::end() {
  Counted* const counted = counted_.load(std::memory_order_acquire);
  if (counted == nullptr) return;
  const std::lock_guard lock(counted->mutex);
  if (!std::exchange(counted->has_ended, true)) counted->drop(counted->pushed());
}

void Staleness::put_aside(std::span<const int> pushers) {
  Counted* const counted = counted_.load(std::memory_order_acquire);
  if (counted == nullptr) return;
  const std::lock_guard lock(counted->mutex);
  for (const int pusher : pushers) {
    // It stays for the next one of this number: an op that was handed to another lane may still
    // count with it when its step and its pusher have gone.
    Seen* const seen =
        counted->by_pusher[static_cast<size_t>(pusher)].load(std::memory_order_acquire);
    if (seen == nullptr) continue;
    counted->aside.merge(seen->snapshot());
    seen->clear();
  }
}

void Staleness::read(std::string_view key, std::span<const std::string> names,
                     std::span<const uint64_t> committed, metrics::Readings* into) const {
  const Counted* const counted = counted_.load(std::memory_order_acquire);
  if (counted == nullptr) return;
  const bool is_table = counted->is_table.load(std::memory_order_relaxed);
  const std::string table(is_table ? table_of(key) : "");
  const std::lock_guard lock(counted->mutex);
  for (const uint64_t cut : committed) {
    const auto found = std::ranges::find(counted->cuts, cut, &Counted::Cut::cut);
    if (found == counted->cuts.end()) continue;
    counted->saved = found->pushed;
    counted->cuts.erase(counted->cuts.begin(), found + 1);
  }
  const Pushed now = counted->pushed();
  const auto less = [](int64_t all, int64_t saved) { return std::max<int64_t>(all - saved, 0); };
  into->add(metrics::pushes(table), counted->changes.value());
  into->add(metrics::held_pushes(table), now.pushes);
  into->add(metrics::unsaved_pushes(table), less(now.pushes, counted->saved.pushes));
  if (is_table) {
    into->add(metrics::pushed_rows(table), counted->rows.value());
    into->add(metrics::held_rows(table), now.rows);
    into->add(metrics::unsaved_rows(table), less(now.rows, counted->saved.rows));
  }
  if (counted->aside.count > 0) into->add(metrics::staleness(table, ""), counted->aside);
  for (size_t i = 0; i < counted->by_pusher.size() && i < names.size(); ++i) {
    const Seen* const seen = counted->by_pusher[i].load(std::memory_order_acquire);
    // One without a name is new, and known the next time.
    if (seen == nullptr || (names[i].empty() && i != Pushers::kOthers)) continue;
    const metrics::HistogramSnapshot counts = seen->snapshot();
    if (counts.count > 0) into->add(metrics::staleness(table, names[i]), counts);
  }
}

}  // namespace sidereal::resources
