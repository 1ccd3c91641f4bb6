#include "sidereal/base/wrap.h"

#include <algorithm>
#include <vector>

#include "sidereal/base/strings.h"

namespace sidereal::base {
namespace {

bool is_sign(std::string_view word) {
  return !word.empty() && std::none_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

}  // namespace

std::string wrap(std::string_view text, size_t columns, std::string_view indent) {
  std::vector<std::string> pieces;
  for (std::string& word : split(text, ' ')) {
    if (!pieces.empty() && is_sign(word)) {
      pieces.back() += " " + word;
    } else {
      pieces.push_back(std::move(word));
    }
  }
  std::string out;
  size_t used = 0;
  for (const std::string& piece : pieces) {
    if (used > 0 && used + 1 + piece.size() > columns) {
      out += '\n';
      out += indent;
      used = indent.size();
    } else if (!out.empty()) {
      out += ' ';
      ++used;
    }
    out += piece;
    used += piece.size();
  }
  return out;
}

}  // namespace sidereal::base
