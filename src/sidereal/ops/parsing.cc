#include <algorithm>
#include <set>

#include "sidereal/ops/args.h"

/// Ops that make values of bytes: raw numbers, CSV records, tf.train.Example.
namespace sidereal::ops::internal {
namespace {

// --- Raw numbers.

Status infer_decode_raw(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
  SR_ASSIGN_OR_RETURN(const DType dtype, ir::get_attr<DType>(c.attrs, "out_type"));
  if (!sets::kPlain.has(dtype)) {
    return base::invalid_argument("out_type is {}; it must be a number or bool",
                                  tensor::name_of(dtype));
  }
  const int64_t bytes = ir::attr_or<int64_t>(c.attrs, "fixed_length", -1);
  const auto width = static_cast<int64_t>(tensor::size_of(dtype));
  if (bytes >= 0 && bytes % width != 0) {
    return base::invalid_argument("fixed_length is {} bytes, no multiple of the {} of {}", bytes,
                                  width, tensor::name_of(dtype));
  }
  Shape shape = c.inputs[0].shape;
  if (shape.has_rank()) shape.append(bytes < 0 ? -1 : bytes / width);
  return put(c, dtype, std::move(shape));
}

Status infer_encode_raw(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kPlain));
  const Shape& shape = c.inputs[0].shape;
  if (!shape.has_rank()) return put(c, DType::kString, shape);
  if (shape.rank() == 0) {
    return base::invalid_argument("a scalar has no last dimension to make strings of");
  }
  Shape out;
  for (int i = 0; i + 1 < shape.rank(); ++i) out.append(shape.dim(i));
  return put(c, DType::kString, std::move(out));
}

// --- CSV.

bool is_csv_dtype(DType dtype) {
  return sets::kIntegers.has(dtype) || sets::kReals.has(dtype) || dtype == DType::kString;
}

Status check_default(const InferContext& c, size_t i) {
  const ir::TensorSpec& spec = c.inputs[i];
  if (!is_csv_dtype(spec.dtype)) {
    return base::invalid_argument(
        "the default of column {} is {}; it must be an integer, float32, float64 or string", i - 1,
        tensor::name_of(spec.dtype));
  }
  if (spec.shape.is_fully_defined() && spec.shape.num_elements() > 1) {
    return base::invalid_argument(
        "the default of column {} has shape {}; it must have one element, or none for a column "
        "that may not be empty",
        i - 1, spec.shape.to_string());
  }
  return {};
}

Status infer_decode_csv(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
  const std::string delimiter = ir::attr_or<std::string>(c.attrs, "field_delim", ",");
  if (delimiter.size() != 1 || delimiter.find_first_of("\"\r\n") == 0) {
    return base::invalid_argument(
        "field_delim has {} bytes or is a quote or line end; it must be one other byte",
        delimiter.size());
  }
  const auto columns = ir::attr_or<std::vector<int64_t>>(c.attrs, "select_cols", {});
  if (!columns.empty() && columns.size() != c.inputs.size() - 1) {
    return base::invalid_argument("select_cols names {} columns, for {} defaults", columns.size(),
                                  c.inputs.size() - 1);
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < 0 || (i > 0 && columns[i] <= columns[i - 1])) {
      return base::invalid_argument("select_cols must count up from 0 or more; column {} is {}", i,
                                    columns[i]);
    }
  }
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(check_default(c, i));
    SR_RETURN_IF_ERROR(put(c, c.inputs[i].dtype, c.inputs[0].shape));
  }
  return {};
}

// --- tf.train.Example.

using Strings = std::vector<std::string>;

