#include "sidereal/parse/csv.h"

#include <cstring>

#include "sidereal/parse/text.h"

namespace sidereal::parse {
namespace {

using base::invalid_argument;

/// Reads the field that opens with the quote before `at`, and returns where it ends: behind its
/// closing quote, or nullptr when it has none.
const char* read_quoted(const char* at, const char* end, std::string* scratch) {
  while (true) {
    const auto* quote = static_cast<const char*>(std::memchr(at, '"', end - at));
    if (quote == nullptr) return nullptr;
    scratch->append(at, quote);
    at = quote + 1;
    if (at == end || *at != '"') return at;
    scratch->push_back('"');
    ++at;
  }
}

Status check_strict(std::string_view field, const CsvStyle& style, size_t number) {
  const size_t odd = field.find_first_of(style.quotes ? "\"\r\n" : "\r\n");
  if (odd == std::string_view::npos) return {};
  return invalid_argument(
      "field {} has {} in it without being in quotes: {}; write the field in quotes", number,
      field[odd] == '"' ? "a quote" : "a line end", shown(field));
}

}  // namespace

Status split_csv(std::string_view record, const CsvStyle& style,
                 std::vector<std::string_view>* fields, std::string* scratch) {
  fields->clear();
  scratch->clear();
  scratch->reserve(record.size());  // Fields point into it, so it must not grow below.
  const char* at = record.data();
  const char* const end = at + record.size();
  while (true) {
    if (style.quotes && at < end && *at == '"') {
      const size_t begin = scratch->size();
      at = read_quoted(at + 1, end, scratch);
      if (at == nullptr) {
        return invalid_argument("field {} opens a quote that never closes", fields->size() + 1);
      }
      fields->emplace_back(scratch->data() + begin, scratch->size() - begin);
      if (at < end && *at != style.delimiter) {
        return invalid_argument("field {} goes on after its closing quote", fields->size());
      }
    } else {
      const char* stop = at;
      while (stop < end && *stop != style.delimiter) ++stop;
      fields->emplace_back(at, stop - at);
      if (style.strict) SR_RETURN_IF_ERROR(check_strict(fields->back(), style, fields->size()));
      at = stop;
    }
    if (at >= end) return {};
    ++at;
  }
}

}  // namespace sidereal::parse
