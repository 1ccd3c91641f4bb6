#pragma once

#include <string_view>
#include <utility>

namespace sidereal::base {

/// The table that a variable is part of, and which part: "w" and 3 of "w/part_3" and of its slot
/// "w/part_3/Adagrad"; the whole name and 0 of what is no part.
std::pair<std::string_view, int> split_part(std::string_view name);

/// The lane of a variable on a task with `lanes` lanes, one of `tasks` of its job, so that all who
/// plan steps agree without asking. It is the hash of the name modulo the lanes; a part of a table
/// is as many lanes further as a task got parts before it when parts go round robin, which makes
/// the parts on one task share its lanes evenly. So they do when a task has all of them, in blocks
/// of lanes * tasks.
int lane_of_name(std::string_view name, int lanes, int tasks);

}  // namespace sidereal::base
