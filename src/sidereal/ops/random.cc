#include "sidereal/ops/internal.h"

/// Random tensors. The value of an element depends on the two seeds, on the step (or on the stream
/// that is given), and on the element's index only.
namespace sidereal::ops::internal {
namespace {

/// The shape of the attribute `shape`, or what is known of it from input 0 when there is none.
Result<Shape> wanted_shape(const InferContext& c) {
  const auto* extents = ir::find_attr<std::vector<int64_t>>(c.attrs, "shape");
  if (extents != nullptr) {
    for (const int64_t extent : *extents) {
      if (extent < 0) return base::invalid_argument("extent {} of shape is negative", extent);
    }
    return Shape(*extents);
  }
  if (c.inputs.empty()) {
    return base::invalid_argument("give the attribute shape, or the shape as an input");
  }
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 0, 0));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 1));
  const Shape& vector = c.inputs[0].shape;
  if (!vector.has_rank() || vector.dim(0) < 0) return Shape::unknown_rank();
  if (vector.dim(0) > ir::kMaxRank) return base::invalid_argument("too many dimensions");
  Shape out;
  for (int64_t i = 0; i < vector.dim(0); ++i) out.append(-1);
  return out;
}

Status infer_random(const InferContext& c, const DTypeSet& set, DType fallback) {
  SR_ASSIGN_OR_RETURN(Shape shape, wanted_shape(c));
  const size_t shapes = c.attrs.contains("shape") ? 0 : 1;
  SR_RETURN_IF_ERROR(require_stream(c, shapes));
  if (c.inputs.size() > shapes + 1) {
    return base::invalid_argument("{} inputs given; at most {} are taken", c.inputs.size(),
                                  shapes + 1);
  }
  const DType dtype = ir::attr_or(c.attrs, "dtype", fallback);
  if (!set.has(dtype)) {
    return base::invalid_argument("dtype is {}; it must be {}", tensor::name_of(dtype), set.name);
  }
  return put(c, dtype, std::move(shape));
}

Status infer_float(const InferContext& c) {
  return infer_random(c, sets::kFloats, DType::kFloat32);
}

Status infer_integer(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t low, ir::get_attr<int64_t>(c.attrs, "minval"));
  SR_ASSIGN_OR_RETURN(const int64_t high, ir::get_attr<int64_t>(c.attrs, "maxval"));
  if (low >= high) {
    return base::invalid_argument("minval {} must be less than maxval {}", low, high);
  }
  constexpr int64_t kEnd = int64_t{1} << 31;
  const DType dtype = ir::attr_or(c.attrs, "dtype", DType::kInt32);
  if (dtype == DType::kInt32 && (low < -kEnd || high > kEnd)) {
    return base::invalid_argument("minval {} and maxval {} do not fit int32; use dtype int64", low,
                                  high);
  }
  return infer_random(c, sets::kIndices, DType::kInt32);
}

std::vector<ir::AttrSpec> random_attrs() {
  return {{"seed", "int", true, "The graph's seed."},
          {"seed2", "int", true, "The op's seed."},
          {"shape", "ints", false, "Extents of the output; absent: input 0 holds them."},
          {"dtype", "dtype", false, "Dtype of the output; float32, or int32, if absent."}};
}

void add(OpRegistry* registry, const char* name, const char* doc, std::vector<ir::AttrSpec> attrs,
         Status (*infer)(const InferContext&)) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 0,
                 .max_inputs = 2,
                 .attrs = std::move(attrs),
                 .infer = infer,
                 .gradient = no_flow,
                 .stateful = true});
}

}  // namespace

void register_random(OpRegistry* registry) {
  add(registry, "RandomUniform",
      "Numbers uniform in [0, 1). Inputs: the shape unless it is an attribute, and an int64 scalar "
      "that takes the place of the step.",
      random_attrs(), infer_float);
  add(registry, "RandomNormal", "Numbers of the normal distribution; inputs as of RandomUniform.",
      random_attrs(), infer_float);
  add(registry, "TruncatedNormal",
      "Numbers of the normal distribution, drawn again while further than 2 from 0; inputs as of "
      "RandomUniform.",
      random_attrs(), infer_float);
  std::vector<ir::AttrSpec> attrs = random_attrs();
  attrs.push_back({"minval", "int", true, "The lowest number there may be."});
  attrs.push_back({"maxval", "int", true, "All numbers are below it."});
  add(registry, "RandomUniformInt",
      "Integers uniform in [minval, maxval); inputs as of RandomUniform.", std::move(attrs),
      infer_integer);
}

}  // namespace sidereal::ops::internal
