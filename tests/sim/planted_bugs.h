#pragma once

#include <ostream>

/// Bugs of which one can be there, in the sources of a test: planted_bugs.cmake.
namespace sidereal::sim {

enum class Bug {
  kNone,
#define PLANTED_BUG(name) name,
#include "planted_bugs.inc"
#undef PLANTED_BUG
};

/// The one that is there. Thread: set before a run.
inline Bug planted = Bug::kNone;

struct PlantedBug {
  const char* name;
  Bug bug;
};
/// How failures name it.
inline void PrintTo(const PlantedBug& bug, std::ostream* out) { *out << bug.name; }
inline constexpr PlantedBug kPlantedBugs[] = {
#define PLANTED_BUG(name) {#name, Bug::name},
#include "planted_bugs.inc"
#undef PLANTED_BUG
};

}  // namespace sidereal::sim

#define PLANTED(name) (::sidereal::sim::planted == ::sidereal::sim::Bug::name)
