#pragma once

#include "gil.h"
#include "sidereal/data/feeder.h"

namespace sidereal::python {

/// without_gil() for work that may read files through feeders: they have the environment of now, as
/// nothing in Python changes it while the lock is held here.
template <class Work>
auto reading_without_gil(Work work) {
  data::take_environment();
  return without_gil(work);
}

}  // namespace sidereal::python
