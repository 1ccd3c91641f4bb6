#include "sidereal/ir/saved_model.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "sidereal/ir/function.h"
#include "symbol.h"

/// Models as bytes. What objects and structures mean is known to sidereal/saved_model.py.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using eager::Engine;
using eager::Value;
using Indices = std::vector<uint32_t>;
using Symbols = std::vector<Symbol>;

ir::Output same_graph(const BuildingPtr& building, const Symbol& symbol) {
  if (symbol.building != building) {
    raise(base::invalid_argument("a function's inputs and outputs are of different graphs"));
  }
  return symbol.output;
}

size_t add_value(ir::SavedModel& model, const std::string& name, bool variable, bool trainable,
                 const Value& value) {
  model.values.push_back({name, variable, trainable, value.tensor});
  return model.values.size() - 1;
}

size_t add_function(ir::SavedModel& model, const BuildingPtr& graph, const std::string& name,
                    const std::string& structure, const Symbols& inputs, const Indices& captures,
                    const Symbols& outputs, const Indices& assigned) {
  ir::SavedFunction f;
  f.name = name;
  f.structure = structure;
  f.graph = graph->builder().graph();
  for (const Symbol& input : inputs) f.inputs.push_back(same_graph(graph, input));
  for (const Symbol& output : outputs) f.outputs.push_back(same_graph(graph, output));
  f.captures = captures;
  f.assigned = assigned;
  for (const ir::Node& node : f.graph.nodes()) {
    if (!ir::has_effect(f.graph, node, graph->builder().registry())) continue;
    raise(base::failed_precondition(
        "function '{}' cannot be saved: {} '{}' works on what lives in this process only (a queue, "
        "an accumulator, a mutable table, Python code); keep that outside of what is saved",
        name, node.op, node.name));
  }
  f.targets = targets_of(graph.get());
  model.functions.push_back(std::move(f));
  return model.functions.size() - 1;
}

using Restored =
    std::tuple<std::string, std::string, BuildingPtr, Symbols, Indices, Symbols, Indices>;

std::vector<Restored> functions_of(const ir::SavedModel& model, Engine& engine) {
  std::vector<Restored> out;
  for (const ir::SavedFunction& f : model.functions) {
    const BuildingPtr graph = std::make_shared<Trace>(engine, true, f.graph);
    graph->sites.resize(f.graph.size());
    Symbols inputs;
    Symbols outputs;
    for (const ir::Output& input : f.inputs) inputs.push_back({graph, input});
    for (const ir::Output& output : f.outputs) outputs.push_back({graph, output});
    out.emplace_back(f.name, f.structure, graph, std::move(inputs), f.captures, std::move(outputs),
                     f.assigned);
  }
  return out;
}

nb::list values_of(const ir::SavedModel& model, Engine& engine) {
  nb::list out;
  for (const ir::SavedValue& value : model.values) {
    out.append(
        nb::make_tuple(value.name, value.variable, value.trainable, engine.wrap(value.value)));
  }
  return out;
}

using Signature =
    std::tuple<std::string, uint32_t, std::vector<std::string>, std::vector<std::string>>;

std::vector<Signature> signatures_of(const ir::SavedModel& model) {
  std::vector<Signature> out;
  for (const ir::SavedSignature& s : model.signatures) {
    out.emplace_back(s.name, s.function, s.inputs, s.outputs);
  }
  return out;
}

}  // namespace

void bind_saved_model(nb::module_& m) {
  nb::class_<ir::SavedModel>(m, "SavedModel", "Functions with the values they use, as data.")
      .def(nb::init<>())
      .def_rw("objects", &ir::SavedModel::objects)
      .def_rw("producer", &ir::SavedModel::producer)
      .def("add_value", &add_value, "name"_a, "variable"_a, "trainable"_a, "value"_a)
      .def("add_function", &add_function, "graph"_a, "name"_a, "structure"_a, "inputs"_a,
           "captures"_a, "outputs"_a, "assigned"_a)
      .def(
          "add_signature",
          [](ir::SavedModel& model, const std::string& name, uint32_t function,
             const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
            model.signatures.push_back({name, function, inputs, outputs});
          },
          "name"_a, "function"_a, "inputs"_a, "outputs"_a)
      .def("functions", &functions_of, "engine"_a)
      .def("values", &values_of, "engine"_a)
      .def("signatures", &signatures_of)
      .def(
          "encode",
          [](const ir::SavedModel& model, Engine& engine) {
            const std::string bytes =
                value_of(ir::encode_saved_model(model, engine.context().registry()));
            return nb::bytes(bytes.data(), bytes.size());
          },
          "engine"_a)
      .def_static(
          "decode",
          [](const nb::bytes& bytes, Engine& engine) {
            const std::string_view data(bytes.c_str(), bytes.size());
            return value_of(without_gil(
                [&] { return ir::decode_saved_model(data, engine.context().registry()); }));
          },
          "data"_a, "engine"_a);
}

}  // namespace sidereal::python
