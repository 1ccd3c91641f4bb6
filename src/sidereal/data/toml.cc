#include "sidereal/data/toml.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

// Nothing of ours throws; and without its library, which is compiled otherwise.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace sidereal::data {

using base::invalid_argument;
using Json = nlohmann::ordered_json;

namespace {

/// Of a key with dots: its tables go one in another, and the library's go one after the other.
constexpr int64_t kDotsMax = 1000;

/// Keys with more parts than anybody writes would end the stack.
Status check_dots(std::string_view text) {
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    if (std::ranges::count(one, '.') > kDotsMax) {
      return invalid_argument("line {}: there are more than {} dots", line, kDotsMax);
    }
    text.remove_prefix(std::min(one.size() + 1, text.size()));
  }
  return {};
}

Result<Json> to_json(const toml::node& node);

/// In the order of the file, which tables of the library do not keep.
Result<Json> object_of(const toml::table& table) {
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(&key, &node);
  std::ranges::stable_sort(entries, {}, [](const auto& entry) {
    const toml::source_position at = entry.first->source().begin;
    return std::pair(at.line, at.column);
  });
  Json out = Json::object();
  for (const auto& [key, node] : entries) {
    SR_ASSIGN_OR_RETURN(out[std::string(key->str())], to_json(*node));
  }
  return out;
}

Result<Json> list_of(const toml::array& array) {
  Json out = Json::array();
  for (const toml::node& node : array) {
    SR_ASSIGN_OR_RETURN(Json value, to_json(node));
    out.push_back(std::move(value));
  }
  return out;
}

Result<Json> to_json(const toml::node& node) {
  if (const toml::table* const table = node.as_table()) return object_of(*table);
  if (const toml::array* const array = node.as_array()) return list_of(*array);
  if (const auto* const text = node.as_string()) return Json(text->get());
  if (const auto* const truth = node.as_boolean()) return Json(truth->get());
  if (const auto* const whole = node.as_integer()) return Json(whole->get());
  const auto* const number = node.as_floating_point();
  if (number != nullptr && std::isfinite(number->get())) return Json(number->get());
  return invalid_argument("line {}: {} is no value here; texts stand in quotes",
                          node.source().begin.line,
                          number != nullptr ? "what is not finite" : "a date or a time");
}

}  // namespace

Result<Json> parse_toml(std::string_view text) {
  SR_RETURN_IF_ERROR(check_dots(text));
  const toml::parse_result parsed = toml::parse(text);
  if (parsed) return object_of(parsed.table());
  const toml::parse_error& wrong = parsed.error();
  return invalid_argument("line {}: {}", wrong.source().begin.line, wrong.description());
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7F') {
      out += fmt::format("\\u{:04X}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace sidereal::data
