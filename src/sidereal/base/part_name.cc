#include "sidereal/base/part_name.h"

#include <fmt/format.h>

#include <charconv>

#include "sidereal/base/hash.h"

namespace sidereal::base {

namespace {

constexpr std::string_view kPart = "/part_";

}  // namespace

std::string part_name(std::string_view table, int64_t part) {
  return fmt::format("{}{}{}", table, kPart, part);
}

std::pair<std::string_view, int> split_part(std::string_view name) {
  const size_t at = name.rfind(kPart);
  if (at == std::string_view::npos) return {name, 0};
  const std::string_view digits = name.substr(at + kPart.size());
  int part = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, part);
  const bool is_part = error == std::errc() && (stop == end || *stop == '/') && part >= 0;
  return is_part ? std::pair{name.substr(0, at), part} : std::pair{name, 0};
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
