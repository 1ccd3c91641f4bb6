#pragma once

#include <memory>

#include "sidereal/runtime/alarm.h"

namespace sidereal::runtime {

/// An alarm that gRPC's threads call.
std::unique_ptr<Alarm> grpc_alarm();

}  // namespace sidereal::runtime
