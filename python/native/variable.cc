#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/eager/engine.h"
#include "sidereal/eager/update.h"
#include "sidereal/exec/scatter_rows.h"
#include "sidereal/store/update_rule.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using eager::Engine;
using eager::Value;
using tensor::Tensor;

/// Slots of an optimizer, out of their cells while they are updated, so that the cells do not count
/// as holders of the memory.
class Taken {
 public:
  explicit Taken(const std::vector<Cell*>& cells) : cells_(cells) {
    for (Cell* cell : cells_) values.push_back(std::move(cell->value));
  }
  ~Taken() {
    for (size_t i = 0; i < cells_.size(); ++i) cells_[i]->value = std::move(values[i]);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  std::vector<Tensor> values;

 private:
  const std::vector<Cell*>& cells_;
};

exec::Scatter scatter_from_name(const std::string& name) {
  if (name == "update") return exec::Scatter::kUpdate;
  return name == "add" ? exec::Scatter::kAdd : exec::Scatter::kSub;
}

}  // namespace

void bind_variable(nb::module_& m) {
  nb::class_<Cell>(m, "Cell", "The memory of a variable.")
      .def(
          "__init__", [](Cell* self, const Value& value) { new (self) Cell{value.tensor}; },
          "value"_a)
      .def(
          "read", [](const Cell& self, Engine& engine) { return engine.wrap(self.value); },
          "engine"_a)
      .def(
          "assign", [](Cell& self, const Value& value) { self.value = value.tensor; }, "value"_a)
      .def(
          "scatter",
          [](Cell& self, const std::string& how, const Value& indices, const Value& values) {
            std::vector<int64_t> rows;
            const ir::TensorSpec table = {self.value.dtype(), self.value.shape()};
            check(exec::rows_of(table, indices.tensor, values.tensor, &rows));
            if (rows.empty()) return;
            eager::own(&self.value);
            check(exec::scatter_rows(scatter_from_name(how), rows, values.tensor,
                                     resources::Rows::of(self.value)));
          },
          "how"_a, "indices"_a, "values"_a)
      .def_prop_ro("dtype", [](const Cell& self) { return dtype_object(self.value.dtype()); })
      .def_prop_ro("shape", [](const Cell& self) { return shape_object(self.value.shape()); });
  nb::class_<store::UpdateRule>(m, "UpdateRule", "How gradients change a variable.")
      .def(
          "__init__",
          [](store::UpdateRule* self, const std::string& kind,
             const std::map<std::string, double>& parameters) {
            new (self) store::UpdateRule(value_of(
                store::rule_from_parameters(kind, {parameters.begin(), parameters.end()})));
          },
          "kind"_a, "parameters"_a)
      .def_prop_ro("num_slots", &store::UpdateRule::num_slots)
      .def("slot_name",
           [](const store::UpdateRule& self, int i) { return std::string(self.slot_name(i)); })
      .def("initial_slot", &store::UpdateRule::initial_slot)
      .def(
          "apply",
          [](const store::UpdateRule& self, int64_t step, Cell& weights,
             const std::vector<Cell*>& slots, const Value& grad) {
            Taken taken(slots);
            check(eager::update_dense(self.step(step), &weights.value, &taken.values, grad.tensor));
          },
          "step"_a, "weights"_a, "slots"_a, "grad"_a)
      .def(
          "apply_rows",
          [](const store::UpdateRule& self, int64_t step, Cell& weights,
             const std::vector<Cell*>& slots, const Value& indices, const Value& values) {
            Taken taken(slots);
            check(eager::update_rows(self.step(step), &weights.value, &taken.values, indices.tensor,
                                     values.tensor));
          },
          "step"_a, "weights"_a, "slots"_a, "indices"_a, "values"_a);
}

}  // namespace sidereal::python
