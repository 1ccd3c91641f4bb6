#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sidereal::base {

/// "w/part_3", what part 3 of the table "w" is called.
std::string part_name(std::string_view table, int64_t part);

/// What a name of a part says. Value type.
struct Part {
  std::string_view table;      ///< "w" of "w/part_3"; not empty.
  int number = 0;              ///< 3.
  bool is_again = false;       ///< "w/part_3_1": as a strategy calls what has a name that is taken.
  std::string_view slot = {};  ///< "/Adagrad" of "w/part_3/Adagrad".
};
/// The reverse; nullopt of what is no part, as with a number that is none or is too large.
std::optional<Part> find_part(std::string_view name);

/// The table that a variable is part of, and which part: "w" and 3 of "w/part_3" and of its slot
/// "w/part_3/Adagrad"; the whole name and 0 of what is no part, and of one that is_again.
std::pair<std::string_view, int> split_part(std::string_view name);

/// How many lanes further than its table a part of it is, on a task that is one of `tasks` of its
/// job: modulo the lanes.
uint64_t lanes_further(int part, int tasks);

/// The lane of a variable on a task with `lanes` lanes, one of `tasks` of its job, so that all who
/// plan steps agree without asking. It is the hash of the name modulo the lanes; a part of a table
/// is lanes_further(), which makes the parts on one task share its lanes evenly when parts go round
/// robin. So they do when a task has all of them, in blocks of lanes * tasks.
int lane_of_name(std::string_view name, int lanes, int tasks);

}  // namespace sidereal::base
