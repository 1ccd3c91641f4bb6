#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/kernels/optimizer.h"
#include "sidereal/tensor/tensor.h"

/// Changes of values that a program keeps: in place where nobody else holds the memory, else in a
/// copy, so that what was read before never changes.
namespace sidereal::eager {

/// Makes `value` the only holder of its memory: a copy, when somebody else holds it.
void own(tensor::Tensor* value);

/// One step of an update rule. `weights`, `grad` and `slots` (as many as the rule has, of the
/// shapes that it says) are all float32 or all float64. kInvalidArgument otherwise.
Status update_dense(const kernels::RuleStep& step, tensor::Tensor* weights,
                    std::vector<tensor::Tensor>* slots, const tensor::Tensor& grad);

/// One step of an update rule for the rows `indices` (int32 or int64; of dimension 0; in any order)
/// of `weights`. `values` has one row per index; rows of equal indices are summed first, in
/// their order. kInvalidArgument names an index that is no row.
Status update_rows(const kernels::RuleStep& step, tensor::Tensor* weights,
                   std::vector<tensor::Tensor>* slots, const tensor::Tensor& indices,
                   const tensor::Tensor& values);

}  // namespace sidereal::eager
