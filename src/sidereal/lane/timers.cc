#include "sidereal/lane/timers.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sidereal::lane {

bool Timers::later(const Entry& a, const Entry& b) {
  return a.deadline != b.deadline ? a.deadline > b.deadline : a.order > b.order;
}

TimerId Timers::add(int64_t deadline_ns, base::Function<void()> fn) {
  uint32_t place;
  if (free_.empty()) {
    place = static_cast<uint32_t>(places_.size());
    places_.emplace_back();
  } else {
    place = free_.back();
    free_.pop_back();
  }
  Place& p = places_[place];
  p.fn = std::move(fn);
  p.armed = true;
  heap_.push_back({deadline_ns, order_++, place, p.generation});
  std::push_heap(heap_.begin(), heap_.end(), later);
  return TimerId((uint64_t{p.generation} << 32) | place);
}

base::Function<void()> Timers::release(uint32_t place) {
  Place& p = places_[place];
  base::Function<void()> fn = std::move(p.fn);
  p.fn = nullptr;
  p.armed = false;
  ++p.generation;
  free_.push_back(place);
  return fn;
}

bool Timers::cancel(TimerId id) {
  const auto place = static_cast<uint32_t>(id.value);
  const auto generation = static_cast<uint32_t>(id.value >> 32);
  if (place >= places_.size() || !places_[place].armed || places_[place].generation != generation) {
    return false;
  }
  release(place);
  // Its heap entry is now stale and goes when it is due, or here once most entries are stale.
  if (heap_.size() > 64 && heap_.size() > 4 * (places_.size() - free_.size())) {
    std::erase_if(heap_,
                  [this](const Entry& e) { return places_[e.place].generation != e.generation; });
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
  return true;
}

void Timers::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  heap_.pop_back();
}

int64_t Timers::next_deadline() {
  while (!heap_.empty() && places_[heap_.front().place].generation != heap_.front().generation) {
    pop();
  }
  return heap_.empty() ? INT64_MAX : heap_.front().deadline;
}

int Timers::fire(int64_t now_ns) {
  int fired = 0;
  const uint64_t before = order_;  // a timer set by a timer waits for the next pass
  while (next_deadline() <= now_ns && heap_.front().order < before) {
    const uint32_t place = heap_.front().place;
    pop();
    release(place)();
    ++fired;
  }
  return fired;
}

void Timers::clear() {
  heap_.clear();
  for (uint32_t i = 0; i < places_.size(); ++i) {
    if (places_[i].armed) release(i);
  }
}

}  // namespace sidereal::lane
