#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/autodiff/autodiff.h"
#include "sidereal/ir/colocation.h"
#include "sidereal/ir/redirect.h"
#include "sidereal/ir/text.h"
#include "sidereal/passes/feeds.h"
#include "sidereal/passes/pipeline.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using eager::Engine;
using eager::LocalFunction;
using eager::Value;

/// Raises what went wrong; the graph can be added to all the same.
void check_builder(ir::Builder& builder) {
  const Status status = builder.status();
  builder.clear_status();
  check(status);
}

ir::Output in_graph(const BuildingPtr& building, nb::handle value, std::string_view op) {
  const Symbol* symbol = nullptr;
  if (!nb::try_cast<const Symbol*>(value, symbol) || symbol == nullptr) {
    raise(base::invalid_argument("{}: an input is not a value of a graph", op));
  }
  if (symbol->building != building) {
    raise(base::invalid_argument("{}: values of two models or graphs cannot be combined", op));
  }
  return symbol->output;
}

std::vector<ir::Output> all_in_graph(const BuildingPtr& building, nb::handle values,
                                     std::string_view op) {
  std::vector<ir::Output> out;
  for (const nb::handle value : values) out.push_back(in_graph(building, value, op));
  return out;
}

/// Nodes by number, as Output.node and len(graph) - 1 give them.
std::vector<ir::NodeId> nodes_in_graph(const ir::Graph& graph, const std::vector<int32_t>& numbers,
                                       std::string_view what) {
  std::vector<ir::NodeId> out;
  for (const int32_t number : numbers) {
    if (number < 0 || static_cast<size_t>(number) >= graph.size()) {
      raise(base::invalid_argument("{}: the graph has no node {}", what, number));
    }
    out.push_back(ir::NodeId{number});
  }
  return out;
}

nb::object add(const BuildingPtr& self, const std::string& op, nb::handle inputs, nb::handle attrs,
               const std::optional<std::string>& name, const std::string& site,
               const std::vector<int32_t>& control_inputs) {
  ir::Builder& builder = open(self);
  const ir::OpSchema* schema = value_of(eager::find_op(builder.registry(), op));
  ir::AttrMap values = attrs_from_dict(*schema, attrs);
  if (dynamic_cast<Trace*>(self.get()) != nullptr) {
    check(eager::check_runs_alone(*schema));
  }
  const std::vector<ir::NodeId> after = nodes_in_graph(builder.graph(), control_inputs, op);
  const std::vector<ir::Output> from = all_in_graph(self, inputs, op);
  const ir::NodeId id = builder.add_node(op, from, std::move(values), after, name.value_or(""));
  check_builder(builder);
  keep_order(self.get(), id);
  self->sites.resize(builder.graph().size());
  self->sites.back() = site;
  const size_t count = builder.graph().node(id).outputs.size();
  if (count == 0) return nb::none();
  if (count == 1) return nb::cast(Symbol{self, {id, 0}});
  nb::list out;
  for (size_t i = 0; i < count; ++i) {
    out.append(nb::cast(Symbol{self, {id, static_cast<int32_t>(i)}}));
  }
  return nb::tuple(out);
}

nb::object placeholder(const BuildingPtr& self, const std::string& name, nb::handle dtype,
                       nb::handle shape, const std::string& site) {
  ir::Builder& builder = open(self);
  const ir::Output made =
      builder.add("Placeholder", {},
                  {{"dtype", dtype_from_object(dtype)}, {"shape", shape_from_object(shape)}}, name);
  check_builder(builder);
  self->sites.resize(builder.graph().size());
  self->sites.back() = site;
  return nb::cast(Symbol{self, made});
}

std::vector<std::optional<Symbol>> gradients(const BuildingPtr& self, nb::handle ys,
                                             nb::handle grad_ys, nb::handle wrt) {
  ir::Builder& builder = open(self);
  const std::vector<ir::Output> from = all_in_graph(self, ys, "gradients");
  std::vector<ir::Output> seeds;
  for (const nb::handle seed : grad_ys) {
    seeds.push_back(seed.is_none() ? ir::Output{} : in_graph(self, seed, "gradients"));
  }
  const auto made = autodiff::gradients(builder, from, seeds, all_in_graph(self, wrt, "gradients"));
  builder.clear_status();
  check(made.status());
  self->sites.resize(builder.graph().size());
  std::vector<std::optional<Symbol>> out;
  for (const ir::Output& grad : *made) {
    out.push_back(grad.valid() ? std::optional(Symbol{self, grad}) : std::nullopt);
  }
  return out;
}

