#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "sidereal/base/status.h"

/// Numbers written as text, and text shown in messages.
namespace sidereal::parse {

/// `text` without blanks and tabs at its ends.
inline std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// Whether `c` is white space: blank, tab, line feed, vertical tab, form feed or carriage return.
constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// `text` without white space at its ends.
inline std::string_view trim_space(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
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

/// A number as TensorFlow's string_to_number reads it: white space around it and a leading '+' are
/// allowed, floats may be "inf", "nan" (in any case) and beyond the range of T, where they become
/// infinite or zero. False when the text is no such number; integers must fit T.
template <class T>
requires std::is_integral_v<T>
bool parse_number(std::string_view text, T* out) {
  text = trim_space(text);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && at == end && !text.empty();
}
bool parse_number(std::string_view text, float* out);
bool parse_number(std::string_view text, double* out);

/// `text` in quotes for a message, cut after 40 bytes, with odd bytes as "\xNN".
std::string shown(std::string_view text);

}  // namespace sidereal::parse
