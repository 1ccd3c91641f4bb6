#include "sidereal/eager/update.h"

#include <cstring>

#include "absl/container/flat_hash_map.h"

namespace sidereal::eager {
namespace {

using tensor::DType;
using tensor::Tensor;

/// Makes `value` the only holder of its memory.
void own(Tensor* value) {
  if (value->buffer().use_count() > 1) *value = value->clone();
}

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

/// The indices as int64, each a row of `table`; `values` has one row of the table's for each.
Result<std::vector<int64_t>> rows_of(const Tensor& table, const Tensor& indices,
                                     const Tensor& values) {
  if (table.shape().rank() < 1) {
    return base::invalid_argument("a scalar {} has no rows", table.to_string());
  }
  const int64_t rows = table.shape().dim(0);
  const int64_t dim = rows == 0 ? 0 : table.num_elements() / rows;
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(indices.num_elements()));
  if (indices.dtype() == DType::kInt64) {
    for (const int64_t index : indices.data<const int64_t>()) out.push_back(index);
  } else if (indices.dtype() == DType::kInt32) {
    for (const int32_t index : indices.data<const int32_t>()) out.push_back(index);
  } else {
    return base::invalid_argument("the indices are {}; they must be int32 or int64",
                                  indices.to_string());
  }
  for (const int64_t index : out) {
    if (index >= 0 && index < rows) continue;
    return base::out_of_range("index {} is not a row of {}: indices are 0 to {}", index,
                              table.to_string(), rows - 1);
  }
  if (values.dtype() != table.dtype() ||
      values.num_elements() != static_cast<int64_t>(out.size()) * dim) {
    return base::invalid_argument("{} for {} rows of {}", values.to_string(), out.size(),
                                  table.to_string());
  }
  return out;
}

template <class T>
void accumulate(const std::vector<int64_t>& rows, const T* values, int64_t dim, bool subtract,
                T* table) {
  for (const int64_t row : rows) {
    T* to = table + row * dim;
    for (int64_t k = 0; k < dim; ++k) {
      to[k] = static_cast<T>(subtract ? to[k] - values[k] : to[k] + values[k]);
    }
    values += dim;
  }
}

}  // namespace

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
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, rows_of(*weights, indices, values));
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

Status scatter_rows(Scatter how, Tensor* table, const Tensor& indices, const Tensor& values) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, rows_of(*table, indices, values));
  if (rows.empty()) return {};
  own(table);
  const int64_t dim = table->num_elements() / table->shape().dim(0);
  if (how == Scatter::kUpdate) {
    const size_t bytes = static_cast<size_t>(dim) * tensor::size_of(table->dtype());
    for (size_t i = 0; i < rows.size() && bytes > 0; ++i) {
      std::memcpy(table->raw() + static_cast<size_t>(rows[i]) * bytes, values.raw() + i * bytes,
                  bytes);
    }
    return {};
  }
  const auto run = [&]<class T>() -> Status {
    accumulate<T>(rows, values.data<const T>().data(), dim, how == Scatter::kSub,
                  table->data<T>().data());
    return {};
  };
  switch (table->dtype()) {
    case DType::kFloat32:
      return run.operator()<float>();
    case DType::kFloat64:
      return run.operator()<double>();
    case DType::kInt32:
      return run.operator()<int32_t>();
    case DType::kInt64:
      return run.operator()<int64_t>();
    default:
      return base::invalid_argument("rows of {} cannot be added to", table->to_string());
  }
}

}  // namespace sidereal::eager
