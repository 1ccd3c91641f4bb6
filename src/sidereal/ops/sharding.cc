#include "sidereal/base/strings.h"
#include "sidereal/ops/internal.h"

/// What look-ups and updates of rows of other devices are expanded into, and what partition puts at
/// the cuts.
namespace sidereal::ops::internal {
namespace {

constexpr int64_t kMaxShards = 1 << 16;

Status infer_unique(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kInt64));
  SR_RETURN_IF_ERROR(put(c, DType::kInt64, Shape{-1}));
  return put(c, DType::kInt32, Shape{c.inputs[0].shape.num_elements()});
}

/// The number of shards that tasks of `lanes` make.
Result<int64_t> num_shards(const std::vector<int64_t>& lanes) {
  int64_t shards = 0;
  for (const int64_t count : lanes) {
    if (count < 1 || count > kMaxShards)
      return base::invalid_argument("a task has {} lanes", count);
    shards += count;
  }
  if (shards < 1 || shards > kMaxShards) return base::invalid_argument("{} shards", shards);
  return shards;
}

Status infer_route(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kInt64));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 1));
  SR_ASSIGN_OR_RETURN(const int64_t rows, ir::get_attr<int64_t>(c.attrs, "rows"));
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> lanes,
                      ir::get_attr<std::vector<int64_t>>(c.attrs, "lanes"));
  if (rows < 1) return base::invalid_argument("the table has {} rows", rows);
  SR_ASSIGN_OR_RETURN(const int64_t shards, num_shards(lanes));
  for (int64_t i = 0; i < shards; ++i) SR_RETURN_IF_ERROR(put(c, DType::kInt64, Shape{-1}));
  return put(c, DType::kInt64, Shape{-1});
}

Status infer_unique_route(const InferContext& c) {
  using Ints = std::vector<int64_t>;
  constexpr int64_t kOutputsMax = 1 << 20;
  SR_ASSIGN_OR_RETURN(const Ints of, ir::get_attr<Ints>(c.attrs, "of"));
  SR_ASSIGN_OR_RETURN(const Ints rows, ir::get_attr<Ints>(c.attrs, "rows"));
  SR_ASSIGN_OR_RETURN(const Ints lanes, ir::get_attr<Ints>(c.attrs, "lanes"));
  SR_ASSIGN_OR_RETURN(const int64_t shards, num_shards(lanes));
  if (of.size() != rows.size()) {
    return base::invalid_argument("{} tables of {} sizes", of.size(), rows.size());
  }
  const auto routes = static_cast<int64_t>(of.size());
  if (routes > (kOutputsMax - static_cast<int64_t>(c.inputs.size())) / (shards + 1)) {
    return base::invalid_argument("{} tables of {} shards are too many", routes, shards);
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(require_dtype(c, i, DType::kInt64));
    SR_RETURN_IF_ERROR(put(c, DType::kInt32, Shape{c.inputs[i].shape.num_elements()}));
  }
  for (size_t r = 0; r < of.size(); ++r) {
    if (of[r] < 0 || of[r] >= static_cast<int64_t>(c.inputs.size())) {
      return base::invalid_argument("ids {} of {}", of[r], c.inputs.size());
    }
    if (rows[r] < 1) return base::invalid_argument("a table has {} rows", rows[r]);
    for (int64_t o = 0; o <= shards; ++o) SR_RETURN_IF_ERROR(put(c, DType::kInt64, Shape{-1}));
  }
  return {};
}

Result<int64_t> dim_of(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, ir::get_attr<int64_t>(c.attrs, "dim"));
  if (dim < 1 || dim > ir::kMaxElements) return base::invalid_argument("dim is {}", dim);
  return dim;
}

/// Input `i` must be float32 [?, dim].
Status require_rows(const InferContext& c, size_t i, int64_t dim) {
  SR_RETURN_IF_ERROR(require_dtype(c, i, DType::kFloat32));
  if (merge_shapes(c.inputs[i].shape, Shape{-1, dim}).ok()) return {};
  return base::invalid_argument("input {} must have shape [?,{}]", i, dim);
}

