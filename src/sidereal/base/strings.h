#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::base {

/// The parts of `text` between `separator`s; "a,,b" has three parts, "" has one empty part.
std::vector<std::string> split(std::string_view text, char separator);

/// The parts joined with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// The parts as a list for people, and how many more there are: "a, b and 3 more".
std::string list_of(const std::vector<std::string>& parts, size_t more);

/// The first `count_max` of `items`, each as `text` writes it, for a message: "a, b and 3 more";
/// "" of none.
template <class Items, class Text>
std::string some_of(const Items& items, size_t count_max, Text text) {
  std::vector<std::string> shown;
  for (const auto& item : items) {
    if (shown.size() == count_max) break;
    shown.emplace_back(text(item));
  }
  return list_of(shown, items.size() - shown.size());
}

/// `text` without leading and trailing blanks.
std::string_view trim(std::string_view text);

/// `text` as messages can carry it: UTF-8, in which a byte that is none is written as \xHH, and at
/// most `bytes_max` bytes, after which it says how many there were.
std::string message_text(std::string_view text, size_t bytes_max);

/// Bytes at the front of `text` that are UTF-8; all of them when the whole text is.
size_t utf8_bytes(std::string_view text);

/// True for a letter followed by letters, digits and '_', all of ASCII: what names a job or a type
/// of devices.
bool is_name(std::string_view text);

/// The whole text as a decimal integer, or kInvalidArgument.
Result<int64_t> parse_int(std::string_view text);

/// The whole text as a number, or kInvalidArgument. Takes "inf" and "nan".
Result<double> parse_double(std::string_view text);

/// A count with a unit for people: 1234567 -> "1.23M".
std::string human_count(double value);

/// Bytes for people: 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

}  // namespace sidereal::base
