#include "sidereal/base/printable.h"

#include <limits>

#include "sidereal/base/strings.h"

namespace sidereal::base {

std::string printable(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  const auto escape = [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  };
  const std::string valid = message_text(text, std::numeric_limits<size_t>::max());
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    // C2 80 to C2 9F are control characters beyond ASCII.
    const bool second_set =
        byte == 0xc2 && i + 1 < valid.size() && static_cast<unsigned char>(valid[i + 1]) < 0xa0;
    if (second_set) {
      escape(valid[i]);
      escape(valid[++i]);
    } else if (byte < 0x20 || byte == 0x7f) {
      escape(valid[i]);
    } else {
      out += valid[i];
    }
  }
  return out;
}

}  // namespace sidereal::base
