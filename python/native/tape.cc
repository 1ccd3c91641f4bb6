#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/eager/tape.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using eager::Backward;
using eager::Engine;
using eager::Gradient;
using eager::Value;

/// A tape that stops listening when Python lets go of it. Thread: under the GIL.
struct Tape {
  explicit Tape(Engine& engine) : engine(engine) {}
  ~Tape() { engine.remove(&tape); }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  Engine& engine;
  eager::Tape tape;
};

/// The Python exception that ended a backward function, kept while statuses carry the news up.
std::optional<nb::python_error>& raised() {
  static std::optional<nb::python_error> error;
  return error;
}

/// Raises what the backward function raised, or the status.
void check_backward(const Status& status) {
  if (status.ok()) return;
  if (raised().has_value()) {
    nb::python_error error = std::move(*raised());
    raised().reset();
    throw nb::python_error(std::move(error));
  }
  check(status);
}

nb::object or_none(const Value& value) { return value.defined() ? nb::cast(value) : nb::none(); }

std::vector<const Value*> tensors(nb::handle values) {
  std::vector<const Value*> out;
  for (const nb::handle value : values) out.push_back(nb::cast<const Value*>(value));
  return out;
}

/// None, a Tensor, or (values, indices, the value it is the gradient of).
nb::object gradient_object(const Gradient& gradient) {
  if (!gradient.is_sparse()) return or_none(gradient.dense);
  return nb::make_tuple(gradient.values, gradient.indices, gradient.of);
}

nb::list gradient(Tape& self, nb::handle targets, nb::handle seeds, nb::handle sources) {
  std::vector<Value> ys;
  for (const Value* value : tensors(targets)) ys.push_back(*value);
  std::vector<Value> dys;
  for (const nb::handle seed : seeds) {
    dys.push_back(seed.is_none() ? Value{} : nb::cast<const Value&>(seed));
  }
  std::vector<uint64_t> ids;
  for (const Value* value : tensors(sources)) ids.push_back(value->id);
  const auto gradients = self.tape.gradient(self.engine, ys, dys, ids);
  check_backward(gradients.status());
  nb::list out;
  for (const Gradient& one : *gradients) out.append(gradient_object(one));
  return out;
}

/// A backward in Python: takes and gives lists of Tensor or None.
Backward backward_of(const nb::callable& function) {
  return [function](std::span<const Value> dys) -> Result<std::vector<Gradient>> {
    try {
      nb::list arguments;
      for (const Value& dy : dys) arguments.append(or_none(dy));
      const nb::object result = function(arguments);
      std::vector<Gradient> out;
      for (const nb::handle item : result) {
        out.emplace_back();
        if (!item.is_none()) out.back().dense = nb::cast<const Value&>(item);
      }
      return out;
    } catch (nb::python_error& error) {
      raised().emplace(std::move(error));
      return base::aborted("a backward function raised an exception");
    } catch (const nb::cast_error&) {
      return base::invalid_argument("the gradient function must return Tensors or None");
    }
  };
}

void record(Engine& engine, const std::string& name, nb::handle inputs, nb::handle outputs,
            const nb::callable& backward) {
  std::vector<Value> made;
  for (const Value* value : tensors(outputs)) made.push_back(*value);
  engine.record(name, tensors(inputs), made, backward_of(backward));
}

}  // namespace

void bind_tape(nb::module_& m) {
  nb::class_<Tape>(m, "Tape", "What was run on watched values.")
      .def(nb::init<Engine&>(), nb::keep_alive<1, 2>(), "engine"_a)
      .def("start", [](Tape& self) { self.engine.push(&self.tape); })
      .def("stop", [](Tape& self) { self.engine.remove(&self.tape); })
      .def_prop_ro("listening", [](const Tape& self) { return self.engine.has(&self.tape); })
      .def(
          "watch", [](Tape& self, const Value& value) { self.tape.watch(value); }, "value"_a)
      .def("gradient", &gradient, "targets"_a, "seeds"_a, "sources"_a)
      .def("clear", [](Tape& self) { self.tape.clear(); })
      .def("__len__", [](const Tape& self) { return self.tape.size(); });
  m.def("record", &record, "engine"_a, "name"_a, "inputs"_a, "outputs"_a, "backward"_a);
  m.def(
      "listens",
      [](const Engine& engine, nb::handle inputs) { return engine.listens(tensors(inputs)); },
      "engine"_a, "inputs"_a);
  m.def(
      "alias", [](Engine& engine, const Value& value) { return engine.wrap(value.tensor); },
      "engine"_a, "value"_a, "The same tensor, which tapes take for another.");
}

}  // namespace sidereal::python
