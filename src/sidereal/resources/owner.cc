#include "sidereal/resources/owner.h"

namespace sidereal::resources {

Lanes::~Lanes() = default;

void Owner::join(Owner* other) {
  Owner* const one = group();
  Owner* const joining = other->group();
  if (one == joining) return;
  joining->kept_ = one->shared_from_this();
  joining->joined_.store(one, std::memory_order_release);
}

}  // namespace sidereal::resources
