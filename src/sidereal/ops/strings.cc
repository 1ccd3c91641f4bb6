#include <algorithm>

#include "sidereal/ops/args.h"

/// Ops on strings: bytes of any length. None has a gradient; names and meaning are TensorFlow's.
namespace sidereal::ops::internal {
namespace {

using Infer = std::function<Status(const InferContext&)>;

/// Strings in, element by element values of `dtype` out.
Infer each(DType dtype) {
  return [dtype](const InferContext& c) -> Status {
    SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
    return put(c, dtype, c.inputs[0].shape);
  };
}

void add(OpRegistry* registry, const char* name, const char* doc, int inputs,
         std::vector<ir::AttrSpec> attrs, Infer infer) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = inputs,
                 .max_inputs = inputs,
                 .attrs = std::move(attrs),
                 .infer = std::move(infer),
                 .differentiable = false});
}

// --- Numbers of strings and strings of numbers.

Status infer_hash_bucket(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t buckets, ir::get_attr<int64_t>(c.attrs, "num_buckets"));
  if (buckets < 1) {
    return base::invalid_argument("num_buckets is {}; it must be 1 or more", buckets);
  }
  if (c.schema.name == "StringToHashBucketStrong") {
    SR_ASSIGN_OR_RETURN(const auto key, ir::get_attr<std::vector<int64_t>>(c.attrs, "key"));
    if (key.size() != 2) {
      return base::invalid_argument("key has {} integers; it must have 2", key.size());
    }
  }
  return each(DType::kInt64)(c);
}

Status infer_category_id(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t buckets, ir::get_attr<int64_t>(c.attrs, "num_buckets"));
  SR_ASSIGN_OR_RETURN(const int64_t field, ir::get_attr<int64_t>(c.attrs, "field"));
  if (buckets < 1 || field < 0 || field > INT64_MAX / buckets - 1) {
    return base::invalid_argument(
        "field {} of {} buckets: it must be 0 or more, with 1 or more buckets, and ids of 64 bits",
        field, buckets);
  }
  return each(DType::kInt64)(c);
}

Status infer_as_string(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kPlain));
  const DType dtype = c.inputs[0].dtype;
  const bool scientific = ir::attr_or<bool>(c.attrs, "scientific", false);
  const bool shortest = ir::attr_or<bool>(c.attrs, "shortest", false);
  if (scientific && shortest) {
    return base::invalid_argument("scientific and shortest are both asked for; one is possible");
  }
  const int64_t precision = ir::attr_or<int64_t>(c.attrs, "precision", -1);
  if (!is_real(dtype) && (scientific || shortest || precision >= 0)) {
    return base::invalid_argument(
        "precision, scientific and shortest are for floats; the input is {}",
        tensor::name_of(dtype));
  }
  constexpr int64_t kWidthMax = 1024;
  const int64_t width = ir::attr_or<int64_t>(c.attrs, "width", -1);
  if (precision > kWidthMax || width > kWidthMax) {
    return base::invalid_argument("precision {} and width {}: at most {} is possible", precision,
                                  width, kWidthMax);
  }
  const std::string fill = ir::attr_or<std::string>(c.attrs, "fill", "");
  if (fill.size() > 1 || std::string_view(" +-0#").find(fill) == std::string_view::npos) {
    return base::invalid_argument("fill is '{}'; it must be one of ' ', '+', '-', '0', '#', or ''",
                                  fill);
  }
  return put(c, DType::kString, c.inputs[0].shape);
}

Status infer_string_to_number(const InferContext& c) {
  const auto dtype = ir::attr_or<DType>(c.attrs, "out_type", DType::kFloat32);
  if (!sets::kIntegers.has(dtype) && !sets::kReals.has(dtype)) {
    return base::invalid_argument("out_type is {}; it must be an integer, float32 or float64",
                                  tensor::name_of(dtype));
  }
  return each(dtype)(c);
}

