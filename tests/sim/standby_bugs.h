#pragma once

/// Bugs in the change logs of a task, of which one can be there: standby_bugs.cmake.
namespace sidereal::sim {

enum class StandbyBug {
  kNone,
#define STANDBY_BUG(name) name,
#include "standby_bugs.inc"
#undef STANDBY_BUG
};

/// The one that is there. Thread: set before a run.
inline StandbyBug planted = StandbyBug::kNone;

}  // namespace sidereal::sim

#define PLANTED(name) (::sidereal::sim::planted == ::sidereal::sim::StandbyBug::name)