Status require_list(const InferContext& c, size_t i, DType dtype) {
  SR_RETURN_IF_ERROR(require_dtype(c, i, dtype));
  return require_rank(c, i, 1);
}

Status infer_gather_parts(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, dim_of(c));
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 0, 0));
  SR_RETURN_IF_ERROR(require_list(c, 1, DType::kInt64));
  SR_RETURN_IF_ERROR(require_list(c, 2, DType::kInt32));
  for (size_t i = 3; i < c.inputs.size(); ++i) SR_RETURN_IF_ERROR(require_rows(c, i, dim));
  return put(c, DType::kFloat32, with_last(c.inputs[0].shape, dim));
}

Status infer_sum_parts(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, dim_of(c));
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kFloat32));
  const Shape& grads = c.inputs[0].shape;
  const auto column = ir::attr_or<int64_t>(c.attrs, "column", 0);
  const auto width = ir::attr_or<int64_t>(c.attrs, "width", dim);
  if (width < 1 || width > ir::kMaxElements || column < 0 || column > width - dim) {
    return base::invalid_argument("gradients of {} from column {} of rows of {}", dim, column,
                                  width);
  }
  if (width == dim && grads.has_rank() &&
      (grads.rank() < 1 || !merge_extent(grads.dim(-1), dim).ok())) {
    return base::invalid_argument("the gradients must end in dimension {}", dim);
  }
  SR_RETURN_IF_ERROR(require_list(c, 1, DType::kInt64));
  SR_RETURN_IF_ERROR(require_list(c, 2, DType::kInt32));
  for (size_t i = 3; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(require_list(c, i, DType::kInt64));
    const Shape& rows = c.inputs[i].shape;
    SR_RETURN_IF_ERROR(put(c, DType::kFloat32, Shape{rows.has_rank() ? rows.dim(0) : -1, dim}));
  }
  return {};
}

Status infer_arg(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType dtype, ir::get_attr<DType>(c.attrs, "dtype"));
  SR_ASSIGN_OR_RETURN(const Shape shape, ir::get_attr<Shape>(c.attrs, "shape"));
  if (!tensor::is_valid(dtype)) return base::invalid_argument("the dtype is invalid");
  return put(c, dtype, shape);
}

Status infer_no_outputs(const InferContext& /*c*/) { return {}; }

/// The reverse of Shape::to_string().
Result<Shape> shape_from_text(const std::string& text) {
  if (text == "?") return Shape::unknown_rank();
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return base::invalid_argument("'{}' is not a shape such as [2,?]", text);
  }
  Shape out;
  const std::string inside = text.substr(1, text.size() - 2);
  if (inside.empty()) return out;
  for (const std::string& part : base::split(inside, ',')) {
    int64_t extent = -1;
    if (part != "?") {
      SR_ASSIGN_OR_RETURN(extent, base::parse_int(part));
      if (extent < 0) return base::invalid_argument("'{}' has a negative extent", text);
    }
    out.append(extent);
  }
  return out;
}

Status infer_call(const InferContext& c) {
  using Strings = std::vector<std::string>;
  SR_ASSIGN_OR_RETURN(const Strings dtypes, ir::get_attr<Strings>(c.attrs, "output_dtypes"));
  SR_ASSIGN_OR_RETURN(const Strings shapes, ir::get_attr<Strings>(c.attrs, "output_shapes"));
  if (dtypes.size() != shapes.size()) {
    return base::invalid_argument("{} output dtypes and {} output shapes", dtypes.size(),
                                  shapes.size());
  }
  for (size_t i = 0; i < dtypes.size(); ++i) {
    SR_ASSIGN_OR_RETURN(const DType dtype, tensor::dtype_from_name(dtypes[i]));
    SR_ASSIGN_OR_RETURN(Shape shape, shape_from_text(shapes[i]));
    SR_RETURN_IF_ERROR(put(c, dtype, std::move(shape)));
  }
  return {};
}

