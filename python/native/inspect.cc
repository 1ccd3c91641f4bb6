#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <string>
#include <type_traits>

#include "bindings.h"
#include "errors.h"
#include "sidereal/train/trainer.h"
#include "symbol.h"

/// Graphs and bodies as Python sees them, node by node.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

nb::object attr_object(const ir::AttrValue& value) {
  return std::visit(
      [](const auto& v) -> nb::object {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, tensor::DType>) {
          return dtype_object(v);
        } else if constexpr (std::is_same_v<T, ir::Shape>) {
          return shape_object(v);
        } else if constexpr (std::is_same_v<T, ir::Tensor>) {
          return nb::cast(eager::Value{v, 0});
        } else if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
          return nb::cast(v);
        } else {
          nb::list out;
          for (const auto& item : v) out.append(nb::cast(item));
          return out;
        }
      },
      value);
}

/// (name, op, [(node, index)], {attribute: value}, [(dtype, shape)]) of every node.
nb::list nodes_of(const ir::Graph& graph) {
  nb::list out;
  for (const ir::Node& node : graph.nodes()) {
    nb::list inputs;
    for (const ir::Output& input : node.inputs) {
      inputs.append(nb::make_tuple(input.node.value, input.index));
    }
    nb::dict attrs;
    for (const auto& [name, value] : node.attrs) attrs[name.c_str()] = attr_object(value);
    nb::list outputs;
    for (const ir::TensorSpec& spec : node.outputs) {
      outputs.append(nb::make_tuple(dtype_object(spec.dtype), shape_object(spec.shape)));
    }
    out.append(nb::make_tuple(node.name, node.op, inputs, attrs, outputs));
  }
  return out;
}

Body body_of(const ir::Graph& graph, const std::string& name) {
  const ir::FunctionPtr function = graph.find_function(name);
  if (function == nullptr) raise(base::not_found("the graph holds no function '{}'", name));
  return {function};
}

}  // namespace

void bind_inspect(nb::module_& m) {
  m.def(
      "attrs_of",
      [](const BuildingPtr& graph, int32_t number) {
        const ir::Graph& all = graph->builder().graph();
        if (number < 0 || static_cast<size_t>(number) >= all.size()) {
          raise(base::invalid_argument("the graph has no node {}", number));
        }
        nb::dict attrs;
        for (const auto& [name, value] : all.node(ir::NodeId{number}).attrs) {
          attrs[name.c_str()] = attr_object(value);
        }
        return attrs;
      },
      "graph"_a, "node"_a, "{attribute: value} of a node.");
  m.def(
      "nodes_of", [](const BuildingPtr& graph) { return nodes_of(graph->builder().graph()); },
      "graph"_a, "(name, op, [(node, index)], {attribute: value}, [(dtype, shape)]) of each node.");
  m.def(
      "body_of",
      [](const BuildingPtr& graph, const std::string& name) {
        return body_of(graph->builder().graph(), name);
      },
      "graph"_a, "name"_a, "The function that a graph holds under a name.");
  m.def(
      "nodes_of", [](const Body& body) { return nodes_of(body.function->body()); }, "body"_a);
  m.def(
      "body_of",
      [](const Body& body, const std::string& name) {
        return body_of(body.function->body(), name);
      },
      "body"_a, "name"_a);
  m.def(
      "nodes_of", [](const train::CompiledModel& model) { return nodes_of(model.graph); },
      "model"_a);
  m.def(
      "body_of",
      [](const train::CompiledModel& model, const std::string& name) {
        return body_of(model.graph, name);
      },
      "model"_a, "name"_a);
  m.def(
      "outputs_of",
      [](const Body& body) {
        nb::list out;
        for (const ir::Output& output : body.function->outputs()) {
          out.append(nb::make_tuple(output.node.value, output.index));
        }
        return out;
      },
      "body"_a, "(node, index) of each value that a function returns.");
}

}  // namespace sidereal::python
