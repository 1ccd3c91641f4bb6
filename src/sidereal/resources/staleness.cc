#include "sidereal/resources/staleness.h"

#include <memory>
#include <string>

#include "sidereal/metrics/staleness.h"

namespace sidereal::resources {

namespace {

/// The name of a table that is called `key`, or of which `key` is a part: "w" of "c|w/part_3", and
/// of "w/part_3_1", as a strategy calls it.
std::string_view table_of(std::string_view key) {
  key.remove_prefix(key.find('|') + 1);  // All of it where there is none: npos + 1 is 0.
  constexpr std::string_view kPart = "/part_";
  constexpr std::string_view kDigits = "0123456789";
  const size_t part = key.rfind(kPart);
  if (part == std::string_view::npos) return key;
  std::string_view number = key.substr(part + kPart.size());
  const size_t more = number.find('_');
  const bool is_whole = more == std::string_view::npos;
  const std::string_view again = is_whole ? "0" : number.substr(more + 1);
  number = number.substr(0, more);
  const bool are_numbers = !number.empty() && !again.empty() &&
                           number.find_first_not_of(kDigits) == std::string_view::npos &&
                           again.find_first_not_of(kDigits) == std::string_view::npos;
  return are_numbers ? key.substr(0, part) : key;
}

}  // namespace

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

void Staleness::note_cut() {
  Counted* const counted = counted_.load(std::memory_order_relaxed);
  if (counted == nullptr) return;
  counted->changes_in_cut.set(counted->changes.value());
  counted->rows_in_cut.set(counted->rows.value());
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
                     metrics::Readings* into) const {
  const Counted* const counted = counted_.load(std::memory_order_acquire);
  if (counted == nullptr) return;
  const bool is_table = counted->is_table.load(std::memory_order_relaxed);
  const std::string table(is_table ? table_of(key) : "");
  const auto less = [](const metrics::Counter& now, const metrics::Counter& then) {
    return std::max<int64_t>(now.value() - then.value(), 0);
  };
  into->add(metrics::pushes(table), counted->changes.value());
  into->add(metrics::unsaved_pushes(table), less(counted->changes, counted->changes_in_cut));
  if (is_table) {
    into->add(metrics::pushed_rows(table), counted->rows.value());
    into->add(metrics::unsaved_rows(table), less(counted->rows, counted->rows_in_cut));
  }
  const std::lock_guard lock(counted->mutex);
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
