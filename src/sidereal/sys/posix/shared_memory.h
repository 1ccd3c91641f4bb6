#pragma once

#include <memory>

#include "sidereal/base/status.h"
#include "sidereal/sys/shared_memory.h"

namespace sidereal::sys::posix {

/// Memory without a name, of which a process of the same user that knows its place can have a
/// descriptor through /proc, where both see the same processes. Nobody can make it shorter.
/// kResourceExhausted. Thread: any.
Result<std::unique_ptr<SharedMemory>> create_shared(uint64_t ring_bytes);

/// As Network::find_shared(). A place that names something else, whatever it is, is not opened.
/// Thread: any.
Result<std::unique_ptr<SharedMemory>> find_shared(const SharedPlace& place);

}  // namespace sidereal::sys::posix
