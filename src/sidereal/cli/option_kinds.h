#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/strings.h"

namespace sidereal::cli {

/// The most that a number of an option may be where nothing else limits it.
inline constexpr int64_t kLarge = int64_t{1} << 40;

/// An option that is a whole number, a number, or one of some names.
inline CLI::Option* whole(CLI::Option* option, int64_t min, int64_t max) {
  return option->check(CLI::Range(min, max).description(""))->type_name("N");
}

inline CLI::Option* real(CLI::Option* option, double min, double max) {
  return option->check(CLI::Range(min, max).description(""))->type_name("X");
}

inline CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names) {
  return option->check(CLI::IsMember(names).description(""))->type_name(base::join(names, "|"));
}

}  // namespace sidereal::cli
