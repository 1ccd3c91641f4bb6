#include "sidereal/exec/scatter_rows.h"

#include <cstring>

namespace sidereal::exec {

using tensor::DType;
using tensor::Tensor;

namespace {

template <class T>
void accumulate(const std::vector<int64_t>& rows, const T* values, bool subtract,
                const resources::Rows& table) {
  for (const int64_t row : rows) {
    T* to = reinterpret_cast<T*>(table.at + row * table.stride);
    for (int64_t k = 0; k < table.width; ++k) {
      to[k] = static_cast<T>(subtract ? to[k] - values[k] : to[k] + values[k]);
    }
    values += table.width;
  }
}

}  // namespace

Status rows_of(const ir::TensorSpec& table, const Tensor& indices, const Tensor& values,
               std::vector<int64_t>* out) {
  if (table.shape.rank() < 1) {
    return base::invalid_argument("a scalar {} has no rows", ir::to_string(table));
  }
  if (table.dtype == DType::kString) {
    return base::invalid_argument("rows of {} cannot be replaced", ir::to_string(table));
  }
  const int64_t rows = table.shape.dim(0);
  const int64_t dim = rows == 0 ? 0 : table.shape.num_elements() / rows;
  if (indices.dtype() == DType::kInt64) {
    const auto given = indices.data<const int64_t>();
    out->assign(given.begin(), given.end());
  } else if (indices.dtype() == DType::kInt32) {
    const auto given = indices.data<const int32_t>();
    out->assign(given.begin(), given.end());
  } else {
    return base::invalid_argument("the indices are {}; they must be int32 or int64",
                                  indices.to_string());
  }
  for (const int64_t index : *out) {
    if (index >= 0 && index < rows) continue;
    return base::invalid_argument("index {} is not a row of {}: indices are 0 to {}", index,
                                  ir::to_string(table), rows - 1);
  }
  if (values.dtype() != table.dtype ||
      values.num_elements() != static_cast<int64_t>(out->size()) * dim) {
    return base::invalid_argument("{} for {} rows of {}", values.to_string(), out->size(),
                                  ir::to_string(table));
  }
  return {};
}

Status scatter_rows(Scatter how, const std::vector<int64_t>& rows, const Tensor& values,
                    const resources::Rows& table) {
  if (how == Scatter::kUpdate) {
    const size_t bytes = static_cast<size_t>(table.width) * tensor::size_of(values.dtype());
    for (size_t i = 0; i < rows.size() && bytes > 0; ++i) {
      std::memcpy(table.at + rows[i] * table.stride, values.raw() + i * bytes, bytes);
    }
    return {};
  }
  const auto run = [&]<class T>() -> Status {
    accumulate<T>(rows, values.data<const T>().data(), how == Scatter::kSub, table);
    return {};
  };
  switch (values.dtype()) {
    case DType::kFloat32:
      return run.operator()<float>();
    case DType::kFloat64:
      return run.operator()<double>();
    case DType::kInt32:
      return run.operator()<int32_t>();
    case DType::kInt64:
      return run.operator()<int64_t>();
    default:
      return base::invalid_argument("rows of {} cannot be added to",
                                    tensor::name_of(values.dtype()));
  }
}

}  // namespace sidereal::exec
