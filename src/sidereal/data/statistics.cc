#include "sidereal/data/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "sidereal/base/hash.h"
#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"
#include "sidereal/data/file_rows.h"
#include "sidereal/data/npy.h"
#include "sidereal/data/numeric_transform.h"
#include "sidereal/data/random.h"
#include "sidereal/data/vocabulary.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;

namespace {

constexpr size_t kSampleMax = 1 << 16;
constexpr size_t kExamples = 5;
constexpr size_t kQuantiles = 256;
// Above it, a column without negative numbers has a few that are far from the others.
constexpr double kHeavyTail = 2;

/// Sums of powers, about the first number so that little is lost.
class Moments {
 public:
  void add(double x) {
    if (count_++ == 0) origin_ = x;
    const double d = x - origin_;
    first_ += d;
    second_ += d * d;
    third_ += d * d * d;
  }
  [[nodiscard]] double mean() const { return count_ == 0 ? 0 : origin_ + shift(); }
  [[nodiscard]] double stddev() const {
    return count_ == 0 ? 0 : std::sqrt(std::max(0.0, second_ / n() - shift() * shift()));
  }
  [[nodiscard]] double skewness() const {
    const double s = stddev();
    const double m = shift();
    if (!(s > 0)) return 0;
    return (third_ / n() - 3 * m * second_ / n() + 2 * m * m * m) / (s * s * s);
  }

 private:
  [[nodiscard]] double n() const { return static_cast<double>(count_); }
  [[nodiscard]] double shift() const { return first_ / n(); }

  int64_t count_ = 0;
  double origin_ = 0;
  double first_ = 0;
  double second_ = 0;
  double third_ = 0;
};

class Column {
 public:
  Column(std::string name, uint64_t seed) : random_(seed) {
    found_.name = std::move(name);
    found_.parts.assign(kSeparators.size(), 1);
    found_.parted.assign(kSeparators.size(), 0);
  }

  /// Has the tokens of cells counted; `separator`: what is between those of one, 0: there is one.
  void count_tokens(char separator, std::string missing) {
    counts_tokens_ = true;
    separator_ = separator;
    default_ = std::move(missing);
  }

  void add(std::string_view text) {
    ++found_.rows;
    if (counts_tokens_) add_tokens(text.empty() ? std::string_view(default_) : text);
    const std::string_view cell = parse::trim_blanks(text);
    if (cell.empty()) {
      ++found_.missing;
      return;
    }
    float number = 0;
    if (parse::parse_float(cell, &number)) add_number(number);
    if (static_cast<int64_t>(seen_.size()) < kDistinctMax &&
        seen_.insert(base::hash64(text)).second && found_.examples.size() < kExamples) {
      found_.examples.emplace_back(text);
    }
    for (size_t i = 0; i < kSeparators.size(); ++i) {
      const auto count = std::count(cell.begin(), cell.end(), kSeparators[i]) + 1;
      found_.parts[i] = std::max<int64_t>(found_.parts[i], count);
      if (count > 1) ++found_.parted[i];
    }
  }

  ColumnStatistics finish() {
    found_.mean = plain_.mean();
    found_.stddev = plain_.stddev();
    found_.skewness = plain_.skewness();
    found_.log_mean = logs_.mean();
    found_.log_stddev = logs_.stddev();
    found_.distinct = static_cast<int64_t>(seen_.size());
    std::sort(found_.sample.begin(), found_.sample.end());
    found_.tokens.assign(tokens_.begin(), tokens_.end());
    std::sort(found_.tokens.begin(), found_.tokens.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first > b.first;
    });
    return std::move(found_);
  }

 private:
  void add_tokens(std::string_view text) {
    for (bool more = true; more;) {
      const size_t end = separator_ == 0 ? std::string_view::npos : text.find(separator_);
      more = end != std::string_view::npos;
      std::string_view token = text.substr(0, end);
      if (separator_ != 0) token = parse::trim_blanks(token);
      if (is_token(token)) ++tokens_[std::string(token)];
      text.remove_prefix(more ? end + 1 : text.size());
    }
  }

