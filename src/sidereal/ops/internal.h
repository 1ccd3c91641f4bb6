#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/ir/builder.h"
#include "sidereal/ir/schema.h"
#include "sidereal/kernels/optimizer_rules.h"

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
void register_functions_of_one(OpRegistry* registry);
void register_logic(OpRegistry* registry);
void register_reductions(OpRegistry* registry);
void register_softmax(OpRegistry* registry);
void register_random(OpRegistry* registry);
void register_checks(OpRegistry* registry);
void register_strings(OpRegistry* registry);
void register_parsing(OpRegistry* registry);
void register_shape_ops(OpRegistry* registry);
void register_nn(OpRegistry* registry);
void register_sharding(OpRegistry* registry);
void register_fused(OpRegistry* registry);
void register_resources(OpRegistry* registry);
void register_checkpoints(OpRegistry* registry);
void register_control(OpRegistry* registry);
void register_custom_gradient(OpRegistry* registry);
void register_updates(OpRegistry* registry);
void register_lookups(OpRegistry* registry);
void register_passing(OpRegistry* registry);
void register_variables(OpRegistry* registry);
void register_embeddings(OpRegistry* registry);
void register_initial_value(OpRegistry* registry);

/// Attributes that say by which rule of an optimizer an op updates: `kind`, and the parameters of
/// all rules but the learning rate, which is an input.
std::vector<ir::AttrSpec> update_rule_attrs();
/// Input `step` is the number of a step, and the next a learning rate.
Status require_step(const InferContext& c, size_t step);
/// Ok when the inputs from `first` on are the slots of `rule` and, for a dense update by a rule
/// that uses them, maybe norms.
Status check_slots(const InferContext& c, const kernels::UpdateRule& rule, size_t first,
                   bool may_have_norms = false);

/// Some dtypes, under a name for error messages.
struct DTypeSet {
  std::string_view name;
  uint32_t bits = 0;

  [[nodiscard]] constexpr bool has(DType dtype) const {
    return (bits >> static_cast<int>(dtype) & 1U) != 0;
  }
};

namespace sets {
template <class... DTypes>
constexpr uint32_t bits_of(DTypes... dtypes) {
  return ((1U << static_cast<int>(dtypes)) | ...);
}
inline constexpr DTypeSet kFloats = {
    "a float", bits_of(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64)};
inline constexpr DTypeSet kSignedIntegers = {
    "a signed integer", bits_of(DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64)};
inline constexpr DTypeSet kIntegers = {
    "an integer",
    kSignedIntegers.bits | bits_of(DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64)};
inline constexpr DTypeSet kNumbers = {"a number", kFloats.bits | kIntegers.bits};
inline constexpr DTypeSet kSigned = {"a signed number", kFloats.bits | kSignedIntegers.bits};
inline constexpr DTypeSet kBools = {"bool", bits_of(DType::kBool)};
inline constexpr DTypeSet kPlain = {"a number or bool", kNumbers.bits | kBools.bits};
inline constexpr DTypeSet kStrings = {"string", bits_of(DType::kString)};
inline constexpr DTypeSet kAll = {"anything", kPlain.bits | kStrings.bits};
inline constexpr DTypeSet kIndices = {"int32 or int64", bits_of(DType::kInt32, DType::kInt64)};
inline constexpr DTypeSet kReals = {"float32 or float64",
                                    bits_of(DType::kFloat32, DType::kFloat64)};
}  // namespace sets

/// True for the floats, 16-bit ones included: what gradients flow through.
inline bool is_real(DType dtype) { return sets::kFloats.has(dtype); }

/// Ok when the inputs from `first` to `last` (negative: counted from the end) have one dtype, and
/// `set` has it. The error says which input is of what dtype and what to cast to.
Status require(const InferContext& c, const DTypeSet& set, int first = 0, int last = -1);
/// require() of floats for all inputs.
Status require_real(const InferContext& c);
/// Ok when input `i` has dtype `dtype`.
Status require_dtype(const InferContext& c, size_t i, DType dtype);
/// Ok when there is no input `i`, or it is an int64 scalar: what tells runs of a random op apart.
Status require_stream(const InferContext& c, size_t i);
/// Ok when input `i` has rank `rank` or an unknown one.
Status require_rank(const InferContext& c, size_t i, int rank);

/// Appends one output.
Status put(const InferContext& c, DType dtype, Shape shape);
/// What the attribute `out_type` says the output is: the dtype of input 0, which it is without the
/// attribute, or float32 where the inputs are bfloat16.
Result<DType> out_type(const InferContext& c);
/// Doc of that attribute.
inline constexpr const char* kWideTypeDoc =
    "float32: do not round the result of bfloat16 inputs to their dtype.";
/// Appends an output like input 0, a float.
Status infer_like_first(const InferContext& c);
/// Inference of element-wise ops: the inputs of one dtype of `set` broadcast together; the output
/// has their dtype, or `dtype` when that is valid.
std::function<Status(const InferContext&)> broadcasting(const DTypeSet& set,
                                                        DType dtype = DType::kInvalid);
/// As broadcasting(), for inputs that must all have one shape.
std::function<Status(const InferContext&)> same_shapes(const DTypeSet& set,
                                                       DType dtype = DType::kInvalid);

/// The extent both stand for, -1 when neither is known; an error when they differ.
Result<int64_t> merge_extent(int64_t a, int64_t b);
/// Elements of one row of `table`, -1 when that is not known; a scalar has none.
Result<int64_t> row_width(const Shape& table);
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

/// A scalar constant of `dtype`.
Output scalar(ir::Builder& b, DType dtype, double value);
/// `g` summed down to the shape of `like`, which was broadcast to g's shape. Nothing to do when
/// both shapes are known to be equal.
Output sum_to(ir::Builder& b, Output g, Output like);

/// A gradient rule by which nothing flows to any input.
Status no_flow(GradContext& c);

}  // namespace sidereal::ops::internal
