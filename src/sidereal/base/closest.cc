#include "sidereal/base/closest.h"

#include <algorithm>
#include <cstddef>

namespace sidereal::base {

namespace {

constexpr size_t kNameBytesMax = 100;

/// Letters to add, remove, replace or swap with their neighbour, to make b of a.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before;
  std::vector<size_t> last;
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string closest(std::string_view text, const std::vector<std::string>& names) {
  if (text.size() > kNameBytesMax) return "";
  std::string best;
  size_t least = std::max<size_t>(1, text.size() / 3) + 1;
  for (const std::string& name : names) {
    // What was cut short is meant, too: --batch for --batch-size.
    const bool begins = text.size() > 2 && name.starts_with(text);
    const size_t count = begins ? 1 : edits(text, name);
    if (count >= least) continue;
    least = count;
    best = name;
  }
  return best;
}

}  // namespace sidereal::base
