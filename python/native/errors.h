#pragma once

#include <utility>

#include "sidereal/base/status.h"

/// The border between statuses and Python exceptions. nanobind turns its own C++ exception into the
/// Python one at the edge of the module; nothing is thrown across any other module of ours.
namespace sidereal::python {

/// Raises the exception of sidereal.errors for the status, which is not ok. Needs the GIL.
[[noreturn]] void raise(const Status& status);

/// Raises unless ok. Needs the GIL.
inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}

/// The value, or raises. Needs the GIL.
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

}  // namespace sidereal::python
