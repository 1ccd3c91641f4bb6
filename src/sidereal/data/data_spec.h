#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// How rows are written down.
enum class Format : uint8_t {
  /// Criteo's click logs: label, 13 integers, 26 categories, separated by tabs, no header. An
  /// integer x becomes log1p(max(x, 0)), a missing one 0; a category is hashed, the missing one
  /// too (as empty text, so it has an id of its own in each field).
  kCriteo,
  /// RFC 4180 text with a header line. Numeric columns as DataSpec::transforms say; without, as
  /// they
  /// stand (missing: 0).
  kCsv,
  /// "label index:value ..."; labels -1/+1 or 0/1; an index without a value has value 1.
  kLibsvm,
  /// One .npy file per column; dimension 0 is the row.
  kArrays,
  /// The built-in stream, see synthetic.h.
  kSynthetic,
};

/// What happens to a row that cannot be understood.
enum class BadRows : uint8_t { kFail, kSkip };

/// Upper limit of DataSpec::hash_buckets: ids of any number of fields then fit 63 bits.
inline constexpr int64_t kHashBucketsMax = int64_t{1} << 36;

/// Upper limits of MultiHot::max_length and Bucketized::buckets.
inline constexpr int64_t kMultiHotMax = 1024;
inline constexpr int64_t kBucketsMax = 4096;
/// Upper limit of Negatives::count.
inline constexpr int64_t kNegativesMax = 1024;

/// The column of a batch that says which rows belong together: i64 [B], equal for equal texts.
inline constexpr const char* kGroup = "group";

/// "criteo", "csv", "libsvm", "arrays", "synthetic".
std::string_view name_of(Format format);
/// The format of that name, or kInvalidArgument listing the names.
Result<Format> format_from_name(std::string_view name);
/// "fail" or "skip".
std::string_view name_of(BadRows bad_rows);
/// The policy of that name, or kInvalidArgument.
Result<BadRows> bad_rows_from_name(std::string_view name);

/// Which rows of the synthetic stream are meant. Row r depends on (seed, r) only, so two ranges
/// that do not meet share no row. Value type.
struct SyntheticSpec {
  /// Rows in one epoch.
  int64_t rows = 1'000'000;
  int64_t first_row = 0;
  /// Decides the planted model and the rows; the same for training and evaluation data.
  uint64_t seed = 1;
  /// Vocabulary sizes are capped here (at least 4). 1,000,000 leaves them as they are.
  int64_t vocabulary_max = 1'000'000;
  friend bool operator==(const SyntheticSpec&, const SyntheticSpec&) = default;
};

/// How a column of numbers becomes what a model sees of it.
enum class Transform : uint8_t {
  /// As it stands.
  kNone,
  /// Chosen by with_statistics(): kLog1pStandard or kStandard. Nothing that reads knows it.
  kAuto,
  /// The sign of x times log(1 + |x|).
  kLog1p,
  /// (x - mean) / standard deviation.
  kStandard,
  /// kLog1p, then kStandard.
  kLog1pStandard,
  /// (x - min) / (max - min).
  kMinmax,
  /// The part of the column that is not above x, 0 to 1, in steps.
  kQuantile,
};

/// The transform of one column, with what it needs to know of it. Value type.
struct NumericTransform {
  Transform kind = Transform::kNone;
  /// What is taken from the number, after the logarithm, and what that is multiplied by.
  float offset = 0;
  float scale = 1;
  /// What an empty cell counts as, before everything else.
  float missing = 0;
  /// kQuantile: ascending.
  std::vector<float> boundaries = {};
  friend bool operator==(const NumericTransform&, const NumericTransform&) = default;
};

/// Which labels are 1: those of which `column op value` holds; the others are 0. Numbers are
/// compared where both are numbers. Value type.
struct LabelRule {
  /// "=", "!=", "<", "<=", ">", ">="; "": the label stands there as a number.
  std::string op = "";
  std::string value = "";
  friend bool operator==(const LabelRule&, const LabelRule&) = default;
};

