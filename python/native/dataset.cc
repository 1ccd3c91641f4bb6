#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "reading.h"
#include "server_functions.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/dataset/definition_text.h"
#include "sidereal/dataset/feed.h"
#include "sidereal/dataset/iterator.h"
#include "sidereal/exec/iterator_resource.h"
#include "sidereal/ops/ops.h"
#include "symbol.h"

/// Datasets and their iterators. What elements are nested like is known to Python alone.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using dataset::Component;
using dataset::Dataset;
using dataset::DatasetPtr;
using dataset::Element;
using eager::Engine;
using eager::Value;
using tensor::Tensor;

/// All ops, and those of datasets.
const ir::OpRegistry& registry() {
  static const auto* const made = [] {
    auto* filled = new ir::OpRegistry();
    ops::register_all(filled);
    dataset::register_dataset_ops(filled);
    return filled;
  }();
  return *made;
}

/// What Python holds of a dataset.
struct Definition {
  DatasetPtr dataset;
};

/// A Tensor, (Tensor, number of its variable), or (number of a value, dtype, shape).
dataset::Parameter parameter_of(nb::handle object) {
  if (!nb::isinstance<nb::tuple>(object)) {
    return dataset::Parameter::of(nb::cast<const Value&>(object).tensor);
  }
  const auto slot = nb::cast<nb::tuple>(object);
  if (slot.size() == 2) {
    auto out = dataset::Parameter::of(nb::cast<const Value&>(slot[0]).tensor);
    out.variable = nb::cast<int64_t>(slot[1]);
    return out;
  }
  return dataset::Parameter::from_slot(nb::cast<int32_t>(slot[0]),
                                       {dtype_from_object(slot[1]), shape_from_object(slot[2])});
}

Definition make(const std::string& op, nb::handle inputs, nb::handle parameters, nb::handle attrs,
                nb::handle function, nb::handle inner) {
  dataset::DatasetDef def;
  def.op = op;
  for (const nb::handle input : inputs) {
    def.inputs.push_back(nb::cast<const Definition&>(input).dataset);
  }
  for (const nb::handle parameter : parameters) {
    def.parameters.push_back(parameter_of(parameter));
  }
  const ir::OpSchema* schema = registry().find(op + "Dataset");
  if (schema == nullptr) raise(base::invalid_argument("there is no dataset '{}'", op));
  def.attrs = attrs_from_dict(*schema, attrs);
  if (!function.is_none()) def.function = nb::cast<const Body&>(function).function;
  if (!inner.is_none()) def.inner = nb::cast<const Definition&>(inner).dataset;
  return {value_of(Dataset::make(std::move(def)))};
}

Definition with_values(const Definition& self, const nb::dict& values) {
  absl::flat_hash_map<int64_t, Tensor> by_number;
  for (const auto [number, value] : values) {
    by_number[nb::cast<int64_t>(number)] = nb::cast<const Value&>(value).tensor;
  }
  return {value_of(self.dataset->with_values(self.dataset, by_number))};
}

nb::list outputs_of(const Definition& self) {
  nb::list out;
  for (const dataset::ComponentSpec& spec : self.dataset->outputs()) {
    out.append(
        nb::make_tuple(dtype_object(spec.spec.dtype), shape_object(spec.spec.shape), spec.is_list));
  }
  return out;
}

/// A Python iterator of lists of Tensors. Thread: any; takes the GIL.
class PythonSource final : public dataset::ElementSource {
 public:
  explicit PythonSource(nb::object iterator) : iterator_(std::move(iterator)) {}
  ~PythonSource() override {
    const GilAcquired gil;
    iterator_.reset();
  }
  PythonSource(const PythonSource&) = delete;
  PythonSource& operator=(const PythonSource&) = delete;

  Result<bool> next(Element* out) override {
    const GilAcquired gil;
    try {
      const nb::object item = nb::steal(PyIter_Next(iterator_.ptr()));
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      if (!item.is_valid()) return false;
      for (const nb::handle component : item) {
        out->push_back({nb::cast<const Value&>(component).tensor, nullptr});
      }
      return true;
    } catch (nb::python_error& error) {
      return status_of(error);
    } catch (const nb::cast_error&) {
      return base::invalid_argument("a generator gave something else than tensors");
    }
  }

 private:
  nb::object iterator_;
};

/// Looks for Ctrl-C while an iterator waits.
bool interrupted() {
  const GilAcquired gil;
  return PyErr_CheckSignals() != 0;
}