/// The dtypes of attribute `name`, one per key: float32, int64 or string.
Result<std::vector<DType>> feature_dtypes(const InferContext& c, const char* name, size_t count) {
  const Strings names = ir::attr_or<Strings>(c.attrs, name, {});
  if (names.size() != count) {
    return base::invalid_argument("{} has {} dtypes for {} keys", name, names.size(), count);
  }
  std::vector<DType> out;
  for (const std::string& text : names) {
    const DType dtype = tensor::dtype_from_name(text).value_or(DType::kInvalid);
    if (dtype != DType::kFloat32 && dtype != DType::kInt64 && dtype != DType::kString) {
      return base::invalid_argument("{} has '{}'; it must be float32, int64 or string", name, text);
    }
    out.push_back(dtype);
  }
  return out;
}

/// The shapes that "dense_shapes" says: for each key its rank, then its extents. Only the first
/// extent may be -1.
Result<std::vector<Shape>> dense_shapes(const InferContext& c, size_t count) {
  const auto numbers = ir::attr_or<std::vector<int64_t>>(c.attrs, "dense_shapes", {});
  std::vector<Shape> out;
  size_t at = 0;
  while (at < numbers.size()) {
    const int64_t rank = numbers[at++];
    if (rank < 0 || rank >= ir::kMaxRank || static_cast<size_t>(rank) > numbers.size() - at) {
      return base::invalid_argument("dense_shapes is no list of ranks and extents");
    }
    Shape shape;
    for (int64_t i = 0; i < rank; ++i) shape.append(numbers[at++]);
    SR_RETURN_IF_ERROR(ir::check_shape(shape));
    for (int64_t i = 1; i < rank; ++i) {
      if (shape.dim(static_cast<int>(i)) < 0) {
        return base::invalid_argument("shape {} of feature {}: only the first extent may be open",
                                      shape.to_string(), out.size());
      }
    }
    out.push_back(shape);
  }
  if (out.size() != count) {
    return base::invalid_argument("dense_shapes has {} shapes for {} keys", out.size(), count);
  }
  return out;
}

Status check_keys(const Strings& dense, const Strings& sparse, const Strings& ragged) {
  std::set<std::string> seen;
  for (const Strings* keys : {&dense, &sparse, &ragged}) {
    for (const std::string& key : *keys) {
      if (!seen.insert(key).second) {
        return base::invalid_argument("feature '{}' is asked for twice", key);
      }
    }
  }
  return {};
}

Shape behind(const Shape& rows, const Shape& shape) {
  if (!rows.has_rank()) return rows;
  Shape out = rows;
  for (int i = 0; i < shape.rank(); ++i) out.append(shape.dim(i));
  return out;
}

Status put_sparse(const InferContext& c, const std::vector<DType>& dtypes, const Shape& rows) {
  const int64_t rank = rows.has_rank() ? rows.rank() + 1 : -1;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    SR_RETURN_IF_ERROR(put(c, DType::kInt64, Shape{-1, rank}));
  }
  for (const DType dtype : dtypes) SR_RETURN_IF_ERROR(put(c, dtype, Shape{-1}));
  for (size_t i = 0; i < dtypes.size(); ++i) SR_RETURN_IF_ERROR(put(c, DType::kInt64, Shape{rank}));
  return {};
}

