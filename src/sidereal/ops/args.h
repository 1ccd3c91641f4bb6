#pragma once

#include <string_view>
#include <vector>

#include "sidereal/ops/internal.h"

/// Arguments that are integers: an attribute when they are known with the graph, a tensor input
/// when they are computed. For ops/*.cc only.
namespace sidereal::ops::internal {

/// What inference knows of such an argument.
struct IntsArg {
  bool known = false;           ///< `values` holds them.
  std::vector<int64_t> values;  ///< Empty unless known.
  int64_t count = -1;           ///< How many there are; -1: not known either.
};

/// The argument that is attribute `name`, or input `input` (int32 or int64, a vector or a scalar)
/// when the attribute is absent. A Const input's value counts as known. Errors when both or neither
/// are given.
Result<IntsArg> ints_arg(const InferContext& c, std::string_view name, size_t input);

/// The only value of such an argument: -1 with `known` false when it is not known.
struct IntArg {
  bool known = false;
  int64_t value = -1;
};
/// As ints_arg(), for an argument that is one integer (attribute of type int).
Result<IntArg> int_arg(const InferContext& c, std::string_view name, size_t input);

/// The shape such an argument describes: extents of -1 and less are errors.
Result<Shape> shape_of_arg(const IntsArg& arg);

/// Ok when input `i` is int32 or int64.
Status require_index(const InferContext& c, size_t i);
/// Ok when inputs `first` to the last have one dtype.
Status require_same_dtype(const InferContext& c, size_t first, size_t last);
/// Ok when input `i` is of a dtype that can be added.
Status require_numeric(const InferContext& c, size_t i);

/// `attr` of type dtype, int32 or int64; `fallback` when absent.
Result<DType> index_dtype(const InferContext& c, std::string_view attr, DType fallback);

/// Axis in [0, rank) of attribute `name`.
Result<int> axis_attr(const AttrMap& attrs, std::string_view name, int rank);

/// Node inputs from `first` on, appended to `to`: the tensor form of arguments handed on.
void append_inputs(const GradContext& c, size_t first, std::vector<Output>* to);

/// The gradient of output `i`, or zeros of its shape when none came.
Output grad_or_zeros(GradContext& c, size_t i);

/// An int64 vector constant.
Output ints_constant(ir::Builder& b, const std::vector<int64_t>& values);

void register_array_shape(OpRegistry* registry);
void register_array_slice(OpRegistry* registry);
void register_array_join(OpRegistry* registry);
void register_array_gather(OpRegistry* registry);
void register_array_segment(OpRegistry* registry);
void register_array_sort(OpRegistry* registry);
void register_spatial(OpRegistry* registry);
/// All of the above.
void register_array(OpRegistry* registry);

}  // namespace sidereal::ops::internal
