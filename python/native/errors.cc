#include "errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace sidereal::python {

namespace nb = nanobind;

void raise(const Status& status) {
  // What ended the call was an exception already, such as Ctrl-C.
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  const nb::module_ errors = nb::module_::import_("sidereal.errors");
  const nb::object error =
      errors.attr("from_code")(static_cast<int>(status.code()), base::message_of(status));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace sidereal::python