  void add_number(float x) {
    found_.min = found_.numbers == 0 ? x : std::min<double>(found_.min, x);
    found_.max = found_.numbers == 0 ? x : std::max<double>(found_.max, x);
    ++found_.numbers;
    if (x == std::trunc(x)) ++found_.integers;
    plain_.add(x);
    logs_.add(transformed(x, {.kind = Transform::kLog1p}));
    // Each number is kept with the same probability, whatever how many there are.
    if (found_.sample.size() < kSampleMax) {
      found_.sample.push_back(x);
    } else if (const uint64_t at = random_.below(found_.numbers); at < kSampleMax) {
      found_.sample[at] = x;
    }
  }

  ColumnStatistics found_;
  Moments plain_;
  Moments logs_;
  Random random_;
  std::unordered_set<uint64_t> seen_;
  bool counts_tokens_ = false;
  char separator_ = 0;
  std::string default_;
  std::unordered_map<std::string, int64_t> tokens_;
};

/// Has a column count its tokens where its vocabulary is to be found, and those of columns that
/// have the same ids.
void prepare(const DataSpec& spec, const std::string& name, Column* column) {
  const auto is_wanted = [&](const std::string& of) {
    return std::any_of(spec.vocabularies.begin(), spec.vocabularies.end(),
                       [&](const Vocabulary& v) { return v.column == of && v.tokens.empty(); });
  };
  std::string missing;
  for (const auto& [of, text] : spec.defaults) {
    if (of == name) missing = text;
  }
  char separator = 0;
  bool wanted = is_wanted(name);
  for (const MultiHot& one : spec.multi_hot) {
    if (one.column == name) separator = one.separator;
  }
  for (const Sequence& one : spec.sequences) {
    if (one.column != name) continue;
    separator = one.separator;
    wanted = wanted || is_wanted(one.like);
  }
  if (wanted) column->count_tokens(separator, std::move(missing));
}

/// Looks at the first `rows` rows of a file.
Status read_sample(const DataSpec& spec, const std::string& file, int64_t rows,
                   std::vector<std::string>* names, std::vector<Column>* columns) {
  SR_ASSIGN_OR_RETURN(auto found, open_rows(spec, file, nullptr));
  std::vector<std::string> header;
  SR_ASSIGN_OR_RETURN(const bool some, found->header(&header));
  if (!some) return {};
  std::vector<size_t> places;
  for (const std::string& name : header) {
    const auto at = std::find(names->begin(), names->end(), name);
    places.push_back(at - names->begin());
    if (at != names->end()) continue;
    names->push_back(name);
    columns->emplace_back(name, names->size());
    prepare(spec, name, &columns->back());
  }
  std::vector<std::string_view> cells;
  for (int64_t row = 0; row < rows; ++row) {
    SR_ASSIGN_OR_RETURN(const bool more, found->next());
    if (!more) break;
    if (!found->texts(&cells).ok() || cells.size() != places.size()) continue;
    for (size_t i = 0; i < cells.size(); ++i) (*columns)[places[i]].add(cells[i]);
  }
  return {};
}

Result<const ColumnStatistics*> numbers_of(const std::vector<ColumnStatistics>& found,
                                           const std::string& name) {
  const auto at = std::find_if(found.begin(), found.end(),
                               [&](const ColumnStatistics& one) { return one.name == name; });
  if (at == found.end()) {
    std::vector<std::string> names;
    for (const ColumnStatistics& one : found) names.push_back(one.name);
    return invalid_argument("no column '{}'; the columns are: {}", base::printable(name),
                            base::printable(base::join(names, ", ")));
  }
  if (at->numbers == 0 && at->rows > at->missing) {
    return invalid_argument(
        "column '{}' has no number among the first {} rows, but {}; take it as categorical",
        base::printable(name), at->rows, parse::shown(at->examples.front()));
  }
  return &*at;
}

/// Boundaries between `count` buckets of as many rows each; equal ones are one.
std::vector<float> quantiles(const std::vector<float>& sample, size_t count) {
  std::vector<float> out;
  for (size_t i = 1; i < count && !sample.empty(); ++i) {
    const float x = sample[i * sample.size() / count];
    if (x > sample.front() && (out.empty() || x > out.back())) out.push_back(x);
  }
  return out;
}

