#pragma once

#include <string>
#include <vector>

#include "sidereal/train/trainer.h"

namespace sidereal::cli {

/// Text in columns: the first one left-justified, the others right-justified, two blanks between
/// them, a line of dashes under the header. Rows may be shorter than the header.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows);

/// The closing table: what each task did. `seconds` is the time the steps took, for the rates.
std::string format_tasks(const std::vector<train::TaskStats>& tasks, double seconds);

/// 3725 -> "1h02m", 125 -> "2m05s", 9.87 -> "9.9s".
std::string format_duration(double seconds);

}  // namespace sidereal::cli
