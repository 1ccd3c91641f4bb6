#include "sidereal/base/strings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace sidereal::base {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  while (true) {
    const size_t to = text.find(separator, from);
    if (to == std::string_view::npos) {
      parts.emplace_back(text.substr(from));
      return parts;
    }
    parts.emplace_back(text.substr(from, to - from));
    from = to + 1;
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string list_of(const std::vector<std::string>& parts, size_t more) {
  std::string out = join(parts, ", ");
  if (more > 0) out += " and " + std::to_string(more) + " more";
  return out;
}

std::string_view trim(std::string_view text) {
  const char* blanks = " \t\r\n";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

namespace {

/// Bytes of the UTF-8 character that `text`, which is not empty, begins with; 0 when it is none.
size_t character_bytes(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if (byte(i) >> 6 != 2) return 0;
  }
  // Neither longer than it need be, nor half of a pair of UTF-16, nor past the last character.
  const unsigned second = byte(1);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return bytes;
}

}  // namespace

size_t utf8_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

std::string message_text(std::string_view text, size_t bytes_max) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr size_t kEscapeBytes = 4;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(text.substr(at));
    const size_t taken = bytes > 0 ? bytes : kEscapeBytes;
    if (out.size() + taken > bytes_max) {
      return out + " ... (" + std::to_string(text.size()) + " bytes)";
    }
    if (bytes > 0) {
      out += text.substr(at, bytes);
    } else {
      const auto byte = static_cast<unsigned char>(text[at]);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
    at += std::max<size_t>(bytes, 1);
  }
  return out;
}

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
  });
}

Result<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return invalid_argument("'{}' is not an integer of 64 bits", text);
  }
  return value;
}

Result<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return invalid_argument("'{}' is not a number", text);
  }
  return value;
}

std::string human_count(double value) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (std::fabs(value) >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}{}", value, value < 10 ? 2 : (value < 100 ? 1 : 0), kUnits[unit]);
}

std::string human_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (std::fabs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

}  // namespace sidereal::base
