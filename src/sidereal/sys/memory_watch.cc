#include "sidereal/sys/memory_watch.h"

#include <algorithm>

#include "sidereal/base/check.h"

namespace sidereal::sys {

MemoryWatch::Entry* MemoryWatch::add(const Pollable& what, uint64_t token, Interest wanted) {
  InMemory* const memory = what.in_memory();
  std::unique_ptr<Entry>& place = entries_[memory];
  SR_CHECK(place == nullptr && !by_token_.contains(token));
  place = std::make_unique<Entry>();
  *place = {.memory = memory,
            .token = token,
            .handle = what.handle(),
            .wanted = wanted,
            .watched = memory->handle_interest(wanted)};
  by_token_[token] = place.get();
  look_at(place.get());
  return place.get();
}

MemoryWatch::Entry* MemoryWatch::find(const InMemory* memory) {
  const auto at = entries_.find(memory);
  return at == entries_.end() ? nullptr : at->second.get();
}

MemoryWatch::Entry* MemoryWatch::find(uint64_t token) {
  const auto at = by_token_.find(token);
  return at == by_token_.end() ? nullptr : at->second;
}

void MemoryWatch::remove(Entry* entry) {
  if (entry->looked) std::erase(looked_, entry);
  by_token_.erase(entry->token);
  entries_.erase(entry->memory);
}

void MemoryWatch::look_at(Entry* entry) {
  entry->idle = 0;
  if (entry->looked) return;
  entry->looked = true;
  entry->memory->open_eyes();
  looked_.push_back(entry);
}

void MemoryWatch::stop_looking(size_t at) {
  looked_[at]->looked = false;
  looked_[at] = looked_.back();
  looked_.pop_back();
}

size_t MemoryWatch::look(std::span<Event> events) {
  size_t count = 0;
  const size_t looks = looked_.size();
  for (size_t i = 0; i < looks && !looked_.empty() && count < events.size(); ++i) {
    if (next_ >= looked_.size()) next_ = 0;
    Entry* const entry = looked_[next_];
    const Event event = entry->memory->look(entry->wanted);
    if (event.any()) {
      entry->idle = 0;
      events[count] = event;
      events[count++].token = entry->token;
    } else if (++entry->idle >= kIdleLooks && entry->memory->can_be_woken(entry->wanted) &&
               entry->memory->close_eyes(entry->wanted)) {
      stop_looking(next_);  // another one is there now
      continue;
    }
    ++next_;
  }
  return count;
}

int64_t MemoryWatch::close_eyes(int64_t wanted_ns) {
  int64_t out = wanted_ns;
  for (size_t i = 0; i < looked_.size(); ++i) {
    const Entry& entry = *looked_[i];
    if (!entry.memory->can_be_woken(entry.wanted) && (out < 0 || out > kLookNs)) out = kLookNs;
    if (entry.memory->close_eyes(entry.wanted)) continue;
    for (size_t j = 0; j < i; ++j) looked_[j]->memory->open_eyes();
    return 0;
  }
  return out;
}

void MemoryWatch::open_eyes() {
  for (Entry* const entry : looked_) entry->memory->open_eyes();
}

}  // namespace sidereal::sys
