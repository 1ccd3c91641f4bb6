#include "sidereal/resources/space_saving.h"

#include <algorithm>
#include <limits>

namespace sidereal::resources {

/// While the writer changes what readers see.
class SpaceSaving::Change {
 public:
  explicit Change(std::atomic<uint64_t>* version)
      : version_(version), before_(version->load(std::memory_order_relaxed)) {
    version_->store(before_ + 1, std::memory_order_relaxed);
  }
  ~Change() { version_->store(before_ + 2, std::memory_order_release); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  std::atomic<uint64_t>* const version_;
  const uint64_t before_;
};

SpaceSaving::SpaceSaving() {
  heads_.fill(kNone);
  next_.fill(kNone);
  by_count_.fill(kNone);
  place_.fill(kNone);
}

SpaceSaving::Slot SpaceSaving::find(int64_t row) const {
  Slot slot = heads_[head_of(row)];
  while (slot != kNone && rows_[slot].get() != row) slot = next_[slot];
  return slot;
}

void SpaceSaving::link(Slot slot, int64_t row) {
  rows_[slot].set(row);
  Slot& head = heads_[head_of(row)];
  next_[slot] = head;
  head = slot;
}

void SpaceSaving::unlink(Slot slot) {
  Slot* at = &heads_[head_of(rows_[slot].get())];
  while (*at != slot) at = &next_[*at];
  *at = next_[slot];
}

SpaceSaving::Slot SpaceSaving::take(int64_t row) {
  const size_t size = size_.get();
  if (size < kCapacity) {
    const auto slot = static_cast<Slot>(size);
    by_count_[size] = slot;
    place_[slot] = slot;
    link(slot, row);
    size_.set(size + 1);
    return slot;
  }
  const Slot slot = by_count_[kCapacity - 1];
  unlink(slot);
  errors_[slot].set(counts_[slot].get());
  link(slot, row);
  return slot;
}

void SpaceSaving::raise(Slot slot) {
  const int64_t count = counts_[slot].get();
  // It goes before those of its count, the first of which takes its place.
  Slot* const its = &by_count_[place_[slot]];
  Slot* const first = std::lower_bound(by_count_.data(), its, count, [&](Slot other, int64_t of) {
    return counts_[other].get() > of;
  });
  place_[*first] = place_[slot];
  place_[slot] = static_cast<Slot>(first - by_count_.data());
  std::swap(*first, *its);
  counts_[slot].set(count + 1);
}

void SpaceSaving::add(int64_t row) {
  const Change change(&version_);
  Slot slot = find(row);
  if (slot == kNone) slot = take(row);
  raise(slot);
  total_.set(total_.get() + 1);
}

void SpaceSaving::halve(int64_t times, Notes notes) {
  const Change change(&version_);
  const auto by = std::min<int64_t>(times, std::numeric_limits<int64_t>::digits - 1);
  // Rounded so that a count remains too large by no more than its error, and their order.
  for (size_t slot = 0; slot < size_.get(); ++slot) {
    const int64_t count = counts_[slot].get() >> by;
    const int64_t error = errors_[slot].get();
    const int64_t rest = error & ((int64_t{1} << by) - 1);
    counts_[slot].set(count);
    errors_[slot].set(std::min(count, (error >> by) + (rest == 0 ? 0 : 1)));
  }
  total_.set(total_.get() >> by);
  for (size_t i = 0; i < notes.size(); ++i) notes_[i].set(notes[i]);
}

bool SpaceSaving::read(RowCounts* counts, Notes* notes) const {
  constexpr int kTries = 64;
  for (int tried = 0; tried < kTries; ++tried) {
    const uint64_t before = version_.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    counts->total = total_.read();
    counts->rows.resize(std::min(size_.read(), kCapacity));
    for (size_t i = 0; i < notes->size(); ++i) (*notes)[i] = notes_[i].read();
    for (size_t slot = 0; slot < counts->rows.size(); ++slot) {
      counts->rows[slot] = {
          .row = rows_[slot].read(), .count = counts_[slot].read(), .error = errors_[slot].read()};
    }
    if (version_.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

}  // namespace sidereal::resources