void register_numbers(OpRegistry* registry) {
  const ir::AttrSpec buckets = {"num_buckets", "int", true, "How many there are, 1 or more."};
  add(registry, "StringToHashBucketFast",
      "The FarmHash Fingerprint64 of each string modulo num_buckets, as int64: the values of "
      "TensorFlow (tf.strings.to_hash_bucket_fast).",
      1, {buckets}, infer_hash_bucket);
  add(registry, "StringToHashBucketStrong",
      "The SipHash-2-4 of each string under a key modulo num_buckets, as int64: the values of "
      "TensorFlow, and hard to foresee without the key (tf.strings.to_hash_bucket_strong).",
      1, {buckets, {"key", "ints", true, "Two integers: its lower and its upper 64 bits."}},
      infer_hash_bucket);
  add(registry, "StringToHashBucket",
      "The XXH3 hash of each string modulo num_buckets, as int64. Not the values of TensorFlow's "
      "op, whose hash is its own: use StringToHashBucketFast for those of both.",
      1, {buckets}, infer_hash_bucket);
  add(registry, "CategoryId",
      "The id that readers of files give each string, as int64: field * num_buckets + a number "
      "below num_buckets that its XXH3 hash with the field as seed chooses.",
      1, {{"field", "int", true, "Which categorical column, from 0."}, buckets}, infer_category_id);
  add(registry, "AsString",
      "Each number or bool as text (tf.strings.as_string): integers in decimals, floats as C's "
      "printf has them, bools as 'true' and 'false'.",
      1,
      {{"precision", "int", false, "Digits behind the point, shortest: digits; -1: 6."},
       {"scientific", "bool", false, "As 1.5e+03."},
       {"shortest", "bool", false, "In the shorter of both forms."},
       {"width", "int", false, "The least length, to which text is filled up."},
       {"fill", "string", false,
        "How: ' ' or '+' before positive numbers, '0' in front, '-' behind; '': blanks in "
        "front."}},
      infer_as_string);
  add(registry, "StringToNumber",
      "The number each string says (tf.strings.to_number); white space around it is ignored. The "
      "step ends with an error that shows a string that is no number of the dtype.",
      1, {{"out_type", "dtype", false, "float32 if absent."}}, infer_string_to_number);
}

// --- Joining, cutting, changing.

Status infer_string_join(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kStrings));
  return broadcasting(sets::kStrings)(c);
}

Status infer_reduce_join(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
  const Shape& shape = c.inputs[0].shape;
  const auto* axes = ir::find_attr<std::vector<int64_t>>(c.attrs, "axes");
  const bool keep = ir::attr_or<bool>(c.attrs, "keep_dims", false);
  if (!shape.has_rank()) {
    const bool all = axes == nullptr && !keep;
    return put(c, DType::kString, all ? Shape() : Shape::unknown_rank());
  }
  std::vector<int> joined;
  if (axes != nullptr) {
    SR_ASSIGN_OR_RETURN(joined, normalize_axes(*axes, shape.rank()));
  }
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool gone = axes == nullptr || std::binary_search(joined.begin(), joined.end(), i);
    if (!gone) out.append(shape.dim(i));
    if (gone && keep) out.append(1);
  }
  return put(c, DType::kString, std::move(out));
}

Status infer_string_split(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
  const Shape& shape = c.inputs[0].shape;
  const int64_t rows = shape.is_fully_defined() ? shape.num_elements() : -1;
  SR_RETURN_IF_ERROR(put(c, DType::kString, Shape{-1}));
  return put(c, DType::kInt64, Shape{rows < 0 ? -1 : rows + 1});
}

Status check_unit(const InferContext& c) {
  const std::string unit = ir::attr_or<std::string>(c.attrs, "unit", "BYTE");
  if (unit == "BYTE" || unit == "UTF8_CHAR") return {};
  return base::invalid_argument("unit is '{}'; it must be 'BYTE' or 'UTF8_CHAR'", unit);
}

Status infer_substr(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_unit(c));
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_RETURN_IF_ERROR(require_index(c, 2));
  SR_ASSIGN_OR_RETURN(Shape shape, broadcast_shapes(c.inputs[0].shape, c.inputs[1].shape));
  SR_ASSIGN_OR_RETURN(shape, broadcast_shapes(shape, c.inputs[2].shape));
  return put(c, DType::kString, std::move(shape));
}

Status infer_string_length(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_unit(c));
  return each(DType::kInt32)(c);
}

/// Inference of an op with a required text attribute `name`.
Infer with_text(const char* name, DType dtype) {
  return [name, dtype](const InferContext& c) -> Status {
    SR_RETURN_IF_ERROR(ir::get_attr<std::string>(c.attrs, name).status());
    return each(dtype)(c);
  };
}

