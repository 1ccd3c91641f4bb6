#include <utility>

#include "sidereal/ops/args.h"

/// Lookups in many tables, joined. Made by passes, after gradients have been taken.
namespace sidereal::ops::internal {
namespace {

using Ints = std::vector<int64_t>;

/// a * b, neither negative, at most as large as a value may be.
Result<int64_t> times(int64_t a, int64_t b) {
  if (a == 0 || b <= ir::kMaxElements / a) return a * b;
  return base::invalid_argument("rows of {} times {} elements are too long", a, b);
}

/// The product of the extents of `shape` from `axis` on; -1 when that is not known.
int64_t width_from(const Shape& shape, int axis) {
  int64_t width = 1;
  for (int i = axis; i < shape.rank(); ++i) {
    if (shape.dim(i) < 0) return -1;
    width *= shape.dim(i);
  }
  return width;
}

/// Reads the parts of a GatherConcat, or of a GatherPartsConcat of tables of some shards, one by
/// one.
class JoinedParts {
 public:
  JoinedParts(const InferContext& c, int axis, DType out, size_t shards)
      : c_(c), axis_(axis), out_(out), shards_(shards) {}

  Status add(int64_t count) {
    if (count < 0 || count > ir::kMaxElements) {
      return base::invalid_argument("a part has {} rows", count);
    }
    const size_t needed = count == 0 ? 1 : shards_ > 0 ? 3 + shards_ : 2;
    if (next_ + needed > c_.inputs.size()) {
      return base::invalid_argument("the counts ask for more than {} inputs", c_.inputs.size());
    }
    SR_ASSIGN_OR_RETURN(const int64_t width, count == 0    ? given()
                                             : shards_ > 0 ? found_in_parts(count)
                                                           : gathered(count));
    next_ += needed;
    if (width < 0 || width_ < 0) {
      width_ = -1;
      return {};
    }
    width_ += width;
    if (width_ <= ir::kMaxElements) return {};
    return base::invalid_argument("rows of {} elements are too long", width_);
  }

  /// After all parts: what the rows begin with, and their known width or -1.
  Result<std::pair<Shape, int64_t>> finish() const {
    if (next_ != c_.inputs.size()) {
      return base::invalid_argument("the counts ask for {} of {} inputs", next_, c_.inputs.size());
    }
    return std::make_pair(lead_, width_);
  }

 private:
  Result<int64_t> gathered(int64_t count) {
    SR_RETURN_IF_ERROR(require_index(c_, next_ + 1));
    const DType in = c_.inputs[next_].dtype;
    if (in != out_ && (in != DType::kFloat32 || out_ != DType::kBFloat16)) {
      return base::invalid_argument("rows of {} among {}", tensor::name_of(in),
                                    tensor::name_of(out_));
    }
    SR_RETURN_IF_ERROR(take_ids(c_.inputs[next_ + 1].shape, count));
    SR_ASSIGN_OR_RETURN(const int64_t width, row_width(c_.inputs[next_].shape));
    if (width < 0) return width;
    return times(width, count);
  }

  Result<int64_t> found_in_parts(int64_t count) {
    SR_RETURN_IF_ERROR(require_index(c_, next_));
    SR_RETURN_IF_ERROR(require_dtype(c_, next_ + 1, DType::kInt64));
    SR_RETURN_IF_ERROR(require_dtype(c_, next_ + 2, DType::kInt32));
    SR_RETURN_IF_ERROR(take_ids(c_.inputs[next_].shape, count));
    int64_t width = -1;
    for (size_t i = next_ + 3; i < next_ + 3 + shards_; ++i) {
      SR_RETURN_IF_ERROR(require_dtype(c_, i, DType::kFloat32));
      SR_RETURN_IF_ERROR(require_rank(c_, i, 2));
      const Shape& part = c_.inputs[i].shape;
      if (part.has_rank()) {
        SR_ASSIGN_OR_RETURN(width, merge_extent(width, part.dim(1)));
      }
    }
    if (width < 0) return width;
    return times(width, count);
  }

  Status take_ids(const Shape& ids, int64_t count) {
    SR_RETURN_IF_ERROR(merge_lead(ids));
    if (!ids.has_rank()) return {};
    return merge_extent(width_from(ids, axis_), count).status();
  }

