#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// `text` without blanks and tabs at its ends.
inline std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// The whole text as a finite float; a leading '+' is allowed. False when it is not one.
inline bool parse_float(std::string_view text, float* out) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && at == end && !text.empty() && std::isfinite(*out);
}

/// The whole text as a decimal integer. False when it is not one or does not fit.
inline bool parse_integer(std::string_view text, int64_t* out) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && at == end && !text.empty();
}

/// `text` in quotes for a message, cut after 40 bytes, with odd bytes as "\xNN".
std::string shown(std::string_view text);

/// Parses a label. With `binary`, only 0 and 1 (and -1 for 0 when `minus_one`) are labels.
Status parse_label(std::string_view text, bool binary, bool minus_one, float* out);

}  // namespace sidereal::data
