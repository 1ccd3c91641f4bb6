#pragma once

#include <memory>

#include "sidereal/master/alarm.h"

namespace sidereal::service {

/// An alarm that gRPC's threads call.
std::unique_ptr<master::Alarm> grpc_alarm();

}  // namespace sidereal::service
