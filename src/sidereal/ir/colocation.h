#pragma once

#include <string_view>

namespace sidereal::ir {

/// The attribute in which a node says beside which others it is to run: strings "loc:@" + name.
/// Source: TensorFlow.
inline constexpr std::string_view kColocation = "_class";
inline constexpr std::string_view kColocatedWith = "loc:@";

}  // namespace sidereal::ir
