#include "sidereal/eager/update.h"

#include "absl/container/flat_hash_map.h"
#include "sidereal/exec/scatter_rows.h"

namespace sidereal::eager {
namespace {

using tensor::DType;
using tensor::Tensor;

Status check_like(const Tensor& weights, const Tensor& other, std::string_view what) {
  if (other.dtype() == DType::kFloat32 && other.shape() == weights.shape()) return {};
  return base::invalid_argument("{} is {}; the variable is {}", what, other.to_string(),
                                weights.to_string());
}

Status check_weights(const kernels::RuleStep& rule, const Tensor& weights,
                     const std::vector<Tensor>& slots) {
  if (weights.dtype() != DType::kFloat32) {
    return base::invalid_argument("the update rules are float32; the variable is {}",
                                  weights.to_string());
  }
  if (slots.size() != static_cast<size_t>(kernels::num_slots(rule.kind))) {
    return base::invalid_argument("{} slots for a rule with {}", slots.size(),
                                  kernels::num_slots(rule.kind));
  }
  for (const Tensor& slot : slots) SR_RETURN_IF_ERROR(check_like(weights, slot, "a slot"));
  return {};
}

}  // namespace

void own(Tensor* value) {
  if (!value->buffer()->has_one_holder()) *value = value->clone();
}

Status update_dense(const kernels::RuleStep& rule, Tensor* weights, std::vector<Tensor>* slots,
                    const Tensor& grad) {
  SR_RETURN_IF_ERROR(check_weights(rule, *weights, *slots));
  SR_RETURN_IF_ERROR(check_like(*weights, grad, "the gradient"));
  own(weights);
  for (Tensor& slot : *slots) own(&slot);
  float* w = weights->data<float>().data();
  const auto slot = [slots](size_t i) {
    return i < slots->size() ? (*slots)[i].data<float>().data() : nullptr;
  };
  kernels::apply_dense(rule, {.w_in = w,
                              .w_out = w,
                              .slot1 = slot(0),
                              .slot2 = slot(1),
                              .grad = grad.data<const float>().data(),
                              .n = weights->num_elements()});
  return {};
}

Status update_rows(const kernels::RuleStep& rule, Tensor* weights, std::vector<Tensor>* slots,
                   const Tensor& indices, const Tensor& values) {
  SR_RETURN_IF_ERROR(check_weights(rule, *weights, *slots));
  std::vector<int64_t> rows;
  SR_RETURN_IF_ERROR(exec::rows_of({weights->dtype(), weights->shape()}, indices, values, &rows));
  if (rows.empty()) return {};
  const int64_t dim = weights->num_elements() / weights->shape().dim(0);
  const auto width = static_cast<size_t>(dim);
  absl::flat_hash_map<int64_t, size_t> place;
  std::vector<int64_t> distinct;
  std::vector<float> sums;
  const float* from = values.data<const float>().data();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [it, added] = place.try_emplace(rows[i], distinct.size());
    const float* row = from + i * width;
    if (added) {
      distinct.push_back(rows[i]);
      sums.insert(sums.end(), row, row + width);
      continue;
    }
    float* sum = sums.data() + it->second * width;
    for (size_t k = 0; k < width; ++k) sum[k] += row[k];
  }
  own(weights);
  for (Tensor& slot : *slots) own(&slot);
  for (size_t i = 0; i < distinct.size(); ++i) {
    const int64_t offset = distinct[i] * dim;
    float* w = weights->data<float>().data() + offset;
    const auto slot = [slots, offset](size_t k) {
      return k < slots->size() ? (*slots)[k].data<float>().data() + offset : nullptr;
    };
    kernels::apply_dense(rule, {.w_in = w,
                                .w_out = w,
                                .slot1 = slot(0),
                                .slot2 = slot(1),
                                .grad = sums.data() + i * width,
                                .n = dim});
  }
  return {};
}

}  // namespace sidereal::eager
