#pragma once

#include <string>
#include <vector>

#include "sidereal/ir/builder.h"
#include "sidereal/ir/schema.h"

/// What the op families share. For ops/*.cc only.
namespace sidereal::ops::internal {

using ir::AttrMap;
using ir::DType;
using ir::GradContext;
using ir::InferContext;
using ir::OpRegistry;
using ir::OpSchema;
using ir::Output;
using ir::Shape;
using ir::Tensor;
using ir::TensorSpec;

void register_state(OpRegistry* registry);
void register_arithmetic(OpRegistry* registry);
void register_shape_ops(OpRegistry* registry);
void register_nn(OpRegistry* registry);
void register_sharding(OpRegistry* registry);
void register_control(OpRegistry* registry);

/// True for float32 and float64, the dtypes ops calculate in.
bool is_real(DType dtype);

/// Ok when every input is float32, or every input is float64.
Status require_real(const InferContext& c);
/// Ok when input `i` has dtype `dtype`.
Status require_dtype(const InferContext& c, size_t i, DType dtype);
/// Ok when input `i` has rank `rank` or an unknown one.
Status require_rank(const InferContext& c, size_t i, int rank);

/// Appends one output.
Status put(const InferContext& c, DType dtype, Shape shape);
/// Appends an output like input 0, which must be real.
Status infer_like_first(const InferContext& c);

/// The extent both stand for, -1 when neither is known; an error when they differ.
Result<int64_t> merge_extent(int64_t a, int64_t b);
/// Extent by extent; an unknown rank takes the other's shape.
Result<Shape> merge_shapes(const Shape& a, const Shape& b);
/// All inputs from `first` to `last` inclusive stand for one shape: that shape.
Result<Shape> merge_inputs(const InferContext& c, size_t first, size_t last);
/// Shape of `a` and `b` together by NumPy's broadcasting rules.
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);

/// `axis` counted from the front, or an error when it is not in [-rank, rank).
Result<int> normalize_axis(int64_t axis, int rank);
/// Axes from the front, sorted; an error for one out of range or named twice.
Result<std::vector<int>> normalize_axes(const std::vector<int64_t>& axes, int rank);

/// `shape` with `extent` behind it; unknown rank stays unknown.
Shape with_last(const Shape& shape, int64_t extent);

/// A scalar constant of `dtype` (float32 or float64).
Output scalar(ir::Builder& b, DType dtype, double value);
/// `g` summed down to the shape of `like`, which was broadcast to g's shape. Nothing to do when
/// both shapes are known to be equal.
Output sum_to(ir::Builder& b, Output g, Output like);

/// A gradient rule by which nothing flows to any input.
Status no_flow(GradContext& c);

}  // namespace sidereal::ops::internal
