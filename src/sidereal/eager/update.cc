#include "sidereal/eager/update.h"

#include "sidereal/exec/scatter_rows.h"
#include "sidereal/kernels/sparse.h"

namespace sidereal::eager {
namespace {

using tensor::DType;
using tensor::Tensor;

Status check_like(const Tensor& weights, const Tensor& other, const tensor::Shape& wanted,
                  std::string_view what) {
  if (other.dtype() == weights.dtype() && other.shape() == wanted) return {};
  return base::invalid_argument("{} is {}; the variable is {}", what, other.to_string(),
                                weights.to_string());
}

Status check_weights(const kernels::UpdateRule& rule, const Tensor& weights,
                     const std::vector<Tensor>& slots) {
  if (weights.dtype() != DType::kFloat32 && weights.dtype() != DType::kFloat64) {
    return base::invalid_argument("the update rules are float32 and float64; the variable is {}",
                                  weights.to_string());
  }
  if (slots.size() != static_cast<size_t>(rule.num_slots())) {
    return base::invalid_argument("{} slots for {}, which has {}", slots.size(), rule.rule().name,
                                  rule.num_slots());
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    SR_RETURN_IF_ERROR(check_like(weights, slots[i],
                                  rule.slot_shape(static_cast<int>(i), weights.shape()), "a slot"));
  }
  return {};
}

template <class T>
void dense(const kernels::RuleStep& step, Tensor* weights, std::vector<Tensor>* slots,
           const Tensor& grad) {
  T* w = weights->data<T>().data();
  kernels::DenseUpdate<T> update;
  update.w_in = w;
  update.w_out = w;
  for (size_t i = 0; i < slots->size(); ++i) update.slots[i] = (*slots)[i].data<T>().data();
  update.grad = grad.data<const T>().data();
  update.n = weights->num_elements();
  update.row = kernels::elements_of_row(weights->shape());
  if (update.n > 0) kernels::apply_dense(step, update);
}

template <class T>
void rows_alone(const kernels::RuleStep& step, Tensor* weights, std::vector<Tensor>* slots,
                const std::vector<int64_t>& rows, const Tensor& values) {
  const int64_t dim = kernels::elements_of_row(weights->shape());
  std::vector<int64_t> distinct(rows.size());
  std::vector<int32_t> inverse(rows.size());
  kernels::UniqueScratch scratch;
  distinct.resize(kernels::unique(rows, scratch, distinct.data(), inverse.data()));
  std::vector<T> sums((rows.size() - distinct.size()) * static_cast<size_t>(dim));
  std::vector<const T*> sum_of(distinct.size());
  const kernels::GradRows<T> source = {values.data<const T>().data(), dim,
                                       static_cast<int64_t>(rows.size())};
  kernels::sum_equal_rows<T>({&source, 1}, inverse, dim, sums.data(), sum_of);
  kernels::RuleArrays<T> table;
  table.weights = {weights->data<T>().data(), dim};
  for (size_t i = 0; i < slots->size(); ++i) {
    const bool is_of_row = step.rule->slot(static_cast<int>(i)).width == kernels::SlotWidth::kRow;
    table.slots[i] = {(*slots)[i].data<T>().data(), is_of_row ? 1 : dim};
  }
  if (dim > 0) kernels::apply_rows<T>(step, table, distinct, {.rows = sum_of.data()}, dim);
}

}  // namespace

void own(Tensor* value) {
  if (!value->buffer()->has_one_holder()) *value = value->clone();
}

Status update_dense(const kernels::RuleStep& step, Tensor* weights, std::vector<Tensor>* slots,
                    const Tensor& grad) {
  SR_RETURN_IF_ERROR(check_weights(*step.rule, *weights, *slots));
  SR_RETURN_IF_ERROR(check_like(*weights, grad, weights->shape(), "the gradient"));
  own(weights);
  for (Tensor& slot : *slots) own(&slot);
  if (weights->dtype() == DType::kFloat64) {
    dense<double>(step, weights, slots, grad);
  } else {
    dense<float>(step, weights, slots, grad);
  }
  return {};
}

Status update_rows(const kernels::RuleStep& step, Tensor* weights, std::vector<Tensor>* slots,
                   const Tensor& indices, const Tensor& values) {
  SR_RETURN_IF_ERROR(check_weights(*step.rule, *weights, *slots));
  std::vector<int64_t> rows;
  SR_RETURN_IF_ERROR(exec::rows_of({weights->dtype(), weights->shape()}, indices, values, &rows));
  if (rows.empty()) return {};
  own(weights);
  for (Tensor& slot : *slots) own(&slot);
  if (weights->dtype() == DType::kFloat64) {
    rows_alone<double>(step, weights, slots, rows, values);
  } else {
    rows_alone<float>(step, weights, slots, rows, values);
  }
  return {};
}

}  // namespace sidereal::eager
