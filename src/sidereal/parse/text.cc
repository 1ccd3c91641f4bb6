#include "sidereal/parse/text.h"

#include <fmt/format.h>

#include <limits>

namespace sidereal::parse {
namespace {

template <class T>
bool parse_real(std::string_view text, T* out) {
  text = trim_space(text);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  if (at != end || text.empty() || error == std::errc::invalid_argument) return false;
  if (error != std::errc::result_out_of_range) return true;
  // Beyond the range of T: which end, a wider type says where it can, else the exponent's sign.
  const bool negative = text.front() == '-';
  long double wide = 0;
  const auto again = std::from_chars(text.data(), end, wide);
  const size_t exponent = text.find_first_of("eE");
  const bool tiny = again.ec == std::errc()
                        ? std::abs(wide) < 1
                        : exponent != std::string_view::npos && text[exponent + 1] == '-';
  const T size = tiny ? T{0} : std::numeric_limits<T>::infinity();
  *out = negative ? -size : size;
  return true;
}

}  // namespace

bool parse_number(std::string_view text, float* out) { return parse_real(text, out); }
bool parse_number(std::string_view text, double* out) { return parse_real(text, out); }

std::string shown(std::string_view text) {
  constexpr size_t kShownBytes = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > kShownBytes ? "...'" : "'";
  return out;
}

}  // namespace sidereal::parse
