#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dlpack.h"
#include "errors.h"
#include "gil.h"
#include "sidereal/eager/engine.h"
#include "sidereal/exec/trace.h"
#include "sidereal/parse/crc32c.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/tensor/strings.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using eager::Engine;
using eager::Value;
using tensor::DType;
using tensor::Tensor;

/// A NumPy array of Python bytes: copies, as NumPy has no strings of any bytes.
nb::object numpy_strings(const Tensor& value) {
  nb::list items;
  for (const std::string_view item : value.data<const std::string_view>()) {
    items.append(nb::bytes(item.data(), item.size()));
  }
  const nb::object array =
      nb::module_::import_("numpy").attr("empty")(items.size(), "dtype"_a = nb::str("object"));
  array[nb::slice(nb::none(), nb::none(), nb::none())] = items;
  return array.attr("reshape")(shape_object(value.shape()));
}

/// A NumPy array over the tensor's memory, which the array's base (`self`) keeps.
nb::object numpy_view(nb::handle self) {
  const Tensor& value = nb::cast<const Value&>(self).tensor;
  if (value.dtype() == DType::kString) return numpy_strings(value);
  nb::dlpack::dtype dtype{};
  dtype.lanes = 1;
  dtype.bits = static_cast<uint8_t>(8 * tensor::size_of(value.dtype()));
  const std::string name(tensor::name_of(value.dtype()));
  if (name == "bool") {
    dtype.code = static_cast<uint8_t>(nb::dlpack::dtype_code::Bool);
  } else if (name.rfind("uint", 0) == 0) {
    dtype.code = static_cast<uint8_t>(nb::dlpack::dtype_code::UInt);
  } else if (name.rfind("int", 0) == 0) {
    dtype.code = static_cast<uint8_t>(nb::dlpack::dtype_code::Int);
  } else if (name.rfind("float", 0) == 0) {
    dtype.code = static_cast<uint8_t>(nb::dlpack::dtype_code::Float);
  } else {
    raise(base::invalid_argument(
        "NumPy has no {}; cast the tensor first: sidereal.cast(x, sidereal.float32).numpy()",
        name));
  }
  std::vector<size_t> shape(value.shape().dims().begin(), value.shape().dims().end());
  return nb::cast(
      nb::ndarray<nb::numpy, nb::ro>(value.raw(), shape.size(), shape.data(), self, nullptr, dtype),
      nb::rv_policy::reference);
}

/// A copy of a row-major array's bytes.
Value from_array(Engine& engine, nb::handle dtype,
                 const nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>& array) {
  tensor::Shape shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.append(static_cast<int64_t>(array.shape(i)));
  Tensor out = Tensor::empty(dtype_from_object(dtype), shape);
  SR_CHECK(out.nbytes() == array.nbytes());
  if (out.nbytes() > 0) std::memcpy(out.raw(), array.data(), out.nbytes());
  return engine.wrap(std::move(out));
}

/// A tensor of the items, each bytes or str (as UTF-8).
Value from_strings(Engine& engine, nb::handle items, nb::handle shape) {
  tensor::StringsBuilder strings;
  for (const nb::handle item : items) {
    Py_ssize_t size = 0;
    const char* data = nullptr;
    if (PyBytes_Check(item.ptr())) {
      data = PyBytes_AS_STRING(item.ptr());
      size = PyBytes_GET_SIZE(item.ptr());
    } else if (PyUnicode_Check(item.ptr())) {
      data = PyUnicode_AsUTF8AndSize(item.ptr(), &size);
      if (data == nullptr) throw nb::python_error();
    } else {
      raise(base::invalid_argument("{} among strings; give only str or bytes",
                                   nb::type_name(item.type()).c_str()));
    }
    strings.add({data, static_cast<size_t>(size)});
  }
  const ir::Shape extents = shape_from_object(shape);
  if (!extents.is_fully_defined() || extents.num_elements() != strings.size()) {
    raise(base::invalid_argument("{} strings for shape {}", strings.size(), extents.to_string()));
  }
  return engine.wrap(std::move(strings).finish(extents));
}

