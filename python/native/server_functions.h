#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "sidereal/ports/ports.h"

namespace sidereal::python {

/// The status that an exception means, as for TensorFlow's py_function. Needs the GIL.
Status status_of(nanobind::python_error& error);

/// Functions of this process's Python programs (py_function) for the servers in it. What a function
/// raises becomes the error of the step: kInvalidArgument for a ValueError or TypeError, kUnknown
/// for most others, with the exception's type and text. Thread: any; takes the GIL for a call.
std::shared_ptr<ports::HostFunctions> server_functions();

}  // namespace sidereal::python
