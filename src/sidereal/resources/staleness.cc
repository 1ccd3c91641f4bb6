#include "sidereal/resources/staleness.h"

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

void Staleness::note_change(uint64_t step, bool is_table) {
  Counted* counted = counted_.load(std::memory_order_relaxed);
  if (counted == nullptr) {
    counted = new Counted(is_table);
    counted_.store(counted, std::memory_order_release);
  }
  Read& read = counted->place_of(step);
  if (read.step == step) {
    counted->seen.record(static_cast<int64_t>(counted->version - read.version));
    // A step that changes it twice is no other one to itself.
    read.version = counted->version + 1;
  }
  ++counted->version;
}

void Staleness::read(std::string_view key, metrics::Readings* into) const {
  const Counted* const counted = counted_.load(std::memory_order_acquire);
  if (counted == nullptr) return;
  const metrics::HistogramSnapshot seen = counted->seen.snapshot();
  if (seen.count == 0) return;
  into->add(metrics::staleness(std::string(counted->is_table ? table_of(key) : "")), seen);
}

}  // namespace sidereal::resources
