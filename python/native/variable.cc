#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/eager/engine.h"
#include "sidereal/eager/update.h"
#include "sidereal/exec/scatter_rows.h"
#include "sidereal/kernels/optimizer_rules.h"
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

/// Slot `i`, which Python asks for.
const kernels::RuleSlot& slot(const kernels::UpdateRule& rule, int i) {
  if (i < 0 || i >= rule.num_slots()) {
    raise(base::out_of_range("optimizer {} has {} slots; there is no slot {}", rule.rule().name,
                             rule.num_slots(), i));
  }
  return rule.slot(i);
}

void bind_rules(nb::module_& m) {
  using kernels::Rule;
  nb::class_<Rule>(m, "OptimizerRow", "A row of the table of optimizers.")
      .def_prop_ro("name", [](const Rule& r) { return std::string(r.name); })
      .def_prop_ro("class_name", [](const Rule& r) { return std::string(r.class_name); })
      .def_prop_ro("doc", [](const Rule& r) { return std::string(r.doc); })
      .def_prop_ro("formula", [](const Rule& r) { return std::string(r.formula); })
      .def_ro("uses_step", &Rule::uses_step)
      .def_ro("uses_norms", &Rule::uses_norms)
      .def_prop_ro(
          "parameters",
          [](const Rule& r) {
            std::vector<std::tuple<std::string, double, bool, std::string, std::string>> out;
            for (const kernels::RuleParameter& p : r.parameters) {
              out.emplace_back(p.name, p.standard, p.range == kernels::Range::kFlag,
                               kernels::to_string(p.range), p.doc);
            }
            return out;
          },
          "(name, standard value, whether it is a bool, range, doc) of each.")
      .def_prop_ro(
          "slots",
          [](const Rule& r) {
            std::vector<std::tuple<std::string, std::string, std::string, bool>> out;
            for (const kernels::RuleSlot& s : r.slots) {
              out.emplace_back(s.name, s.starts_at, s.when, s.width == kernels::SlotWidth::kRow);
            }
            return out;
          },
          "(name, parameter it starts at, parameter it is there for, whether it has one number for "
          "a row) of each.");
  m.def(
      "optimizer_rows",
      [] {
        const auto rows = kernels::all_rules();
        return std::vector<const Rule*>(rows.begin(), rows.end());
      },
      nb::rv_policy::reference);
}

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
  bind_rules(m);
  using kernels::UpdateRule;
  nb::class_<UpdateRule>(m, "UpdateRule", "An optimizer with its parameters.")
      .def(
          "__init__",
          [](UpdateRule* self, const std::string& kind,
             const std::map<std::string, double>& parameters) {
            new (self) UpdateRule(
                value_of(UpdateRule::make(kind, {parameters.begin(), parameters.end()})));
          },
          "kind"_a, "parameters"_a)
      .def_prop_ro("num_slots", &UpdateRule::num_slots)
      .def(
          "slot_name",
          [](const UpdateRule& self, int i) { return std::string(slot(self, i).name); }, "i"_a)
      .def(
          "slot_is_of_row",
          [](const UpdateRule& self, int i) {
            return slot(self, i).width == kernels::SlotWidth::kRow;
          },
          "i"_a)
      .def(
          "initial_slot",
          [](const UpdateRule& self, int i) {
            slot(self, i);
            return self.initial_slot(i);
          },
          "i"_a)
      .def(
          "apply",
          [](const UpdateRule& self, double step, double learning_rate, Cell& weights,
             const std::vector<Cell*>& slots, const Value& grad) {
            Taken taken(slots);
            check(eager::update_dense({&self, step, learning_rate}, &weights.value, &taken.values,
                                      grad.tensor));
          },
          "step"_a, "learning_rate"_a, "weights"_a, "slots"_a, "grad"_a)
      .def(
          "apply_rows",
          [](const UpdateRule& self, double step, double learning_rate, Cell& weights,
             const std::vector<Cell*>& slots, const Value& indices, const Value& values) {
            Taken taken(slots);
            check(eager::update_rows({&self, step, learning_rate}, &weights.value, &taken.values,
                                     indices.tensor, values.tensor));
          },
          "step"_a, "learning_rate"_a, "weights"_a, "slots"_a, "indices"_a, "values"_a);
}

}  // namespace sidereal::python
