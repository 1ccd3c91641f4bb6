#pragma once

#include <cstdint>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/resources/variable.h"
#include "sidereal/tensor/tensor.h"

/// Changes of rows of what somebody keeps.
namespace sidereal::exec {

/// How rows meet what is there.
enum class Scatter { kUpdate, kAdd, kSub };

/// Sets `rows` to `indices` (int32 or int64). kInvalidArgument for one that is no row of `table`,
/// and unless `values` has the table's dtype, not string, and one of its rows for each index.
Status rows_of(const ir::TensorSpec& table, const tensor::Tensor& indices,
               const tensor::Tensor& values, std::vector<int64_t>* rows);

/// Writes, adds or subtracts the rows of `values` at `rows`, which are those of rows_of(), one
/// after the other, in `table`. kUpdate: any dtype but string; the others: float32, float64, int32
/// and int64; else kInvalidArgument.
Status scatter_rows(Scatter how, const std::vector<int64_t>& rows, const tensor::Tensor& values,
                    const resources::Rows& table);

}  // namespace sidereal::exec