/// A categorical column of which a cell has several values. Value type.
struct MultiHot {
  std::string column;
  char separator = '|';
  /// Values of a cell that count, the first ones; fewer are filled up with id -1.
  int64_t max_length = 1;
  friend bool operator==(const MultiHot&, const MultiHot&) = default;
};

/// What texts become ids by, where no vocabulary does.
enum class Hash : uint8_t {
  /// XXH3 with the field as seed: base::category_id().
  kXxh3,
  /// FarmHash, the rest of the division by the buckets: the ids of Keras' Hashing and
  /// HashedCrossing.
  kFarmhash,
};

/// A column of texts, whose ids are by a vocabulary: first `num_oov_indices` of texts that are not
/// in it, then those of its tokens. Value type.
struct Vocabulary {
  std::string column;
  /// The most ids that there are; 0: no limit.
  int64_t max_tokens = 0;
  int64_t num_oov_indices = 1;
  /// Empty: with_statistics() finds them, the most frequent first.
  std::vector<std::string> tokens = {};
  friend bool operator==(const Vocabulary&, const Vocabulary&) = default;
};

/// A column of which a cell has several texts in an order. Its ids are a column of the batch of
/// their own, i64 [B, max_length], where there are fewer -1. Value type.
struct Sequence {
  std::string column;
  char separator = '|';
  int64_t max_length = 1;
  /// "pre" or "post": where the -1 are, and which texts are left out of a longer one.
  std::string padding = "post";
  std::string truncating = "post";
  /// The categorical column whose ids its texts have; "": ids of its own.
  std::string like = "";
  friend bool operator==(const Sequence&, const Sequence&) = default;
};

/// Rows that did not happen, behind each row that has a label above 0: copies with the label 0 and
/// another value of a categorical column. Value type.
struct Negatives {
  /// "": there are none.
  std::string column = "";
  /// Copies of each row.
  int64_t count = 0;
  /// "popularity": values of rows shortly before, each as often as it was there; "uniform": tokens
  /// of the column's vocabulary, all alike.
  std::string sampler = "popularity";
  friend bool operator==(const Negatives&, const Negatives&) = default;
};

/// A column of numbers that becomes a category: the number of boundaries that are not above it; an
/// empty cell is one more category, behind them. Value type.
struct Bucketized {
  std::string column;
  /// So many buckets with_statistics() makes, each with as many rows, where `boundaries` is empty.
  int64_t buckets = 0;
  std::vector<float> boundaries = {};
  friend bool operator==(const Bucketized&, const Bucketized&) = default;
};

