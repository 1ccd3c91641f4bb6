#include "sidereal/transport/budget.h"

#include <algorithm>

#include "sidereal/base/check.h"

namespace sidereal::transport {

void Budget::use(uint64_t bytes) {
  used_ += bytes;
  used_max_ = std::max(used_max_, used_);
}

bool Budget::take(uint64_t bytes, Waiter* waiter) {
  if (waiting_.empty() && fits(bytes)) {
    use(bytes);
    return true;
  }
  waiting_.push_back({bytes, waiter});
  return false;
}

void Budget::give_back(uint64_t bytes) {
  SR_DCHECK(bytes <= used_);
  used_ -= bytes;
  serve();
}

void Budget::forget(Waiter* waiter) {
  std::erase_if(waiting_, [waiter](const Wish& wish) { return wish.waiter == waiter; });
  serve();
}

void Budget::serve() {
  while (!waiting_.empty() && fits(waiting_.front().bytes)) {
    const Wish wish = waiting_.front();
    waiting_.pop_front();
    use(wish.bytes);
    wish.waiter->on_room();
  }
}

}  // namespace sidereal::transport