template <class T>
using Line = nb::ndarray<const T, nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A tensor of strings that lie one behind another in `text`: where each begins, and where the last
/// one ends.
Value from_texts(Engine& engine, const Line<int64_t>& offsets, const Line<uint8_t>& text) {
  const std::span<const int64_t> ends(offsets.data(), offsets.size());
  const bool is_right = !ends.empty() && ends.front() >= 0 &&
                        ends.back() <= static_cast<int64_t>(text.size()) &&
                        std::is_sorted(ends.begin(), ends.end());
  if (!is_right) {
    raise(base::invalid_argument("{} offsets do not ascend within {} bytes of text", ends.size(),
                                 text.size()));
  }
  tensor::StringsBuilder strings;
  strings.reserve(ends.size() - 1, static_cast<size_t>(ends.back() - ends.front()));
  const auto* const bytes = reinterpret_cast<const char*>(text.data());
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    strings.add({bytes + ends[i], static_cast<size_t>(ends[i + 1] - ends[i])});
  }
  const tensor::Shape shape{strings.size()};
  return engine.wrap(std::move(strings).finish(shape));
}

template <class T>
Tensor scalar_of(DType dtype, T value) {
  Tensor out = Tensor::empty(dtype, {});
  switch (dtype) {
    case DType::kFloat32:
      out.data<float>()[0] = static_cast<float>(value);
      break;
    case DType::kFloat64:
      out.data<double>()[0] = static_cast<double>(value);
      break;
    case DType::kInt32:
      out.data<int32_t>()[0] = static_cast<int32_t>(value);
      break;
    case DType::kInt64:
      out.data<int64_t>()[0] = static_cast<int64_t>(value);
      break;
    case DType::kBool:
      out.data<bool>()[0] = value != T(0);
      break;
    default:
      return {};
  }
  return out;
}

/// A tensor of a Python number, or None when it takes more than that: another dtype, or a number
/// that the dtype does not hold.
nb::object number_of(Engine& engine, nb::handle number, DType to) {
  const bool is_float = to == DType::kFloat32 || to == DType::kFloat64;
  Tensor out;
  if (PyBool_Check(number.ptr())) {
    out = scalar_of(to, number.ptr() == Py_True ? 1 : 0);
  } else if (PyLong_Check(number.ptr())) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    const bool fits =
        overflow == 0 && (is_float || to == DType::kInt64 ||
                          (to == DType::kInt32 && value == static_cast<int32_t>(value)));
    if (fits) out = scalar_of(to, static_cast<int64_t>(value));
  } else if (PyFloat_Check(number.ptr()) && is_float) {
    out = scalar_of(to, PyFloat_AS_DOUBLE(number.ptr()));
  }
  return out.defined() ? nb::cast(engine.wrap(std::move(out))) : nb::none();
}

/// Dtypes and extents of tensors as bytes; None when one of `values` is no Tensor.
nb::object signature_of(nb::handle values) {
  std::string key;
  for (const nb::handle item : values) {
    const Value* value = nullptr;
    if (!nb::try_cast<const Value*>(item, value) || value == nullptr) return nb::none();
    const auto dims = value->tensor.shape().dims();
    key.push_back(static_cast<char>(value->tensor.dtype()));
    key.push_back(static_cast<char>(dims.size()));
    key.append(reinterpret_cast<const char*>(dims.data()), dims.size_bytes());
  }
  return nb::bytes(key.data(), key.size());
}

/// Calls `function(number, [Tensor...])`, a sequence of Tensors. An exception stays set, and ends
/// the call of the step's owner as itself. Thread: under the GIL.
class PythonFunctions final : public ports::HostFunctions {
 public:
  PythonFunctions(Engine* engine, nb::object function)
      : engine_(*engine), function_(std::move(function)) {}

  Result<std::vector<Tensor>> call(int64_t number, std::span<const Tensor> inputs) override {
    try {
      nb::list given;
      for (const Tensor& input : inputs) given.append(nb::cast(engine_.wrap(input)));
      std::vector<Tensor> out;
      for (const nb::handle item : function_(number, given)) {
        out.push_back(nb::cast<const Value&>(item).tensor);
      }
      return out;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const nb::cast_error&) {
      PyErr_SetString(PyExc_TypeError,
                      "a function of the program gave something else than tensors");
    }
    return base::make_status(StatusCode::kUnknown, "a function of the program raised an exception");
  }

 private:
  Engine& engine_;
  nb::object function_;
};