/// A function of a copy of the graph, cut at inputs that are no placeholders. What runs for what it
/// does: `targets`, or targets_of().
std::shared_ptr<LocalFunction> function(const BuildingPtr& self, const std::string& name,
                                        nb::handle inputs, nb::handle outputs,
                                        const std::string& compute_dtype,
                                        const std::optional<std::vector<int32_t>>& targets) {
  const ir::Graph& graph = self->builder().graph();
  eager::FunctionDef def{
      .name = name,
      .inputs = all_in_graph(self, inputs, name),
      .outputs = all_in_graph(self, outputs, name),
      .targets = targets ? nodes_in_graph(graph, *targets, name) : targets_of(self.get()),
      .compute_dtype = value_of(passes::parse_compute_dtype(compute_dtype))};
  const bool is_whole = std::all_of(def.inputs.begin(), def.inputs.end(), [&](ir::Output input) {
    return graph.node(input.node).op == "Placeholder";
  });
  if (is_whole) {
    def.graph = graph;
  } else {
    auto fed = value_of(passes::cut_at_feeds(graph, def.inputs, def.outputs, def.targets));
    def.graph = std::move(fed.graph);
    def.inputs = std::move(fed.feeds);
    def.outputs = std::move(fed.fetches);
    def.targets = std::move(fed.targets);
  }
  return std::make_shared<LocalFunction>(std::move(def));
}

std::string site_of(const BuildingPtr& self, const std::string& node) {
  const ir::Node* found = self->builder().graph().find(node);
  if (found == nullptr || static_cast<size_t>(found->id.value) >= self->sites.size()) return "";
  return self->sites[found->id.value];
}

const ir::Node& node_of(const Symbol& x) { return open(x.building).graph().node(x.output.node); }

/// Graphs refer to Python objects, and these to values of graphs: Python's collector must see it.
int traverse_output(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const BuildingPtr& building = nb::inst_ptr<Symbol>(self)->building;
  // A reference that is shared with another Symbol is not this one's to count.
  if (building.use_count() != 1) return 0;
  const nb::object graph = nb::find(*building);
  Py_VISIT(graph.ptr());
  return 0;
}

PyType_Slot output_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_output)},
                              {0, nullptr}};

void bind_output(nb::module_& m) {
  nb::class_<Symbol> c(m, "Output", nb::type_slots(output_slots),
                       "A value of a graph under construction.");
  c.def_prop_ro(
       "dtype", [](const Symbol& x) { return dtype_object(open(x.building).spec(x.output).dtype); },
       "NumPy dtype of the elements.")
      .def_prop_ro(
          "shape",
          [](const Symbol& x) { return shape_object(open(x.building).spec(x.output).shape); },
          "Extents; -1 for one that is not known before it runs, such as the batch. None when not "
          "even their number is known.")
      .def_prop_ro("graph", [](const Symbol& x) { return x.building; })
      .def_prop_ro(
          "op_type", [](const Symbol& x) { return node_of(x).op; }, "Name of the op that makes it.")
      .def_prop_ro(
          "device", [](const Symbol& x) { return node_of(x).device; },
          "The device that was asked for; \"\" for any.")
      .def_prop_ro("inputs",
                   [](const Symbol& x) {
                     std::vector<Symbol> out;
                     for (const ir::Output& input : node_of(x).inputs) {
                       out.push_back({x.building, input});
                     }
                     return out;
                   })
      .def("int_attr",
           [](const Symbol& x, const std::string& name, int64_t fallback) {
             return ir::attr_or<int64_t>(node_of(x).attrs, name, fallback);
           })
      .def_prop_ro("index", [](const Symbol& x) { return x.output.index; })
      .def_prop_ro("node", [](const Symbol& x) { return x.output.node.value; })
      .def_prop_ro("node_name", [](const Symbol& x) { return node_of(x).name; })
      .def_prop_ro(
          "name",
          [](const Symbol& x) { return node_of(x).name + ":" + std::to_string(x.output.index); })
      .def("__repr__", [](const Symbol& x) {
        if (!x.building->closed.empty()) return std::string("Output(of a compiled model)");
        return "Output(" + ir::to_string(open(x.building).spec(x.output)) + ")";
      });
}

/// A function whose inputs may be the memory of variables, and whose outputs `outputs` go into
/// those at `places` among the inputs. No tape listens. Thread: holds the GIL; another call may
/// begin while one waits.
class Updater {
 public:
  Updater(std::shared_ptr<LocalFunction> function, std::vector<size_t> places,
          std::vector<size_t> outputs)
      : function_(std::move(function)), places_(std::move(places)), outputs_(std::move(outputs)) {
    if (places_.size() != outputs_.size()) {
      check(
          base::invalid_argument("{} outputs go into {} places", outputs_.size(), places_.size()));
    }
  }