  Result<int64_t> given() {
    SR_RETURN_IF_ERROR(require_dtype(c_, next_, out_));
    const Shape& value = c_.inputs[next_].shape;
    SR_RETURN_IF_ERROR(merge_lead(value));
    if (!value.has_rank()) return -1;
    return width_from(value, axis_);
  }

  Status merge_lead(const Shape& shape) {
    if (!shape.has_rank()) return {};
    if (shape.rank() < axis_) {
      return base::invalid_argument("shape {} has no dimension {}", shape.to_string(), axis_);
    }
    Shape lead;
    for (int i = 0; i < axis_; ++i) lead.append(shape.dim(i));
    SR_ASSIGN_OR_RETURN(lead_, merge_shapes(lead_, lead));
    return {};
  }

  const InferContext& c_;
  int axis_;
  DType out_;
  size_t shards_;
  size_t next_ = 0;
  int64_t width_ = 0;
  Shape lead_ = Shape::unknown_rank();
};

Status infer_joined(const InferContext& c, DType out, size_t shards) {
  SR_ASSIGN_OR_RETURN(const Ints counts, ir::get_attr<Ints>(c.attrs, "counts"));
  SR_ASSIGN_OR_RETURN(const Ints shape, ir::get_attr<Ints>(c.attrs, "shape"));
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(c.attrs, "axis"));
  if (axis < 0 || axis > ir::kMaxRank - static_cast<int64_t>(shape.size())) {
    return base::invalid_argument("axis {} of rows with {} dimensions", axis, shape.size());
  }
  JoinedParts parts(c, static_cast<int>(axis), out, shards);
  for (const int64_t count : counts) SR_RETURN_IF_ERROR(parts.add(count));
  SR_ASSIGN_OR_RETURN(auto joined, parts.finish());
  Shape made = joined.first;
  if (!made.has_rank()) made = Shape(Ints(static_cast<size_t>(axis), -1));
  int64_t width = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) return base::invalid_argument("the shape has an extent of {}", extent);
    SR_ASSIGN_OR_RETURN(width, times(width, extent));
    made.append(extent);
  }
  SR_RETURN_IF_ERROR(merge_extent(width, joined.second).status());
  return put(c, out, std::move(made));
}

Status infer_gather_concat(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType out, ir::get_attr<DType>(c.attrs, "out_type"));
  return infer_joined(c, out, 0);
}

Status infer_gather_parts_concat(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t shards, ir::get_attr<int64_t>(c.attrs, "shards"));
  if (shards < 1 || shards > static_cast<int64_t>(c.inputs.size())) {
    return base::invalid_argument("tables of {} shards", shards);
  }
  return infer_joined(c, DType::kFloat32, static_cast<size_t>(shards));
}

}  // namespace

void register_lookups(OpRegistry* registry) {
  registry->add(
      {.name = "GatherConcat",
       .doc = "Rows that are made of rows of tables, found by indices, and of other values, one "
              "after the other: Gather and Concat or Stack in one pass over memory. Inputs are a "
              "table and indices for each count above 0, and a value for each 0. Made by the "
              "lookup layout pass. An index outside its table is an error.",
       .min_inputs = 1,
       .max_inputs = -1,
       .attrs = {{"counts", "ints", true,
                  "By part: rows of the table in each row of the output; 0: a value."},
                 {"axis", "int", true,
                  "Dimensions in front of a row; those of the indices and of the values."},
                 {"shape", "ints", true, "The dimensions of one row of the output."},
                 {"out_type", "dtype", true,
                  "Dtype of the output; bfloat16 also takes tables of float32."}},
       .infer = infer_gather_concat,
       .differentiable = false});
  registry->add({.name = "GatherPartsConcat",
                 .doc = "GatherConcat of tables on a ps, of which parts were asked for: the inputs "
                        "of GatherParts (ids, position, inverse, part_0, ...) for each count above "
                        "0, and a value for each 0. Made by the lookup layout pass.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {{"counts", "ints", true,
                            "By part: rows of the table in each row of the output; 0: a value."},
                           {"axis", "int", true,
                            "Dimensions in front of a row; those of the ids and of the values."},
                           {"shape", "ints", true, "The dimensions of one row of the output."},
                           {"shards", "int", true, "Parts of each table."}},
                 .infer = infer_gather_parts_concat,
                 .differentiable = false});
}

}  // namespace sidereal::ops::internal