const ir::AttrSpec kDim = {"dim", "int", true, "Elements of a row."};
const ir::AttrSpec kStrict = {"strict", "bool", false,
                              "Negative ids are ids too, which no table has."};

void register_worker_side(OpRegistry* registry) {
  registry->add({.name = "Unique",
                 .doc = "ids -> the different ids in the order they first occur, and for each id "
                        "its place among them; negative ids are left out and have place -1.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {kStrict},
                 .infer = infer_unique,
                 .differentiable = false});
  registry->add({.name = "Route",
                 .doc = "unique ids -> the local rows wanted of each shard, and for each id "
                        "shard << 40 | its index among that shard's rows.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"rows", "int", true, "Rows of the table."},
                           {"lanes", "ints", true, "By task that has parts of it: how many."},
                           {"var", "string", false, "Name of the table, for messages."}},
                 .infer = infer_route,
                 .differentiable = false});
  registry->add({.name = "UniqueRoute",
                 .doc = "(ids...) -> by input the place of each id among its different ids, then "
                        "by table what Route gives: Unique and Route for many tables at once. "
                        "Made by the pass that unites routes.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {{"of", "ints", true, "By table: which input has its ids."},
                           {"rows", "ints", true, "By table: its rows."},
                           {"lanes", "ints", true, "By task that has parts of it: how many."},
                           {"vars", "strings", false, "Names of the tables, for messages."},
                           kStrict},
                 .infer = infer_unique_route,
                 .differentiable = false});
  registry->add({.name = "GatherParts",
                 .doc = "(ids, position, inverse, part_0, ...) -> the row of each id, "
                        "ids.shape + [dim].",
                 .min_inputs = 4,
                 .max_inputs = -1,
                 .attrs = {kDim},
                 .infer = infer_gather_parts,
                 .differentiable = false});
  registry->add({.name = "SumParts",
                 .doc = "(grads, position, inverse, rows_0, ...) -> for each shard the gradients "
                        "of its rows; those of equal ids are summed in index order.",
                 .min_inputs = 4,
                 .max_inputs = -1,
                 .attrs = {kDim,
                           {"column", "int", false, "Where in a row of grads they begin; 0."},
                           {"width", "int", false, "Elements of a row of grads; dim."}},
                 .infer = infer_sum_parts,
                 .differentiable = false});
}

void register_boundaries(OpRegistry* registry) {
  const ir::AttrSpec index = {"index", "int", true, "Place among the arguments or results."};
  registry->add({.name = "Arg",
                 .doc = "An argument of a remote graph.",
                 .attrs = {index,
                           {"dtype", "dtype", true, "Element type."},
                           {"shape", "shape", true, "Shape as far as known."}},
                 .infer = infer_arg,
                 .differentiable = false});
  registry->add({.name = "Ret",
                 .doc = "A result of a remote graph.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {index},
                 .infer = infer_no_outputs,
                 .differentiable = false});
  registry->add({.name = "Call",
                 .doc = "Runs a remote graph: feeds in, fetches out, one round trip.",
                 .min_inputs = 0,
                 .max_inputs = -1,
                 .attrs = {{"call", "int", true, "Index of the remote graph."},
                           {"device", "string", true, "The device it runs on."},
                           {"waits", "bool", false, "Whether it may wait for other steps."},
                           {"async_push", "bool", false, "Whether nothing waits for its answer."},
                           {"ahead", "bool", false, "Whether it may run before the step begins."},
                           {"repeatable", "bool", false, "Whether it changes nothing."},
                           {"output_dtypes", "strings", true, "Dtypes of the fetches."},
                           {"output_shapes", "strings", true, "Shapes of the fetches: [2,?]."}},
                 .infer = infer_call,
                 .differentiable = false,
                 .stateful = true});
}

}  // namespace

void register_sharding(OpRegistry* registry) {
  register_worker_side(registry);
  register_boundaries(registry);
}

}  // namespace sidereal::ops::internal