  nb::list operator()(Engine& engine, nb::handle inputs) {
    Scratch s = std::exchange(scratch_, {});
    s.variables.resize(nb::len(inputs));
    s.cells.assign(s.variables.size(), nullptr);
    for (const nb::handle input : inputs) {
      const size_t i = s.values.size();
      if (nb::try_cast<Cell*>(input, s.cells[i]) && s.cells[i] != nullptr) {
        s.values.push_back(&s.variables[i]);
      } else {
        s.values.push_back(nb::cast<const Value*>(input));
      }
    }
    for (size_t k = 0; k < places_.size(); ++k) {
      if (places_[k] >= s.cells.size() || s.cells[places_[k]] == nullptr) {
        check(base::invalid_argument("input {} of {} is to be a variable's cell", places_[k],
                                     s.cells.size()));
      }
      s.kept.push_back({places_[k], outputs_[k], &s.cells[places_[k]]->value});
      s.cells[places_[k]] = nullptr;
    }
    for (size_t i = 0; i < s.cells.size(); ++i) {
      if (s.cells[i] != nullptr) s.variables[i].tensor = s.cells[i]->value;
    }
    check(function_->update(engine, s.values, s.kept, &s.results));
    nb::list out;
    for (Value& value : s.results) out.append(nb::cast(std::move(value)));
    s.clear();
    scratch_ = std::move(s);
    return out;
  }

 private:
  /// Kept from call to call for its memory only.
  struct Scratch {
    std::vector<Value> variables;
    std::vector<const Value*> values;
    std::vector<Cell*> cells;
    std::vector<LocalFunction::Kept> kept;
    std::vector<Value> results;

    void clear() {
      variables.clear();
      values.clear();
      cells.clear();
      kept.clear();
      results.clear();
    }
  };

  std::shared_ptr<LocalFunction> function_;
  std::vector<size_t> places_;
  std::vector<size_t> outputs_;
  Scratch scratch_;
};

/// The node of that number, or raises.
ir::Node& node_at(const BuildingPtr& self, int32_t number) {
  ir::Graph& graph = self->builder().graph();
  return graph.mutable_node(nodes_in_graph(graph, {number}, "graph")[0]);
}

std::vector<Symbol> outputs_at(const BuildingPtr& self, int32_t number) {
  std::vector<Symbol> out;
  const ir::Node& node = node_at(self, number);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    out.push_back({self, {node.id, static_cast<int32_t>(i)}});
  }
  return out;
}

std::shared_ptr<Trace> redirected(Engine& engine, const BuildingPtr& graph,
                                  const std::vector<int32_t>& nodes,
                                  const std::map<int32_t, int32_t>& handles,
                                  const std::string& device) {
  ir::Redirect redirect{.device = device};
  for (const int32_t node : nodes) redirect.nodes.emplace_back(node);
  for (const auto& [from, to] : handles) redirect.handles[ir::NodeId(from)] = ir::NodeId(to);
  const ir::Graph& whole = graph->builder().graph();
  return std::make_shared<Trace>(engine, false, value_of(ir::redirected(whole, redirect)));
}

/// Nodes by their numbers.
void bind_nodes(nb::class_<Building>& c) {
  c.def(
       "node_name",
       [](const BuildingPtr& self, int32_t number) { return node_at(self, number).name; }, "node"_a)
      .def(
          "node_op",
          [](const BuildingPtr& self, int32_t number) { return node_at(self, number).op; },
          "node"_a)
      .def(
          "node_device",
          [](const BuildingPtr& self, int32_t number) { return node_at(self, number).device; },
          "node"_a)
      .def(
          "set_device",
          [](const BuildingPtr& self, int32_t number, const std::string& device) {
            node_at(self, number).device = device;
          },
          "node"_a, "device"_a, "Says where a node is to run.")
      .def(
          "set_colocation",
          [](const BuildingPtr& self, int32_t number, const std::vector<std::string>& names) {
            std::vector<std::string> groups;
            for (const std::string& name : names) {
              groups.push_back(std::string(ir::kColocatedWith) + name);
            }
            node_at(self, number).attrs[std::string(ir::kColocation)] = std::move(groups);
          },
          "node"_a, "names"_a, "Says with which nodes, by name, a node is to run.")
      .def(
          "node_inputs",
          [](const BuildingPtr& self, int32_t number) {
            std::vector<Symbol> out;
            for (const ir::Output& input : node_at(self, number).inputs) {
              out.push_back({self, input});
            }
            return out;
          },
          "node"_a)
      .def(
          "node_controls",
          [](const BuildingPtr& self, int32_t number) {
            std::vector<int32_t> out;
            for (const ir::NodeId id : node_at(self, number).control_inputs) {
              out.push_back(id.value);
            }
            return out;
          },
          "node"_a)
      .def("node_outputs", &outputs_at, "node"_a)
      .def(
          "find_node",
          [](const BuildingPtr& self, const std::string& name) {
            const ir::Node* node = self->builder().graph().find(name);
            return node == nullptr ? -1 : node->id.value;
          },
          "name"_a, "Number of the node of that name; -1 when there is none.");
}

