#pragma once

#include <vector>

#include "sidereal/task/hot_variables.h"

namespace sidereal::session::v1 {
class TaskStatus;
}

/// Rows that are used most, in messages (session.proto). Internal to service.
namespace sidereal::service {

void write_hot_variables(const std::vector<task::HotVariable>& variables,
                         session::v1::TaskStatus* status);
/// Those of a peer, without what cannot be: counts are not negative, an error is part of its count.
std::vector<task::HotVariable> hot_variables_of(const session::v1::TaskStatus& status);

}  // namespace sidereal::service
