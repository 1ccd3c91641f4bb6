#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sidereal::base {

/// The name that `text` is most likely a typo of, the first of several; "" when it is like none.
std::string closest(std::string_view text, const std::vector<std::string>& names);

}  // namespace sidereal::base