/// An iterator, which may wait for threads that need the GIL: it is held in none of its calls.
class Reading {
 public:
  Reading(const Definition& definition, Engine& engine, uint64_t seed, int threads,
          nb::object generators)
      : engine_(engine) {
    dataset::IteratorOptions options;
    options.seed = seed;
    options.threads = threads;
    options.host_functions = server_functions();
    options.interrupted = &interrupted;
    // Leaks one reference: the function lives as long as the interpreter.
    PyObject* const begin = generators.release().ptr();
    options.generators =
        [begin](int64_t number) -> Result<std::unique_ptr<dataset::ElementSource>> {
      const GilAcquired gil;
      try {
        return std::make_unique<PythonSource>(nb::borrow(begin)(number));
      } catch (nb::python_error& error) {
        return status_of(error);
      }
    };
    Result<std::unique_ptr<dataset::Iterator>> made = reading_without_gil(
        [&] { return dataset::Iterator::make(definition.dataset, std::move(options)); });
    iterator_ = std::shared_ptr<dataset::Iterator>(value_of(std::move(made)).release(), &end);
  }
  ~Reading() { close(); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  nb::object next() {
    const std::shared_ptr<dataset::Iterator> iterator = open();
    Element element;
    const Result<bool> some = without_gil([&] { return iterator->next(&element); });
    if (!value_of(some)) return nb::none();
    nb::list out;
    for (Component& component : element) {
      if (component.list == nullptr) {
        out.append(nb::cast(engine_.wrap(std::move(component.tensor))));
        continue;
      }
      nb::list list;
      for (const Tensor& tensor : *component.list) list.append(nb::cast(engine_.wrap(tensor)));
      out.append(list);
    }
    return out;
  }

  nb::bytes save() {
    const std::shared_ptr<dataset::Iterator> iterator = open();
    const std::string bytes = value_of(without_gil([&] { return iterator->save(); }));
    return nb::bytes(bytes.data(), bytes.size());
  }

  void restore(const nb::bytes& position) {
    const std::shared_ptr<dataset::Iterator> iterator = open();
    const std::string bytes(position.c_str(), position.size());
    check(without_gil([&] { return iterator->restore(bytes); }));
  }

  /// From now on, ops of this process's functions take its elements too, by the handle `name`.
  void share(const std::string& name) {
    const std::shared_ptr<dataset::Iterator> iterator = open();
    resources::Manager& manager = engine_.context().resources();
    auto made = std::make_shared<exec::IteratorResource>(
        dataset::make_feed(iterator, [&manager] { manager.changed(); }));
    check(manager.find_or_create<exec::IteratorResource>(name, [&] { return made; }).status());
  }

  void close() {
    if (iterator_ == nullptr) return;
    const std::shared_ptr<dataset::Iterator> last = std::move(iterator_);
    without_gil([&] { last->cancel(); });
  }

 private:
  /// Its threads may need the GIL to come to their end.
  static void end(dataset::Iterator* last) {
    if (PyGILState_Check() == 0) {
      delete last;
      return;
    }
    const GilReleased released;
    delete last;
  }
  /// Kept by calls, of several threads, while another one closes it.
  std::shared_ptr<dataset::Iterator> open() {
    if (iterator_ == nullptr) raise(base::cancelled("the iterator was closed"));
    return iterator_;
  }

  Engine& engine_;
  std::shared_ptr<dataset::Iterator> iterator_;
};

}  // namespace

void bind_dataset(nb::module_& m) {
  nb::class_<Definition>(m, "DatasetDefinition", "What a dataset is made of.")
      .def_static("make", &make, "op"_a, "inputs"_a, "parameters"_a, "attrs"_a,
                  "function"_a.none() = nb::none(), "inner"_a.none() = nb::none())
      .def_prop_ro("outputs", &outputs_of)
      .def_prop_ro("has_slots", [](const Definition& self) { return self.dataset->has_slots(); })
      .def_prop_ro("local_reason",
                   [](const Definition& self) { return self.dataset->local_reason(); })
      .def("with_values", &with_values, "values"_a)
      .def("cardinality", [](const Definition& self) { return self.dataset->cardinality(); })
      .def("to_text",
           [](const Definition& self) {
             return value_of(dataset::to_text(*self.dataset, registry()));
           })
      .def_static(
          "from_text",
          [](const std::string& text) {
            return Definition{value_of(dataset::from_text(text, registry()))};
          },
          "text"_a);
  nb::class_<Reading>(m, "DatasetReading", "Gives out the elements of a dataset.")
      .def(nb::init<const Definition&, Engine&, uint64_t, int, nb::object>(), "definition"_a,
           "engine"_a, "seed"_a, "threads"_a, "generators"_a)
      .def("next", &Reading::next)
      .def("save", &Reading::save)
      .def("restore", &Reading::restore, "position"_a)
      .def("share", &Reading::share, "name"_a)
      .def("close", &Reading::close);
  m.def(
      "read_datasets",
      [](Engine& engine, uint64_t seed) {
        data::take_environment();
        engine.context().set_datasets(dataset::make_datasets(seed));
      },
      "engine"_a, "seed"_a, "Lets functions of this engine read datasets by definition.");
}

}  // namespace sidereal::python
