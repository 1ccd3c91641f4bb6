#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/eager/local_function.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ir/effect_order.h"
#include "sidereal/ir/function.h"

/// What the files of the extension share: graphs under construction and their values, tensors, and
/// the conversion of attributes.
namespace sidereal::python {

/// A graph under construction. Thread: under the GIL.
struct Building {
  virtual ~Building() = default;
  virtual ir::Builder& builder() = 0;

  /// Whether nodes with effects run in the order they were added, wanted or not: in functions.
  bool ordered = false;
  ir::EffectOrder order;

  std::string closed;              ///< Why nothing can be added any more; "" while it can.
  std::vector<std::string> sites;  ///< By node: the line of the user's program that made it.
};
using BuildingPtr = std::shared_ptr<Building>;

/// A graph that a function's Python code is traced into. Thread: under the GIL.
struct Trace final : Building {
  explicit Trace(eager::Engine& engine, bool in_order = false, ir::Graph begun = {})
      : graph(std::move(begun)), builder_(&graph, &engine.context().registry()) {
    ordered = in_order;
  }
  ir::Builder& builder() override { return builder_; }
  ir::Graph graph;

 private:
  ir::Builder builder_;
};

/// A function that a graph can hold.
struct Body {
  ir::FunctionPtr function;
};

/// An ir::Output with the graph it belongs to, as Python code combines values without naming it.
struct Symbol {
  Symbol(const BuildingPtr& building, ir::Output output);

  /// With a reference to the graph's Python object of its own, for Python's collector to count.
  BuildingPtr building;
  ir::Output output;
};

/// The memory of a variable. What was read from it never changes. Thread: under the GIL.
struct Cell {
  tensor::Tensor value;
};

/// The builder, or raises when the graph is closed.
ir::Builder& open(const BuildingPtr& building);

/// Puts node `id`, which was just added, behind those that it comes after in an ordered graph.
void keep_order(Building* building, ir::NodeId id);
/// The nodes that run for what they do: those without outputs, in an ordered graph also those with
/// effects.
std::vector<ir::NodeId> targets_of(Building* building);

/// NumPy's dtype, or sidereal.bfloat16, which NumPy has not.
nanobind::object dtype_object(tensor::DType dtype);
/// From a dtype of NumPy, sidereal.bfloat16, or a name.
tensor::DType dtype_from_object(nanobind::handle object);

/// Attributes of an op as its schema wants them; None values are left out. Raises naming the op.
ir::AttrMap attrs_from_dict(const ir::OpSchema& schema, nanobind::handle attrs);

/// A tuple of extents, -1 for unknown ones; None when the rank is not known.
nanobind::object shape_object(const ir::Shape& shape);
/// The reverse of shape_object(); extents may be None.
ir::Shape shape_from_object(nanobind::handle object);

}  // namespace sidereal::python
