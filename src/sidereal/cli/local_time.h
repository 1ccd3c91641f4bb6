#pragma once

#include <ctime>
#include <string>

namespace sidereal::cli {

/// "2026-01-31 12:03:04" in this machine's zone, of seconds since 1970.
std::string local_time(std::time_t seconds);

}  // namespace sidereal::cli
