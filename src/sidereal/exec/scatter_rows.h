#pragma once

#include <cstdint>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

/// Changes of rows of a tensor that somebody keeps. Thread: as for the tensors.
namespace sidereal::exec {

/// How rows meet what is there.
enum class Scatter { kUpdate, kAdd, kSub };

/// `indices` (int32 or int64) as int64. kOutOfRange names one that is no row of `table`;
/// kInvalidArgument unless `values` has the table's dtype and one of its rows for each index.
Result<std::vector<int64_t>> rows_of(const tensor::Tensor& table, const tensor::Tensor& indices,
                                     const tensor::Tensor& values);

/// Writes, adds or subtracts rows of `values` at `indices`, one after the other, in the memory of
/// `table` where nobody else holds that, else in a copy. kUpdate: any dtype but string; the others:
/// float32, float64, int32 and int64. Errors are those of rows_of().
Status scatter_rows(Scatter how, tensor::Tensor* table, const tensor::Tensor& indices,
                    const tensor::Tensor& values);

}  // namespace sidereal::exec