void bind_function(nb::module_& m) {
  nb::class_<Updater>(m, "Updater", "A function that writes to variables.")
      .def("__call__", &Updater::operator(), "engine"_a, "inputs"_a);
  nb::class_<LocalFunction>(m, "LocalFunction", "A graph that runs as one program.")
      .def(
          "call",
          [](const std::shared_ptr<LocalFunction>& self, Engine& engine, nb::handle inputs) {
            std::vector<const Value*> values;
            for (const nb::handle input : inputs) {
              values.push_back(nb::cast<const Value*>(input));
            }
            auto outputs = value_of(self->call(engine, values));
            nb::list out;
            for (Value& value : outputs) out.append(nb::cast(std::move(value)));
            return out;
          },
          "engine"_a, "inputs"_a)
      .def(
          "call_within",
          [](const std::shared_ptr<LocalFunction>& self, Engine& engine, nb::handle inputs,
             double seconds) {
            std::vector<const Value*> values;
            for (const nb::handle input : inputs) values.push_back(nb::cast<const Value*>(input));
            const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
                std::chrono::duration<double>(seconds));
            auto outputs = value_of(self->call_within(engine, values, limit));
            nb::list out;
            for (Value& value : outputs) out.append(nb::cast(std::move(value)));
            return out;
          },
          "engine"_a, "inputs"_a, "seconds"_a)
      .def_prop_ro(
          "compute_dtype",
          [](const LocalFunction& self) {
            return std::string(tensor::name_of(self.compute_dtype()));
          },
          "What products are computed in here.")
      .def(
          "updater",
          [](const std::shared_ptr<LocalFunction>& self, std::vector<size_t> places,
             std::vector<size_t> outputs) {
            return std::make_unique<Updater>(self, std::move(places), std::move(outputs));
          },
          "places"_a, "outputs"_a)
      .def("graph_text", [](const LocalFunction& self) { return ir::to_text(self.def().graph); })
      .def("program_text",
           [](LocalFunction& self, Engine& engine) { return value_of(self.program_text(engine)); });
}

}  // namespace

void bind_trace(nb::module_& m) {
  nb::class_<Building> c(m, "GraphBase", nb::dynamic_attr(), "A graph under construction.");
  bind_nodes(c);
  c.def("add", &add, "op"_a, "inputs"_a, "attrs"_a = nb::none(), "name"_a = nb::none(),
        "site"_a = "", "control_inputs"_a = std::vector<int32_t>())
      .def("placeholder", &placeholder, "name"_a, "dtype"_a, "shape"_a.none(), "site"_a = "")
      .def("gradients", &gradients, "ys"_a, "grad_ys"_a, "wrt"_a)
      .def("function", &function, "name"_a, "inputs"_a, "outputs"_a, "compute_dtype"_a = "float32",
           "targets"_a = nb::none())
      .def("site_of", &site_of, "node"_a)
      .def("text", [](const BuildingPtr& self) { return ir::to_text(self->builder().graph()); })
      .def(
          "find",
          [](const BuildingPtr& self, const std::string& name) {
            return Symbol{self, value_of(open(self).graph().find_output(name))};
          },
          "name"_a)
      .def("close", [](const BuildingPtr& self, const std::string& why) { self->closed = why; })
      .def("__len__", [](const BuildingPtr& self) { return self->builder().graph().size(); });
  nb::class_<Trace, Building>(m, "Graph", nb::dynamic_attr(),
                              "A graph that functions are traced into.")
      .def(nb::init<Engine&, bool>(), nb::keep_alive<1, 2>(), "engine"_a, "ordered"_a = false)
      .def_static("redirected", &redirected, nb::keep_alive<0, 1>(), "engine"_a, "graph"_a,
                  "nodes"_a, "handles"_a, "device"_a,
                  "A copy of a graph in which these nodes use other variables, by the nodes of "
                  "their handles, and run on the device where they were beside one of these.");
  bind_output(m);
  bind_function(m);
}

}  // namespace sidereal::python
