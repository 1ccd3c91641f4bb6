#pragma once

/// Bugs in what moves variables, of which one can be there: move_bugs.cmake.
namespace sidereal::sim {

enum class MoveBug {
  kNone,
#define MOVE_BUG(name) name,
#include "move_bugs.inc"
#undef MOVE_BUG
};

/// The one that is there. Thread: set before a run.
inline MoveBug planted = MoveBug::kNone;

}  // namespace sidereal::sim

#define PLANTED(name) (::sidereal::sim::planted == ::sidereal::sim::MoveBug::name)