/// Waits for another thread to change a resource: it gets the GIL for that.
Result<bool> wait_unlocked(Engine& engine, uint64_t seen, std::chrono::nanoseconds limit) {
  constexpr std::chrono::milliseconds kLook{50};
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    const bool changed = without_gil([&] {
      return engine.context().resources().wait(seen,
                                               std::min<std::chrono::nanoseconds>(left, kLook));
    });
    if (engine.interrupted()) return base::cancelled("interrupted while waiting");
    if (changed) return true;
  }
}

nb::object results(std::vector<Value> values) {
  if (values.size() == 1) return nb::cast(std::move(values[0]));
  if (values.empty()) return nb::none();
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i),
                     nb::cast(std::move(values[i])).release().ptr());
  }
  return nb::steal(tuple);
}

nb::object execute(Engine& engine, const std::string& op, nb::handle inputs, nb::handle attrs,
                   const std::optional<std::string>& name) {
  const ir::OpSchema* schema = value_of(eager::find_op(engine.context().registry(), op));
  std::vector<const Value*> values;
  for (const nb::handle input : inputs) {
    const Value* value = nullptr;
    if (!nb::try_cast<const Value*>(input, value) || value == nullptr) {
      raise(base::invalid_argument("{}: input {} is no Tensor", op, values.size()));
    }
    values.push_back(value);
  }
  std::vector<Value> outputs;
  check(engine.run(*schema, values, attrs_from_dict(*schema, attrs),
                   {.name = name.has_value() ? std::string_view(*name) : std::string_view()},
                   &outputs));
  return results(std::move(outputs));
}

void bind_tensor(nb::module_& m) {
  nb::class_<Value>(m, "Tensor", nb::dynamic_attr(),
                    "A value: an array of one dtype that never changes.")
      .def_prop_ro("dtype", [](const Value& x) { return dtype_object(x.tensor.dtype()); })
      .def_prop_ro("shape", [](const Value& x) { return shape_object(x.tensor.shape()); })
      .def_prop_ro("ndim", [](const Value& x) { return x.tensor.shape().rank(); })
      .def_prop_ro("size", [](const Value& x) { return x.tensor.num_elements(); })
      .def_prop_ro("nbytes", [](const Value& x) { return x.tensor.nbytes(); })
      .def_prop_ro("id", [](const Value& x) { return x.id; })
      .def("numpy", &numpy_view)
      .def("__dlpack_device__", [](const Value&) { return nb::make_tuple(1, 0); })
      .def(
          "__dlpack__",
          [](const Value& x, const nb::object&, const nb::object& max_version, const nb::object&,
             const nb::object&) {
            const bool versioned =
                !max_version.is_none() &&
                nb::cast<int64_t>(nb::object(nb::int_(nb::object(max_version[0])))) >= 1;
            return to_dlpack(x.tensor, versioned);
          },
          nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
          "dl_device"_a = nb::none(), "copy"_a = nb::none());
}

/// Ops, and values to and from Python.
void bind_values(nb::class_<Engine>& c) {
  c.def("__init__",
        [](Engine* engine) {
          new (engine) Engine();
          engine->context().set_disk(sys::posix::create_disk());
        })
      .def("execute", &execute, "op"_a, "inputs"_a, "attrs"_a = nb::none(), "name"_a = nb::none())
      .def("from_array", &from_array, "dtype"_a, "array"_a)
      .def("from_strings", &from_strings, "items"_a, "shape"_a)
      .def("from_texts", &from_texts, "offsets"_a, "text"_a)
      .def(
          "from_number",
          [](Engine& engine, nb::handle number, const std::string& dtype) {
            return number_of(engine, number, value_of(tensor::dtype_from_name(dtype)));
          },
          "number"_a, "dtype"_a)
      .def(
          "number_like",
          [](Engine& engine, nb::handle number, const Value& like) {
            return number_of(engine, number, like.tensor.dtype());
          },
          "number"_a, "like"_a)
      .def(
          "signature", [](const Engine&, nb::handle values) { return signature_of(values); },
          "values"_a)
      .def(
          "from_dlpack",
          [](Engine& engine, nb::handle object) { return engine.wrap(from_dlpack(object)); },
          "object"_a);
}

