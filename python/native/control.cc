#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/ir/text.h"
#include "symbol.h"

/// Functions as values of graphs, and the nodes that run them.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

ir::Output in_graph(const BuildingPtr& building, nb::handle value) {
  const Symbol* symbol = nullptr;
  if (!nb::try_cast<const Symbol*>(value, symbol) || symbol == nullptr ||
      symbol->building != building) {
    raise(base::invalid_argument("a value is not of the graph it is used in"));
  }
  return symbol->output;
}

/// Inputs are values of the graph, or (dtype, shape) for an input that nothing reads.
Body cut_body(const BuildingPtr& building, nb::handle inputs, nb::handle outputs) {
  ir::Builder& builder = open(building);
  ir::Cut cut;
  for (const nb::handle input : inputs) {
    if (nb::isinstance<nb::tuple>(input)) {
      const auto spec = nb::cast<nb::tuple>(input);
      cut.inputs.push_back(
          {ir::Output{}, {dtype_from_object(spec[0]), shape_from_object(spec[1])}});
    } else {
      const ir::Output value = in_graph(building, input);
      cut.inputs.push_back({value, builder.spec(value)});
    }
  }
  for (const nb::handle output : outputs) cut.outputs.push_back(in_graph(building, output));
  cut.targets = targets_of(building.get());
  return {value_of(ir::cut_function(builder.graph(), cut, builder.registry()))};
}

nb::list add_control(const BuildingPtr& building, const std::string& op, nb::handle inputs,
                     const nb::dict& bodies, nb::handle attrs,
                     const std::optional<std::string>& name, const std::string& site,
                     const std::vector<int32_t>& control_inputs) {
  ir::Builder& builder = open(building);
  const ir::OpSchema* schema = value_of(eager::find_op(builder.registry(), op));
  ir::AttrMap values = attrs_from_dict(*schema, attrs);
  for (const auto [attr, body] : bodies) {
    const auto role = nb::cast<std::string>(attr);
    values[role] = builder.graph().hold_function(name.value_or(op) + "/" + role,
                                                 nb::cast<const Body&>(body).function);
  }
  std::vector<ir::Output> from;
  for (const nb::handle input : inputs) from.push_back(in_graph(building, input));
  std::vector<ir::NodeId> after;
  for (const int32_t number : control_inputs) {
    if (number < 0 || static_cast<size_t>(number) >= builder.graph().size()) {
      raise(base::invalid_argument("{}: the graph has no node {}", op, number));
    }
    after.push_back(ir::NodeId{number});
  }
  const ir::NodeId id = builder.add_node(op, from, std::move(values), after, name.value_or(""));
  const Status status = builder.status();
  builder.clear_status();
  check(status);
  keep_order(building.get(), id);
  building->sites.resize(builder.graph().size());
  building->sites.back() = site;
  nb::list out;
  for (size_t i = 0; i < builder.graph().node(id).outputs.size(); ++i) {
    out.append(nb::cast(Symbol{building, {id, static_cast<int32_t>(i)}}));
  }
  return out;
}

}  // namespace

void bind_control(nb::module_& m) {
  nb::class_<Body>(m, "Body", "A function that a graph can hold.")
      .def("text", [](const Body& self) { return ir::to_text(*self.function); });
  m.def("cut_body", &cut_body, "graph"_a, "inputs"_a, "outputs"_a,
        "The function (inputs) -> outputs of values of a graph.");
  m.def("add_control", &add_control, "graph"_a, "op"_a, "inputs"_a, "bodies"_a, "attrs"_a,
        "name"_a.none(), "site"_a, "control_inputs"_a = std::vector<int32_t>(),
        "Adds a node that runs functions; its outputs.");
}

}  // namespace sidereal::python