Status infer_string_format(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const std::string text, ir::get_attr<std::string>(c.attrs, "template"));
  const std::string hole = ir::attr_or<std::string>(c.attrs, "placeholder", "{}");
  if (hole.empty()) return base::invalid_argument("the placeholder is empty");
  size_t holes = 0;
  for (size_t at = text.find(hole); at != std::string::npos; at = text.find(hole, at)) {
    ++holes;
    at += hole.size();
  }
  if (holes != c.inputs.size()) {
    return base::invalid_argument("the template has {} placeholders '{}' for {} inputs", holes,
                                  hole, c.inputs.size());
  }
  return put(c, DType::kString, Shape());
}

void register_joining(OpRegistry* registry) {
  const ir::AttrSpec separator = {"separator", "string", false, "What stands between them; ''."};
  registry->add({.name = "StringJoin",
                 .doc = "Its inputs, broadcast as NumPy does, one behind another (tf.strings.join, "
                        "tf.add of strings).",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {separator},
                 .infer = infer_string_join,
                 .differentiable = false});
  add(registry, "ReduceJoin", "The strings along axes one behind another (tf.strings.reduce_join).",
      1,
      {{"axes", "ints", false,
        "The first one's neighbours come first; absent: all, row by row. [0, 1] of [[a, b], [c, "
        "d]] is acbd, [1, 0] abcd."},
       {"keep_dims", "bool", false, "Keep the axes, with extent 1."},
       separator},
      infer_reduce_join);
  add(registry, "StringSplit",
      "(values, row_splits): the pieces of all strings, row by row, and, int64, where each "
      "string's begin; the last number is how many there are (tf.strings.split).",
      1,
      {{"separator", "string", false, "'' or absent: runs of white space, as Python's split()."},
       {"maxsplit", "int", false, "At most so many cuts in each; -1: any number."},
       {"each_byte", "bool", false,
        "Every byte of the separator cuts; without a separator, every byte is a piece."},
       {"skip_empty", "bool", false, "Leave out pieces of no bytes."}},
      infer_string_split);
  registry->add({.name = "StringFormat",
                 .doc = "A scalar: the template, with each placeholder replaced by the text of an "
                        "input (tf.strings.format).",
                 .min_inputs = 0,
                 .max_inputs = -1,
                 .attrs = {{"template", "string", true, "The text."},
                           {"placeholder", "string", false, "What is replaced; '{}'."},
                           {"summarize", "int", false,
                            "Elements shown at each end of a dimension; 3 if absent, -1: all."}},
                 .infer = infer_string_format,
                 .differentiable = false});
}

}  // namespace

void register_strings(OpRegistry* registry) {
  register_numbers(registry);
  register_joining(registry);
  const ir::AttrSpec unit = {"unit", "string", false,
                             "What is counted: 'BYTE', or 'UTF8_CHAR', bytes that begin a "
                             "character."};
  add(registry, "Substr",
      "(x, pos, len), broadcast: `len` bytes or characters of x from `pos` on, fewer where x ends "
      "(tf.strings.substr). A negative pos counts from the end; one outside of x is an error.",
      3, {unit}, infer_substr);
  add(registry, "StringLength", "Bytes or characters of each string, int32 (tf.strings.length).", 1,
      {unit}, infer_string_length);
  add(registry, "StringLower", "ASCII letters in lower case (tf.strings.lower).", 1, {},
      each(DType::kString));
  add(registry, "StringUpper", "ASCII letters in upper case (tf.strings.upper).", 1, {},
      each(DType::kString));
  add(registry, "StringStrip", "Without white space at the ends (tf.strings.strip).", 1, {},
      each(DType::kString));
  add(registry, "RegexReplace", "What the pattern matches replaced (tf.strings.regex_replace).", 1,
      {{"pattern", "string", true, "A regular expression of RE2."},
       {"rewrite", "string", true, "What comes instead; \\1 to \\9 are groups, \\0 the match."},
       {"replace_global", "bool", false, "All matches (if absent), or the first."}},
      with_text("rewrite", DType::kString));
  add(registry, "RegexFullMatch",
      "Whether the pattern matches the whole of each string (tf.strings.regex_full_match).", 1,
      {{"pattern", "string", true, "A regular expression of RE2."}},
      with_text("pattern", DType::kBool));
}

}  // namespace sidereal::ops::internal