/// What a program sets once, and figures.
void bind_settings(nb::class_<Engine>& c) {
  c.def(
       "set_intra_op_threads",
       [](Engine& engine, int threads) { engine.context().set_intra_op_threads(threads); },
       "threads"_a)
      .def_prop_ro("intra_op_threads",
                   [](Engine& engine) { return engine.context().intra_op_threads(); })
      .def_prop_ro_static("INTRA_OP_THREADS_MAX",
                          [](nb::handle) { return exec::Workers::kThreadsMax; })
      .def_prop_ro("programs", [](Engine& engine) { return engine.context().cached(); })
      .def(
          "set_site",
          [](Engine& engine, const nb::callable& site) {
            // Leaks one reference: the engine lives as long as the interpreter.
            PyObject* const held = nb::object(site).release().ptr();
            engine.set_site([held] {
              const nb::object line = nb::steal(PyObject_CallNoArgs(held));
              if (!line.is_valid()) {
                PyErr_Clear();
                return std::string();
              }
              return nb::cast<std::string>(line);
            });
          },
          "site"_a)
      .def("watch_signals",
           [](Engine& engine) { engine.set_interrupt([] { return PyErr_CheckSignals() != 0; }); });
}

/// What steps share by name, functions of Python, traces.
void bind_resources(nb::class_<Engine>& c) {
  c.def(
       "set_host_functions",
       [](Engine& engine, nb::object function) {
         engine.context().set_host_functions(
             std::make_unique<PythonFunctions>(&engine, std::move(function)));
       },
       "function"_a)
      .def("wait_unlocked",
           [](Engine& engine) {
             engine.context().set_waiter([&engine](uint64_t seen, std::chrono::nanoseconds limit) {
               return wait_unlocked(engine, seen, limit);
             });
           })
      .def(
          "set_operation_timeout",
          [](Engine& engine, double seconds) {
            engine.context().set_operation_timeout(
                std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::duration<double>(seconds)));
          },
          "seconds"_a)
      .def_prop_ro(
          "operation_timeout",
          [](Engine& engine) {
            return std::chrono::duration<double>(engine.context().operation_timeout()).count();
          })
      .def(
          "erase_resource",
          [](Engine& engine, const std::string& name) {
            return engine.context().resources().erase(name);
          },
          "name"_a)
      .def(
          "erase_container",
          [](Engine& engine, const std::string& name) {
            engine.context().resources().erase_container(name);
          },
          "name"_a)
      .def("clear_resources", [](Engine& engine) { engine.context().resources().clear(); })
      .def("resource_names", [](Engine& engine) { return engine.context().resources().names(); })
      .def(
          "start_trace", [](Engine& engine, size_t bytes) { engine.context().start_trace(bytes); },
          "bytes"_a)
      .def("stop_trace", [](Engine& engine) -> nb::object {
        const auto trace = engine.context().stop_trace();
        if (trace == nullptr) return nb::none();
        return nb::make_tuple(exec::to_chrome(trace->events(), {.process_name = "sidereal"}),
                              trace->size(), trace->dropped());
      });
}

/// What is known of ops.
void bind_schemas(nb::class_<Engine>& c) {
  c.def("ops", [](Engine& engine) { return engine.context().registry().names(); })
      .def(
          "schema",
          [](Engine& engine, const std::string& op) {
            const ir::OpSchema* schema = value_of(eager::find_op(engine.context().registry(), op));
            nb::list attrs;
            for (const ir::AttrSpec& a : schema->attrs) {
              attrs.append(nb::make_tuple(a.name, a.type, a.required, a.doc));
            }
            nb::dict out;
            out["name"] = schema->name;
            out["doc"] = schema->doc;
            out["min_inputs"] = schema->min_inputs;
            out["max_inputs"] = schema->max_inputs;
            out["attrs"] = attrs;
            out["differentiable"] = schema->differentiable && schema->gradient != nullptr;
            out["stateful"] = schema->stateful;
            return out;
          },
          "op"_a);
}

}  // namespace

void bind_eager(nb::module_& m) {
  bind_tensor(m);
  m.def(
      "crc32c",
      [](const nb::bytes& content) {
        return parse::crc32c({content.c_str(), content.size()});
      },
      "content"_a);
  nb::class_<Engine> engine(m, "Engine", "Runs ops at once.");
  bind_values(engine);
  bind_settings(engine);
  bind_resources(engine);
  bind_schemas(engine);
}

}  // namespace sidereal::python
