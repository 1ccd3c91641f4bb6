#include "sidereal/ops/internal.h"

#include <algorithm>
#include <utility>

namespace sidereal::ops::internal {

namespace {

std::string names_of(const DTypeSet& set) {
  std::vector<std::string> names;
  for (int i = 1; i < 32; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (set.has(dtype)) names.emplace_back(tensor::name_of(dtype));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Status require(const InferContext& c, const DTypeSet& set, int first, int last) {
  if (last < 0) last += static_cast<int>(c.inputs.size());
  for (int i = first; i <= last; ++i) {
    const DType dtype = c.inputs[i].dtype;
    if (!set.has(dtype)) {
      const bool text = dtype == DType::kString;
      return base::invalid_argument(
          "input {} is {}, which is not {}; {} one of: {}", i, tensor::name_of(dtype), set.name,
          text ? "make numbers of it (StringToNumber, StringToHashBucket)," : "cast it to",
          names_of(set));
    }
    if (dtype != c.inputs[first].dtype) {
      return base::invalid_argument("inputs are of dtypes {} and {}; cast them to one dtype",
                                    tensor::name_of(c.inputs[first].dtype), tensor::name_of(dtype));
    }
  }
  return {};
}

Status require_real(const InferContext& c) { return require(c, sets::kFloats); }

Status require_dtype(const InferContext& c, size_t i, DType dtype) {
  if (c.inputs[i].dtype == dtype) return {};
  return base::invalid_argument("input {} is {}; it must be {}", i,
                                tensor::name_of(c.inputs[i].dtype), tensor::name_of(dtype));
}

Status require_stream(const InferContext& c, size_t i) {
  if (c.inputs.size() <= i) return {};
  SR_RETURN_IF_ERROR(require_dtype(c, i, DType::kInt64));
  return require_rank(c, i, 0);
}

Status require_rank(const InferContext& c, size_t i, int rank) {
  const Shape& shape = c.inputs[i].shape;
  if (!shape.has_rank() || shape.rank() == rank) return {};
  return base::invalid_argument("input {} has rank {}; it must have rank {}", i, shape.rank(),
                                rank);
}

Result<DType> out_type(const InferContext& c) {
  const DType in = c.inputs[0].dtype;
  const auto out = ir::attr_or<DType>(c.attrs, "out_type", in);
  if (out == in || (in == DType::kBFloat16 && out == DType::kFloat32)) return out;
  return base::invalid_argument("out_type is {}; inputs of {} give {}{}", tensor::name_of(out),
                                tensor::name_of(in), tensor::name_of(in),
                                in == DType::kBFloat16 ? " or float32" : "; cast the result");
}

Status put(const InferContext& c, DType dtype, Shape shape) {
  c.outputs->push_back({dtype, std::move(shape)});
  return {};
}

Result<int64_t> row_width(const Shape& table) {
  if (!table.has_rank()) return -1;
  if (table.rank() < 1) return base::invalid_argument("a scalar has no rows");
  int64_t width = 1;
  for (int i = 1; i < table.rank(); ++i) {
    if (table.dim(i) < 0) return -1;
    width *= table.dim(i);
  }
  return width;
}

Status infer_like_first(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

std::function<Status(const InferContext&)> broadcasting(const DTypeSet& set, DType dtype) {
  return [set, dtype](const InferContext& c) -> Status {
    SR_RETURN_IF_ERROR(require(c, set));
    Shape shape = c.inputs[0].shape;
    for (size_t i = 1; i < c.inputs.size(); ++i) {
      SR_ASSIGN_OR_RETURN(shape, broadcast_shapes(shape, c.inputs[i].shape));
    }
    return put(c, dtype == DType::kInvalid ? c.inputs[0].dtype : dtype, std::move(shape));
  };
}

std::function<Status(const InferContext&)> same_shapes(const DTypeSet& set, DType dtype) {
  return [set, dtype](const InferContext& c) -> Status {
    SR_RETURN_IF_ERROR(require(c, set));
    SR_ASSIGN_OR_RETURN(Shape shape, merge_inputs(c, 0, c.inputs.size() - 1));
    return put(c, dtype == DType::kInvalid ? c.inputs[0].dtype : dtype, std::move(shape));
  };
}

Result<int64_t> merge_extent(int64_t a, int64_t b) {
  if (a < 0) return b;
  if (b < 0 || a == b) return a;
  return base::invalid_argument("extents {} and {} differ", a, b);
}

Result<Shape> merge_shapes(const Shape& a, const Shape& b) {
  if (!a.has_rank()) return b;
  if (!b.has_rank()) return a;
  if (a.rank() != b.rank()) {
    return base::invalid_argument("shapes {} and {} differ in rank", a.to_string(), b.to_string());
  }
  Shape out = a;
  for (int i = 0; i < a.rank(); ++i) {
    const Result<int64_t> extent = merge_extent(a.dim(i), b.dim(i));
    if (!extent.ok()) {
      return base::invalid_argument("shapes {} and {} differ at dimension {}", a.to_string(),
                                    b.to_string(), i);
    }
    out.set_dim(i, *extent);
  }
  return out;
}

Result<Shape> merge_inputs(const InferContext& c, size_t first, size_t last) {
  Shape out = c.inputs[first].shape;
  for (size_t i = first + 1; i <= last; ++i) {
    SR_ASSIGN_OR_RETURN(out, merge_shapes(out, c.inputs[i].shape));
  }
  return out;
}

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  if (!a.has_rank() || !b.has_rank()) return Shape::unknown_rank();
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int from_end = rank - i;
    const int64_t x = from_end > a.rank() ? 1 : a.dim(-from_end);
    const int64_t y = from_end > b.rank() ? 1 : b.dim(-from_end);
    if (x == 1 || x == y) {
      out.append(y);
    } else if (y == 1) {
      out.append(x);
    } else if (x < 0 || y < 0) {
      // The unknown one is 1 or equals the known one, which is not 1.
      out.append(std::max(x, y));
    } else {
      return base::invalid_argument(
          "shapes {} and {} cannot be broadcast together: extents {} and {} differ and neither is "
          "1",
          a.to_string(), b.to_string(), x, y);
    }
  }
  return out;
}

Result<int> normalize_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return base::invalid_argument("axis {} is not a dimension of a tensor of rank {}", axis, rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<std::vector<int>> normalize_axes(const std::vector<int64_t>& axes, int rank) {
  std::vector<int> out;
  for (const int64_t axis : axes) {
    SR_ASSIGN_OR_RETURN(const int normal, normalize_axis(axis, rank));
    out.push_back(normal);
  }
  std::sort(out.begin(), out.end());
  if (const auto twice = std::adjacent_find(out.begin(), out.end()); twice != out.end()) {
    return base::invalid_argument("axis {} is named twice", *twice);
  }
  return out;
}

Shape with_last(const Shape& shape, int64_t extent) {
  Shape out = shape;
  if (out.has_rank()) out.append(extent);
  return out;
}

Output scalar(ir::Builder& b, DType dtype, double value) {
  return b.add("Const", {}, {{"value", Tensor::scalar_of(dtype, value)}});
}

Output sum_to(ir::Builder& b, Output g, Output like) {
  const TensorSpec from = b.spec(g);
  const TensorSpec to = b.spec(like);
  if (from.shape.is_fully_defined() && from.shape == to.shape) return g;
  return b.add("SumToShapeOf", {g, like});
}

Status no_flow(GradContext& /*c*/) { return {}; }

}  // namespace sidereal::ops::internal