/// Which data to read and how. Travels from the launcher to the workers as JSON. Value type.
struct DataSpec {
  Format format = Format::kCsv;
  /// Files in reading order, plain or gzip (told by content), here or elsewhere ("s3://...");
  /// those of csv in one of the ways of table_formats.h. For arrays: see `arrays`.
  std::vector<std::string> files;
  /// kArrays: (column name, .npy file).
  std::vector<std::pair<std::string, std::string>> arrays;
  /// csv, arrays: the label's column. Empty: there is none, as in rows that are to be predicted.
  std::string label = "label";
  /// csv, arrays: columns that make up `dense`, in this order.
  std::vector<std::string> numeric;
  /// csv, arrays: columns that make up `ids`, in this order. Empty means for csv: all columns that
  /// are neither label nor numeric; for arrays: none.
  std::vector<std::string> categorical;
  /// csv: which labels are 1.
  LabelRule label_rule = {};
  /// csv: the column that says how much a row counts; "": all count 1.
  std::string weight = "";
  /// csv: columns of numbers beside the label that are to be predicted too.
  std::vector<std::string> targets;
  /// csv: the column whose texts say which rows belong together, as those of one query; "": none.
  std::string group = "";
  /// csv: (label, what the weight of its rows is multiplied by); of others by 1.
  std::vector<std::pair<std::string, std::string>> class_weights;
  /// csv: how `transforms` are chosen.
  Transform numeric_transform = Transform::kNone;
  /// csv: (numeric column, name of a transform) of those that have another one.
  std::vector<std::pair<std::string, std::string>> column_transforms;
  /// csv: of each numeric column. Empty before with_statistics(), or when they stay as they are.
  std::vector<NumericTransform> transforms;
  /// csv: (column, text that an empty cell counts as).
  std::vector<std::pair<std::string, std::string>> defaults;
  /// csv: those categorical columns that have several values.
  std::vector<MultiHot> multi_hot;
  /// csv: columns of `ids` behind the categorical ones. They may be numeric as well.
  std::vector<Bucketized> bucketized;
  /// csv: columns of `ids` behind these: of each pair, or more, of categorical or bucketized
  /// columns, what they say together.
  std::vector<std::vector<std::string>> crosses;
  /// csv: of categorical columns and sequences, those that are numbered by a vocabulary.
  std::vector<Vocabulary> vocabularies;
  /// csv: columns beside `ids`; none of them is categorical too.
  std::vector<Sequence> sequences;
  /// csv: in training data alone.
  Negatives negatives;
  /// csv: how texts are hashed.
  Hash hash = Hash::kXxh3;
  /// csv.
  char delimiter = ',';
  /// Ids per field, which is a categorical column, bucketized column, cross or sequence, in this
  /// order, where it has no vocabulary: id = ids of the fields before it + (hash of the text).
  int64_t hash_buckets = 100'000;
  /// If positive, values are integer ids in one space [0, id_space) that all fields share, and
  /// nothing is hashed. libsvm indices are always ids, in [0, id_space) (or [0, hash_buckets)).
  int64_t id_space = 0;
  /// True: a label other than 0 and 1 is a bad row. False: any finite number.
  bool binary_label = true;
  BadRows bad_rows = BadRows::kFail;
  /// Rows held for shuffling (text formats); for arrays any positive number shuffles all rows.
  /// 0 keeps the order. The synthetic stream has no order to break.
  int64_t shuffle_rows = 0;
  /// Decides the shuffled order together with the epoch and the part.
  uint64_t seed = 0;
  SyntheticSpec synthetic;
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

/// "none", "auto", "log1p", "standard", "log1p_standard", "minmax", "quantile".
std::string_view name_of(Transform transform);
/// The transform of that name, or kInvalidArgument listing the names.
Result<Transform> transform_from_name(std::string_view name);

/// "xxh3" or "farmhash".
std::string_view name_of(Hash hash);
/// The hash of that name, or kInvalidArgument.
Result<Hash> hash_from_name(std::string_view name);

/// `spec` as JSON text.
std::string to_json(const DataSpec& spec);
/// The spec of to_json(). Missing keys keep their defaults; an unknown key or a value of the wrong
/// type is kInvalidArgument naming it.
Result<DataSpec> spec_from_json(std::string_view text);

/// What the rows of a data set look like. Value type.
struct Schema {
  /// Columns of Batch::dense; 0: there is no `dense`.
  int64_t dense_width = 0;
  /// Columns of Batch::ids; 0 when there are none, or (weighted) when rows differ in length.
  int64_t fields = 0;
  /// Rows an embedding table needs: every id is below this.
  int64_t rows = 0;
  /// Columns of Batch::columns that are sequences of ids below `rows`: names and lengths.
  std::vector<std::pair<std::string, int64_t>> sequences;
  /// Columns of Batch::columns that are labels too, f32 [B].
  std::vector<std::string> targets;
  /// True when Batch::columns has kGroup.
  bool has_group = false;
  /// True when rows that did not happen are among them: DataSpec::negatives.
  bool has_negatives = false;
  /// True when batches have `weights` (libsvm).
  bool weighted = false;
  bool has_label = true;
  /// True when batches have `sample_weight`.
  bool has_sample_weight = false;
  /// Names of the dense columns and of the fields, where the format has names.
  std::vector<std::string> numeric;
  std::vector<std::string> categorical;
};

/// Checks that the files and columns of `spec` exist and that its numbers make sense; reads headers
/// only. Errors name the file and what to do.
Result<Schema> inspect(const DataSpec& spec);

/// The files that match, sorted within each pattern; patterns as in glob(7), also of other machines
/// and behind the name of a format. A pattern that matches nothing is kNotFound naming it.
Result<std::vector<std::string>> expand_globs(const std::vector<std::string>& patterns);

}  // namespace sidereal::data
