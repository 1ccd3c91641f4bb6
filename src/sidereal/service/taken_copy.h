#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/resources/push_counts.h"

namespace sidereal::service {

/// What a task has from the standby of another start of it. Value type.
struct TakenCopy {
  std::string from;  ///< The task that had it.
  double seconds = 0;
  int64_t bytes = 0;
  int64_t variables = 0;
  int64_t rows = 0;  ///< Of all these; a scalar is one.
  std::vector<resources::PushedSoFar> pushed = {};
};

}  // namespace sidereal::service
