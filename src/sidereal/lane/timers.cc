#include "sidereal/lane/timers.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sidereal::lane {

bool Timers::later(const Entry& a, const Entry& b) {
  return a.deadline != b.deadline ? a.deadline > b.deadline : a.order > b.order;
}

TimerId Timers::add(int64_t deadline_ns, base::Function<void()> fn) {
  const uint64_t id = armed_.add(std::move(fn));
  heap_.push_back({deadline_ns, order_++, id});
  std::push_heap(heap_.begin(), heap_.end(), later);
  return TimerId(id);
}

bool Timers::cancel(TimerId id) {
  if (!armed_.erase(id.value)) return false;
  // Its heap entry is now stale and goes when it is due, or here once most entries are stale.
  if (heap_.size() > 64 && heap_.size() > 4 * armed_.size()) {
    std::erase_if(heap_, [this](const Entry& e) { return armed_.find(e.id) == nullptr; });
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
  return true;
}

void Timers::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  heap_.pop_back();
}

int64_t Timers::next_deadline() {
  while (!heap_.empty() && armed_.find(heap_.front().id) == nullptr) pop();
  return heap_.empty() ? INT64_MAX : heap_.front().deadline;
}

int Timers::fire(int64_t now_ns) {
  int fired = 0;
  const uint64_t before = order_;  // a timer set by a timer waits for the next pass
  while (next_deadline() <= now_ns && heap_.front().order < before) {
    const uint64_t id = heap_.front().id;
    pop();
    (*armed_.take(id))();
    ++fired;
  }
  return fired;
}

void Timers::clear() {
  heap_.clear();
  armed_.clear();
}

}  // namespace sidereal::lane
