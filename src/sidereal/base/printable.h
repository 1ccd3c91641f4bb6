#pragma once

#include <string>
#include <string_view>

namespace sidereal::base {

/// `text` as a terminal may get it: bytes that are no UTF-8, and control characters, which could
/// move its cursor or change its colours, are written as \xHH.
std::string printable(std::string_view text);

}  // namespace sidereal::base
