#include "sidereal/base/part_name.h"

#include <fmt/format.h>

#include <charconv>

#include "sidereal/base/hash.h"

namespace sidereal::base {

namespace {

constexpr std::string_view kPart = "/part_";

/// Takes the number that `text` begins with off it; nullopt: there is none, or it is too large.
std::optional<int> take_number(std::string_view* text) {
  if (text->starts_with('-')) return std::nullopt;
  int out = 0;
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), out);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(stop - text->data()));
  return out;
}

}  // namespace

std::string part_name(std::string_view table, int64_t part) {
  return fmt::format("{}{}{}", table, kPart, part);
}

std::optional<Part> find_part(std::string_view name) {
  const size_t at = name.rfind(kPart);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  std::string_view rest = name.substr(at + kPart.size());
  const std::optional<int> number = take_number(&rest);
  if (!number.has_value()) return std::nullopt;
  const bool is_again = rest.starts_with('_');
  if (is_again) {
    rest.remove_prefix(1);
    if (!take_number(&rest).has_value()) return std::nullopt;
  }
  if (!rest.empty() && rest[0] != '/') return std::nullopt;
  return Part{.table = name.substr(0, at), .number = *number, .is_again = is_again, .slot = rest};
}

std::pair<std::string_view, int> split_part(std::string_view name) {
  const std::optional<Part> part = find_part(name);
  if (!part.has_value() || part->is_again) return {name, 0};
  return {part->table, part->number};
}

uint64_t lanes_further(int part, int tasks) {
  // Round robin gives a task every tasks-th part, from any first one on: K % tasks is the same for
  // them. With it, parts that are all on one task go on from lane to lane as well.
  return static_cast<uint64_t>(part / tasks) + static_cast<uint64_t>(part % tasks);
}

int lane_of_name(std::string_view name, int lanes, int tasks) {
  const auto [table, part] = split_part(name);
  const uint64_t lane = hash64(table) + lanes_further(part, tasks);
  return static_cast<int>(lane % static_cast<uint64_t>(lanes));
}

}  // namespace sidereal::base
