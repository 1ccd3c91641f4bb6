#include "server_functions.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "gil.h"
#include "sidereal/base/status.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;

namespace {

using eager::Engine;
using eager::Value;
using tensor::Tensor;

class ServerFunctions final : public ports::HostFunctions {
 public:
  Result<std::vector<Tensor>> call(int64_t number, std::span<const Tensor> inputs) override {
    const GilAcquired gil;
    try {
      const nb::object call = nb::module_::import_("sidereal.ops.host").attr("call_registered");
      auto& engine = nb::cast<Engine&>(nb::module_::import_("sidereal._dispatch").attr("ENGINE"));
      nb::list given;
      for (const Tensor& input : inputs) given.append(nb::cast(engine.wrap(input)));
      std::vector<Tensor> out;
      for (const nb::handle item : call(number, given)) {
        out.push_back(nb::cast<const Value&>(item).tensor);
      }
      return out;
    } catch (nb::python_error& error) {
      return status_of(error);
    } catch (const nb::cast_error&) {
      return base::invalid_argument("a function of the program gave something else than tensors");
    }
  }
};

}  // namespace

Status status_of(nb::python_error& error) {
  StatusCode code = StatusCode::kUnknown;
  const std::pair<PyObject*, StatusCode> known[] = {
      {PyExc_ValueError, StatusCode::kInvalidArgument},
      {PyExc_TypeError, StatusCode::kInvalidArgument},
      {PyExc_StopIteration, StatusCode::kOutOfRange},
      {PyExc_MemoryError, StatusCode::kResourceExhausted},
      {PyExc_NotImplementedError, StatusCode::kUnimplemented},
  };
  for (const auto& [type, meant] : known) {
    if (error.matches(type)) code = meant;
  }
  const std::string type = nb::cast<std::string>(error.type().attr("__name__"));
  std::string text = type;
  try {
    const nb::handle value = error.value();
    // Errors of this package know their code.
    if (nb::isinstance(value, nb::module_::import_("sidereal.errors").attr("Error"))) {
      code = static_cast<StatusCode>(nb::cast<int>(value.attr("code")));
      return base::make_status(code, nb::cast<std::string>(value.attr("message")));
    }
    text += ": " + std::string(nb::str(value).c_str());
    // NOLINTNEXTLINE(bugprone-empty-catch): of one that cannot say what it is, the type has to do.
  } catch (const std::exception&) {
  }
  return base::make_status(code, text);
}

std::shared_ptr<ports::HostFunctions> server_functions() {
  return std::make_shared<ServerFunctions>();
}

}  // namespace sidereal::python