float scale_of(double width) {
  constexpr double kWidthMin = 1e-30;
  return width > kWidthMin ? static_cast<float>(1 / width) : 1.0F;
}

/// The number of which kLog1p makes y.
float unlogged(double y) { return static_cast<float>(std::copysign(std::expm1(std::abs(y)), y)); }

NumericTransform choose(Transform wanted, const ColumnStatistics& c) {
  NumericTransform out{.kind = wanted, .missing = static_cast<float>(c.mean)};
  if (wanted == Transform::kAuto) {
    out.kind =
        c.min >= 0 && c.skewness > kHeavyTail ? Transform::kLog1pStandard : Transform::kStandard;
  }
  switch (out.kind) {
    case Transform::kStandard:
      out.offset = static_cast<float>(c.mean);
      out.scale = scale_of(c.stddev);
      break;
    case Transform::kLog1p:
      out.missing = unlogged(c.log_mean);
      break;
    case Transform::kLog1pStandard:
      out.missing = unlogged(c.log_mean);
      out.offset = static_cast<float>(c.log_mean);
      out.scale = scale_of(c.log_stddev);
      break;
    case Transform::kMinmax:
      out.offset = static_cast<float>(c.min);
      out.scale = scale_of(c.max - c.min);
      break;
    case Transform::kQuantile:
      out.boundaries = quantiles(c.sample, kQuantiles);
      out.scale = scale_of(static_cast<double>(out.boundaries.size()));
      break;
    default:
      break;
  }
  return out;
}

}  // namespace

Result<std::vector<ColumnStatistics>> column_statistics(const DataSpec& spec, int64_t rows_max) {
  if (spec.files.empty()) return invalid_argument("no data files are named");
  const auto files = static_cast<int64_t>(spec.files.size());
  const int64_t chosen = std::min(files, kSampleFiles);
  std::vector<std::string> names;
  std::vector<Column> columns;
  for (int64_t i = 0; i < chosen; ++i) {
    const std::string& file = spec.files[i * files / chosen];
    SR_RETURN_IF_ERROR(
        read_sample(spec, file, std::max<int64_t>(1, rows_max / chosen), &names, &columns));
  }
  std::vector<ColumnStatistics> out;
  out.reserve(columns.size());
  for (Column& column : columns) out.push_back(column.finish());
  return out;
}

namespace {

bool wants_transforms(const DataSpec& spec) {
  const bool some = spec.numeric_transform != Transform::kNone || !spec.column_transforms.empty();
  return some && !spec.numeric.empty() && spec.transforms.empty();
}

/// What is wanted of a numeric column.
Result<Transform> transform_of(const DataSpec& spec, const std::string& column) {
  for (const auto& [name, transform] : spec.column_transforms) {
    if (name == column) return transform_from_name(transform);
  }
  return spec.numeric_transform;
}

/// largest_scale() of arrays: those of floats are numbers, and those of integers ids.
Result<std::pair<std::string, double>> largest_of_arrays(const DataSpec& spec) {
  std::pair<std::string, double> out;
  for (const auto& [name, file] : spec.arrays) {
    if (name == spec.label || name == "sample_weight") continue;
    SR_ASSIGN_OR_RETURN(const NpyArray array, map_npy(file));
    if (array.data.dtype() != tensor::DType::kFloat32) continue;
    const auto values = array.data.data<const float>();
    const int64_t rows = std::max<int64_t>(1, array.data.shape().dim(0));
    const auto width = values.size() / static_cast<size_t>(rows);
    const auto seen = std::min(values.size(), static_cast<size_t>(kSampleRows) * width);
    for (const float value : values.first(seen)) {
      const double size = std::abs(static_cast<double>(value));
      if (size > out.second) out = {name, size};
    }
  }
  return out;
}

}  // namespace