Status infer_parse_example(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
  const Shape& rows = c.inputs[0].shape;
  if (rows.has_rank() && rows.rank() > 1) {
    return base::invalid_argument("input 0 has shape {}; examples are a vector or a scalar",
                                  rows.to_string());
  }
  const Strings dense = ir::attr_or<Strings>(c.attrs, "dense_keys", {});
  const Strings sparse = ir::attr_or<Strings>(c.attrs, "sparse_keys", {});
  const Strings ragged = ir::attr_or<Strings>(c.attrs, "ragged_keys", {});
  SR_RETURN_IF_ERROR(check_keys(dense, sparse, ragged));
  if (c.inputs.size() != dense.size() + 1) {
    return base::invalid_argument("{} defaults for {} dense keys", c.inputs.size() - 1,
                                  dense.size());
  }
  SR_ASSIGN_OR_RETURN(const auto shapes, dense_shapes(c, dense.size()));
  SR_ASSIGN_OR_RETURN(const auto sparse_types, feature_dtypes(c, "sparse_types", sparse.size()));
  SR_ASSIGN_OR_RETURN(const auto ragged_types, feature_dtypes(c, "ragged_types", ragged.size()));
  SR_RETURN_IF_ERROR(put_sparse(c, sparse_types, rows));
  for (size_t i = 0; i < dense.size(); ++i) {
    const DType dtype = c.inputs[i + 1].dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kInt64 && dtype != DType::kString) {
      return base::invalid_argument(
          "the default of feature '{}' is {}; it must be float32, int64 or string", dense[i],
          tensor::name_of(dtype));
    }
    SR_RETURN_IF_ERROR(put(c, dtype, behind(rows, shapes[i])));
  }
  for (const DType dtype : ragged_types) SR_RETURN_IF_ERROR(put(c, dtype, Shape{-1}));
  const int64_t splits = rows.is_fully_defined() ? rows.num_elements() + 1 : -1;
  for (size_t i = 0; i < ragged.size(); ++i) {
    SR_RETURN_IF_ERROR(put(c, DType::kInt64, Shape{splits}));
  }
  return {};
}

void register_example(OpRegistry* registry) {
  registry->add(
      {.name = "ParseExample",
       .doc = "(serialized, default of each dense key...) -> features of tf.train.Example messages "
              "(tf.io.parse_example): of each sparse key indices, of each values, of each "
              "dense_shape, then the dense values, then of each ragged key values, of each "
              "row_splits. serialized is a vector, or a scalar: then without a dimension of rows.",
       .min_inputs = 1,
       .max_inputs = -1,
       .attrs = {{"dense_keys", "strings", false,
                  "Features of fixed shape. Where one is missing its default stands; a default of "
                  "no elements makes it required."},
                 {"dense_shapes", "ints", false,
                  "Of each dense key the rank, then the extents. A first extent of -1 is the "
                  "longest of the batch: shorter ones are filled up with the default, one element, "
                  "or with zeros."},
                 {"sparse_keys", "strings", false, "Features of any length, as sparse triples."},
                 {"sparse_types", "strings", false, "float32, int64 or string."},
                 {"ragged_keys", "strings", false, "Features of any length, as ragged rows."},
                 {"ragged_types", "strings", false, "float32, int64 or string."}},
       .infer = infer_parse_example,
       .differentiable = false});
}

}  // namespace

void register_parsing(OpRegistry* registry) {
  const ir::AttrSpec order = {"little_endian", "bool", false,
                              "The order of a number's bytes; true if absent."};
  registry->add({.name = "DecodeRaw",
                 .doc = "The numbers whose bytes the strings are, along a new last dimension "
                        "(tf.io.decode_raw). All strings must be of one length.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"out_type", "dtype", true, "A number or bool."},
                           order,
                           {"fixed_length", "int", false,
                            "Bytes taken of each string, or filled up with zeros; -1: all."}},
                 .infer = infer_decode_raw,
                 .differentiable = false});
  registry->add({.name = "EncodeRaw",
                 .doc = "The bytes of the numbers along the last dimension as a string: what "
                        "DecodeRaw reads.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {order},
                 .infer = infer_encode_raw,
                 .differentiable = false});
  registry->add(
      {.name = "DecodeCsv",
       .doc = "(records, default of each column...) -> columns of the shape of records "
              "(tf.io.decode_csv). A field that is empty or na_value has the default; a default of "
              "no elements makes it required.",
       .min_inputs = 2,
       .max_inputs = -1,
       .attrs = {{"field_delim", "string", false, "One byte; ','."},
                 {"use_quote_delim", "bool", false,
                  "Fields may be in double quotes (if absent); false: quotes are text."},
                 {"na_value", "string", false, "Another text that stands for a missing field."},
                 {"select_cols", "ints", false,
                  "The columns wanted, counting up from 0; absent: all, one per default."}},
       .infer = infer_decode_csv,
       .differentiable = false});
  register_example(registry);
}

}  // namespace sidereal::ops::internal
