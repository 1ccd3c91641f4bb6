#include "table.h"

#include <algorithm>
#include <array>

#include "sidereal/kernels/optimizer.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/resources/row_layout.h"
#include "sidereal/tensor/tensor.h"
#include "work.h"

namespace sidereal::bench {

using resources::Rows;
using resources::Variable;
using tensor::DType;
using tensor::Tensor;

namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

Result<std::shared_ptr<Variable>> make_variable(const char* name, float first) {
  SR_ASSIGN_OR_RETURN(std::shared_ptr<Variable> made, Variable::make({.name = name}));
  Tensor value = Tensor::empty(DType::kFloat32, {kTableRows, kDim});
  std::ranges::fill(value.data<float>(), first);
  SR_RETURN_IF_ERROR(made->assign(value));
  return made;
}

kernels::RowArray<float> array_of(const Rows& rows) {
  return {reinterpret_cast<float*>(rows.at), rows.stride / kFloat};
}

Status check_rows(std::span<const int64_t> rows) {
  const int64_t bad = kernels::find_out_of_range(rows, kTableRows);
  if (bad < 0) return {};
  return base::out_of_range("row {} of a table of {}", rows[static_cast<size_t>(bad)], kTableRows);
}

}  // namespace

Result<std::unique_ptr<LocalTable>> LocalTable::create() {
  std::unique_ptr<LocalTable> out(new LocalTable());
  out->rule_ = kernels::UpdateRule::of("adagrad", {{"learning_rate", kLearningRate}});
  SR_ASSIGN_OR_RETURN(out->weights_, make_variable("table", kFirstWeight));
  SR_ASSIGN_OR_RETURN(out->slot_,
                      make_variable("table/slot", static_cast<float>(out->rule_.initial_slot(0))));
  const std::array<Variable*, 2> both = {out->weights_.get(), out->slot_.get()};
  SR_RETURN_IF_ERROR(Variable::change(both, [](std::span<Variable::Value* const> values) -> Status {
    std::optional<resources::RowLayout> layout = resources::RowLayout::plan(values);
    if (!layout) return base::resource_exhausted("there is no memory for the table");
    layout->move(0, layout->rows());
    layout->finish();
    return {};
  }));
  return out;
}

Status LocalTable::gather(std::span<const int64_t> rows, float* out) const {
  SR_RETURN_IF_ERROR(check_rows(rows));
  return weights_->look([&](const Variable::Value& value) -> Status {
    const kernels::RowArray<float> from = array_of(value.rows());
    kernels::gather_rows<float>(from.data, from.stride, rows, kDim, out);
    return {};
  });
}

Status LocalTable::apply(std::span<const int64_t> rows, const float* gradients) {
  SR_RETURN_IF_ERROR(check_rows(rows));
  const std::array<Variable*, 2> both = {weights_.get(), slot_.get()};
  return Variable::change(both, [&](std::span<Variable::Value* const> values) -> Status {
    const kernels::RuleStep step = {.rule = &rule_, .learning_rate = kLearningRate};
    kernels::RuleArrays<float> table;
    table.weights = array_of(values[0]->own());
    table.slots[0] = array_of(values[1]->own());
    kernels::apply_rows<float>(step, table, rows, {.data = gradients}, kDim);
    return {};
  });
}

}  // namespace sidereal::bench
