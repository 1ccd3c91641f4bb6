#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sidereal::base {

/// `text` with line ends instead of some blanks, so that no line is wider than `columns`, words
/// that are wider by themselves excepted. Lines after the first begin with `indent`. A word without
/// a letter or digit, such as a dash, stays on the line of the word before it, so that Markdown
/// does not take it for the begin of a list.
std::string wrap(std::string_view text, size_t columns, std::string_view indent = "");

}  // namespace sidereal::base
