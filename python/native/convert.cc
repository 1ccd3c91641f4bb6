#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <vector>

#include "errors.h"
#include "sidereal/ir/function.h"
#include "symbol.h"

/// Dtypes, shapes and attributes between Python and C++.
namespace sidereal::python {

namespace nb = nanobind;

ir::Builder& open(const BuildingPtr& building) {
  if (!building->closed.empty()) raise(base::failed_precondition("{}", building->closed));
  return building->builder();
}

Symbol::Symbol(const BuildingPtr& building, ir::Output output)
    : building(building), output(output) {
  const nb::object graph = nb::find(*building);
  if (graph.is_valid()) this->building = nb::cast<BuildingPtr>(graph);
}

void keep_order(Building* building, ir::NodeId id) {
  if (!building->ordered) return;
  ir::Builder& builder = building->builder();
  building->order.add(&builder.graph(), id, builder.registry());
}

std::vector<ir::NodeId> targets_of(Building* building) {
  const ir::Graph& graph = building->builder().graph();
  std::vector<ir::NodeId> out;
  for (const ir::Node& node : graph.nodes()) {
    const bool effect =
        building->ordered && ir::has_effect(graph, node, building->builder().registry());
    if (effect || (node.outputs.empty() && node.op != "NoOp")) out.push_back(node.id);
  }
  return out;
}

nb::object dtype_object(tensor::DType dtype) {
  // Asked for once per dtype; the objects live as long as the interpreter.
  static std::array<PyObject*, 256> known = {};
  PyObject*& object = known[static_cast<uint8_t>(dtype)];
  if (object == nullptr) {
    const nb::object all = nb::module_::import_("sidereal.dtypes").attr("OF_NUMBER");
    object = nb::object(all[static_cast<int>(dtype)]).release().ptr();
  }
  return nb::borrow(object);
}

tensor::DType dtype_from_object(nb::handle object) {
  if (nb::isinstance<nb::str>(object)) {
    return value_of(tensor::dtype_from_name(nb::cast<std::string>(object)));
  }
  const nb::object name = nb::module_::import_("sidereal.dtypes").attr("name_of")(object);
  return value_of(tensor::dtype_from_name(nb::cast<std::string>(name)));
}

nb::object shape_object(const ir::Shape& shape) {
  if (!shape.has_rank()) return nb::none();
  // A class of tuples, asked for once; it lives as long as the interpreter.
  static PyObject* const type =
      nb::object(nb::module_::import_("sidereal.tensor_shape").attr("TensorShape")).release().ptr();
  const nb::object extents = nb::steal(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) {
    PyTuple_SET_ITEM(extents.ptr(), i, PyLong_FromLongLong(shape.dim(i)));
  }
  const nb::tuple arguments = nb::make_tuple(extents);
  PyObject* const made =
      PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type), arguments.ptr(), nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

ir::Shape shape_from_object(nb::handle object) {
  if (object.is_none()) return ir::Shape::unknown_rank();
  ir::Shape out;
  for (const nb::handle extent : object) {
    out.append(extent.is_none() ? -1 : nb::cast<int64_t>(extent));
  }
  SR_CHECK(out.has_rank());
  return out;
}

namespace {

int64_t to_int(nb::handle value) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return nb::cast<int64_t>(index);
}

template <class T, class F>
std::vector<T> to_list(nb::handle value, F convert) {
  std::vector<T> out;
  for (const nb::handle item : value) out.push_back(convert(item));
  return out;
}

/// The bytes of a str (as UTF-8) or bytes object.
std::string to_text(nb::handle value) {
  if (!PyBytes_Check(value.ptr())) return nb::cast<std::string>(value);
  return {PyBytes_AS_STRING(value.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))};
}

ir::AttrValue to_attr(std::string_view type, nb::handle value) {
  if (type == "int") return to_int(value);
  if (type == "bool") return nb::cast<bool>(nb::bool_(nb::borrow(value)));
  if (type == "float") return PyFloat_AsDouble(value.ptr());
  if (type == "string") return to_text(value);
  if (type == "ints") return to_list<int64_t>(value, to_int);
  if (type == "dtype") return dtype_from_object(value);
  if (type == "shape") return shape_from_object(value);
  if (type == "floats") {
    return to_list<double>(value, [](nb::handle x) { return PyFloat_AsDouble(x.ptr()); });
  }
  if (type == "strings") {
    return to_list<std::string>(value, to_text);
  }
  return nb::cast<const eager::Value&>(value).tensor;
}

}  // namespace

ir::AttrMap attrs_from_dict(const ir::OpSchema& schema, nb::handle attrs) {
  ir::AttrMap out;
  if (!attrs.is_valid() || attrs.is_none()) return out;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  if (!PyDict_Check(attrs.ptr())) {
    raise(base::invalid_argument("{}: the attributes are no dict", schema.name));
  }
  while (PyDict_Next(attrs.ptr(), &at, &key, &value) != 0) {
    if (value == Py_None) continue;
    const auto name = nb::cast<std::string>(nb::handle(key));
    std::string type;
    std::string known;
    for (const ir::AttrSpec& spec : schema.attrs) {
      if (spec.name == name) type = spec.type;
      known += (known.empty() ? "" : ", ") + spec.name;
    }
    if (type.empty()) {
      raise(base::invalid_argument("{}: no attribute '{}' is known; the op takes: {}", schema.name,
                                   name, known.empty() ? "none" : known));
    }
    try {
      ir::AttrValue converted = to_attr(type, value);
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      out.emplace(name, std::move(converted));
    } catch (const std::exception&) {
      PyErr_Clear();
      const std::string text = nb::cast<std::string>(nb::repr(nb::handle(value)));
      raise(base::invalid_argument("{}: attribute '{}' is {}; it must be of type {}", schema.name,
                                   name, text.substr(0, 80), type));
    }
  }
  return out;
}

}  // namespace sidereal::python
