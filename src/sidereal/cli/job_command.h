#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/service/job_commands.h"

namespace sidereal::cli {

/// The number of a parameter server, written "ps:1", "/job:ps/task:1" or as its full name.
/// kInvalidArgument for anything else.
Result<int> parse_ps(std::string_view text);

/// "copied 1.5 GiB of 3.0 GiB   50%".
std::string format_copied(const service::JobCommandProgress& progress);

}  // namespace sidereal::cli