namespace {

/// The tokens of a column, and of the sequences that have its ids.
Status learn(const DataSpec& spec, const std::vector<ColumnStatistics>& found,
             Vocabulary* vocabulary) {
  std::unordered_map<std::string, int64_t> counts;
  for (const ColumnStatistics& column : found) {
    const bool is_like = std::any_of(
        spec.sequences.begin(), spec.sequences.end(),
        [&](const Sequence& s) { return s.column == column.name && s.like == vocabulary->column; });
    if (column.name != vocabulary->column && !is_like) continue;
    for (const auto& [token, count] : column.tokens) counts[token] += count;
  }
  if (counts.empty()) {
    return invalid_argument(
        "column '{}' has no text among the first rows that its vocabulary could be made of; give "
        "a file of tokens, or have it hashed",
        vocabulary->column);
  }
  std::vector<std::pair<int64_t, std::string>> order;
  order.reserve(counts.size());
  for (auto& [token, count] : counts) order.emplace_back(count, token);
  std::sort(order.rbegin(), order.rend());
  for (auto& [count, token] : order) vocabulary->tokens.push_back(std::move(token));
  cut_to_max(vocabulary);
  return {};
}

}  // namespace

bool needs_statistics(const DataSpec& spec) {
  if (spec.format != Format::kCsv) return false;
  return wants_transforms(spec) ||
         std::any_of(spec.vocabularies.begin(), spec.vocabularies.end(),
                     [](const Vocabulary& v) { return v.tokens.empty(); }) ||
         std::any_of(spec.bucketized.begin(), spec.bucketized.end(),
                     [](const Bucketized& b) { return b.boundaries.empty(); });
}

Result<DataSpec> with_statistics(DataSpec spec) {
  if (!needs_statistics(spec)) return spec;
  SR_ASSIGN_OR_RETURN(const auto found, column_statistics(spec));
  if (wants_transforms(spec)) {
    for (const auto& [name, transform] : spec.column_transforms) {
      if (std::find(spec.numeric.begin(), spec.numeric.end(), name) == spec.numeric.end()) {
        return invalid_argument("the transform of column '{}' is '{}', and it is not numeric", name,
                                transform);
      }
    }
    std::vector<NumericTransform> chosen;
    for (const std::string& name : spec.numeric) {
      SR_ASSIGN_OR_RETURN(const ColumnStatistics* const c, numbers_of(found, name));
      SR_ASSIGN_OR_RETURN(const Transform wanted, transform_of(spec, name));
      chosen.push_back(choose(wanted, *c));
    }
    spec.transforms = std::move(chosen);
  }
  for (Bucketized& one : spec.bucketized) {
    if (!one.boundaries.empty()) continue;
    SR_ASSIGN_OR_RETURN(const ColumnStatistics* const c, numbers_of(found, one.column));
    one.boundaries = quantiles(c->sample, static_cast<size_t>(one.buckets));
    if (one.boundaries.empty()) {
      return invalid_argument(
          "column '{}' is {} in each of the first {} rows: there are no buckets to make of it",
          one.column, c->min, c->rows);
    }
  }
  for (Vocabulary& one : spec.vocabularies) {
    if (one.tokens.empty()) SR_RETURN_IF_ERROR(learn(spec, found, &one));
  }
  return spec;
}

Result<std::pair<std::string, double>> largest_scale(const DataSpec& spec) {
  if (spec.format == Format::kArrays) return largest_of_arrays(spec);
  std::pair<std::string, double> out;
  if (spec.format != Format::kCsv || spec.numeric.empty()) return out;
  SR_ASSIGN_OR_RETURN(const auto found, column_statistics(spec));
  for (size_t i = 0; i < spec.numeric.size(); ++i) {
    const auto c = numbers_of(found, spec.numeric[i]);
    if (!c.ok()) continue;
    const NumericTransform by =
        i < spec.transforms.size() ? spec.transforms[i] : NumericTransform();
    for (const double x : {(*c)->min, (*c)->max}) {
      const double seen = std::abs(transformed(static_cast<float>(x), by));
      if (seen > out.second) out = {spec.numeric[i], seen};
    }
  }
  return out;
}

}  // namespace sidereal::data
