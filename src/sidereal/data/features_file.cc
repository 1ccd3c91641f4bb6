#include "sidereal/data/features_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/data/toml.h"
#include "sidereal/data/vocabulary.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;
using Json = nlohmann::ordered_json;

namespace {

Result<std::string> text_of(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return invalid_argument("'{}' must be a text in quotes", key);
}

Result<int64_t> whole_of(const std::string& key, const Json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  return invalid_argument("'{}' must be a whole number", key);
}

Result<std::vector<float>> numbers_of(const std::string& key, const Json& value) {
  std::vector<float> out;
  for (const Json& one : value.is_array() ? value : Json::array({nullptr})) {
    if (!one.is_number()) return invalid_argument("'{}' must be a list of numbers", key);
    out.push_back(one.get<float>());
    if (!std::isfinite(out.back())) {
      return invalid_argument("'{}' has {}, which is no finite number of 32 bits", key, one.dump());
    }
  }
  if (!std::is_sorted(out.begin(), out.end())) {
    return invalid_argument("'{}' must ascend", key);
  }
  return out;
}

/// What a [columns.NAME] says.
struct ColumnEntry {
  std::string type;
  std::optional<std::string> transform;
  std::optional<std::string> missing;
  std::optional<char> separator;
  int64_t max_length = 0;
  int64_t buckets = 0;
  std::vector<float> boundaries;
  std::optional<Vocabulary> vocabulary;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> num_oov_indices;
  std::optional<std::string> padding;
  std::optional<std::string> truncating;
  std::optional<std::string> like;
};

/// "auto", a list of tokens, or a file, whose name is seen from the folder of the file of features.
Result<Vocabulary> vocabulary_of(const Json& value, const std::string& folder) {
  Vocabulary out;
  if (!value.is_array()) {
    SR_ASSIGN_OR_RETURN(const std::string source, text_of("vocabulary", value));
    if (source == "auto") return out;
    SR_ASSIGN_OR_RETURN(out.tokens,
                        read_vocabulary((std::filesystem::path(folder) / source).string()));
    return out;
  }
  for (const Json& one : value) {
    SR_ASSIGN_OR_RETURN(out.tokens.emplace_back(), text_of("vocabulary", one));
  }
  if (out.tokens.empty()) return invalid_argument("'vocabulary' is a list without tokens");
  return out;
}

Status take_key(const std::string& key, const Json& value, const std::string& folder,
                ColumnEntry* out) {
  if (key == "vocabulary") {
    SR_ASSIGN_OR_RETURN(out->vocabulary, vocabulary_of(value, folder));
    return {};
  }
  if (key == "max_tokens" || key == "num_oov_indices") {
    auto& number = key == "max_tokens" ? out->max_tokens : out->num_oov_indices;
    SR_ASSIGN_OR_RETURN(number, whole_of(key, value));
    return {};
  }
  if (key == "default" && value.is_number()) {
    out->missing = value.dump();
    return {};
  }
  if (key == "max_length") {
    SR_ASSIGN_OR_RETURN(out->max_length, whole_of(key, value));
    return {};
  }
  if (key == "buckets") {
    SR_ASSIGN_OR_RETURN(out->buckets, whole_of(key, value));
    return {};
  }
  if (key == "boundaries") {
    SR_ASSIGN_OR_RETURN(out->boundaries, numbers_of(key, value));
    return {};
  }
  constexpr std::array<std::string_view, 7> kTexts = {
      "type", "transform", "default", "separator", "padding", "truncating", "like"};
  if (std::find(kTexts.begin(), kTexts.end(), key) == kTexts.end()) {
    return invalid_argument(
        "unknown key '{}'; the keys are type, transform, default, separator, max_length, padding, "
        "truncating, like, buckets, boundaries, vocabulary, max_tokens and num_oov_indices",
        key);
  }
  SR_ASSIGN_OR_RETURN(const std::string text, text_of(key, value));
  if (key == "type") out->type = text;
  if (key == "transform") out->transform = text;
  if (key == "default") out->missing = text;
  if (key == "padding") out->padding = text;
  if (key == "truncating") out->truncating = text;
  if (key == "like") out->like = text;
  if (key != "separator") return {};
  if (text.size() != 1) return invalid_argument("'separator' must be one character of ASCII");
  out->separator = text[0];
  return {};
}

Status put_vocabulary(const std::string& name, const ColumnEntry& entry, DataSpec* spec) {
  if (!entry.vocabulary.has_value()) {
    if (!entry.max_tokens.has_value() && !entry.num_oov_indices.has_value()) return {};
    return invalid_argument(
        "'max_tokens' and 'num_oov_indices' are of a vocabulary; write vocabulary = \"auto\" too");
  }
  if (entry.type != "categorical" && entry.type != "sequence") {
    return invalid_argument("only categorical columns and sequences have a vocabulary");
  }
  Vocabulary made = *entry.vocabulary;
  made.column = name;
  made.max_tokens = entry.max_tokens.value_or(0);
  made.num_oov_indices = entry.num_oov_indices.value_or(1);
  cut_to_max(&made);
  SR_RETURN_IF_ERROR(check_vocabulary(made));
  spec->vocabularies.push_back(std::move(made));
  return {};
}

Status put_sequence(const std::string& name, const ColumnEntry& entry, DataSpec* spec) {
  if (entry.type != "sequence") {
    if (!entry.padding.has_value() && !entry.truncating.has_value() && !entry.like.has_value()) {
      return {};
    }
    return invalid_argument("'padding', 'truncating' and 'like' are of the type sequence");
  }
  if (!entry.separator.has_value()) {
    return invalid_argument("a sequence has 'separator' and 'max_length'");
  }
  Sequence made{.column = name,
                .separator = *entry.separator,
                .max_length = entry.max_length,
                .padding = entry.padding.value_or("post"),
                .truncating = entry.truncating.value_or("post"),
                .like = entry.like.value_or("")};
  SR_RETURN_IF_ERROR(check_sequence(made));
  spec->sequences.push_back(std::move(made));
  return {};
}

Status put_column(const std::string& name, const ColumnEntry& entry, DataSpec* spec) {
  if (entry.type == "ignored") return {};
  const bool is_numeric = entry.type == "numeric";
  const bool is_bucketized = entry.type == "bucketized";
  const bool is_sequence = entry.type == "sequence";
  if (!is_numeric && !is_bucketized && !is_sequence && entry.type != "categorical") {
    return invalid_argument(
        "the type is '{}'; it must be numeric, bucketized, categorical, sequence or ignored",
        entry.type);
  }
  SR_RETURN_IF_ERROR(put_vocabulary(name, entry, spec));
  const bool has_buckets = entry.buckets > 0 || !entry.boundaries.empty();
  if (is_numeric) spec->numeric.push_back(name);
  if (is_bucketized && !has_buckets) {
    return invalid_argument("a bucketized column has 'buckets' or 'boundaries'");
  }
  if (has_buckets) {
    if (!is_numeric && !is_bucketized) {
      return invalid_argument("buckets are of numbers, and the column is {}", entry.type);
    }
    spec->bucketized.push_back(
        {.column = name, .buckets = entry.buckets, .boundaries = entry.boundaries});
  }
  if (entry.type == "categorical") spec->categorical.push_back(name);
  if (entry.transform.has_value()) {
    if (!is_numeric) return invalid_argument("only numeric columns have a transform");
    SR_RETURN_IF_ERROR(transform_from_name(*entry.transform).status());
    spec->column_transforms.emplace_back(name, *entry.transform);
  }
  if (entry.separator.has_value() != (entry.max_length > 0)) {
    return invalid_argument("'separator' and 'max_length' (1 or more) go together");
  }
  SR_RETURN_IF_ERROR(put_sequence(name, entry, spec));
  if (entry.separator.has_value() && !is_sequence) {
    if (entry.type != "categorical") {
      return invalid_argument("only categorical columns have several values in a cell");
    }
    spec->multi_hot.push_back(
        {.column = name, .separator = *entry.separator, .max_length = entry.max_length});
  }
  if (entry.missing.has_value()) spec->defaults.emplace_back(name, *entry.missing);
  return {};
}

Status take_columns(const Json& columns, const std::string& folder, DataSpec* spec) {
  if (!columns.is_object()) return invalid_argument("'columns' must be tables, [columns.NAME]");
  for (const auto& [name, table] : columns.items()) {
    const std::string where = fmt::format("[columns.{}]", name);
    if (!table.is_object()) return invalid_argument("{} must be a table", where);
    ColumnEntry entry;
    for (const auto& [key, value] : table.items()) {
      SR_RETURN_IF_ERROR(base::with_context(take_key(key, value, folder, &entry), where));
    }
    SR_RETURN_IF_ERROR(base::with_context(put_column(name, entry, spec), where));
  }
  return {};
}

Status take_crosses(const Json& value, DataSpec* spec) {
  if (!value.is_array()) return invalid_argument("'crosses' must be a list of lists of columns");
  for (const Json& cross : value) {
    auto& columns = spec->crosses.emplace_back();
    for (const Json& column : cross.is_array() ? cross : Json::array({nullptr})) {
      SR_ASSIGN_OR_RETURN(auto name, text_of("crosses", column));
      columns.push_back(std::move(name));
    }
  }
  return {};
}

Status take_root(const Json& root, const std::string& folder, DataSpec* spec) {
  bool has_positive = false;
  for (const auto& [key, value] : root.items()) {
    if (key == "columns") {
      SR_RETURN_IF_ERROR(take_columns(value, folder, spec));
    } else if (key == "crosses") {
      SR_RETURN_IF_ERROR(take_crosses(value, spec));
    } else if (key == "hash_buckets") {
      SR_ASSIGN_OR_RETURN(spec->hash_buckets, whole_of(key, value));
    } else {
      SR_ASSIGN_OR_RETURN(const std::string text, text_of(key, value));
      if (key == "label") {
        if (has_positive) return invalid_argument("'label' stands before 'positive'");
        SR_RETURN_IF_ERROR(parse_label_option(text, spec));
      } else if (key == "positive") {
        has_positive = true;
        spec->label_rule = {.op = "=", .value = text};
      } else if (key == "weight") {
        spec->weight = text;
      } else if (key == "hash") {
        SR_ASSIGN_OR_RETURN(spec->hash, hash_from_name(text));
      } else if (key == "numeric_transform") {
        SR_ASSIGN_OR_RETURN(spec->numeric_transform, transform_from_name(text));
      } else {
        return invalid_argument(
            "unknown key '{}'; the keys are label, positive, weight, numeric_transform, "
            "hash, hash_buckets, crosses and [columns.NAME]",
            key);
      }
    }
  }
  return {};
}

// ---- proposing ----------------------------------------------------------------------------------

/// Whole numbers of which there are no more are taken as categories.
constexpr int64_t kFewValues = 10;
/// Rows from which on a text that is nearly always another one is of no use.
constexpr int64_t kManyRows = 1000;
constexpr int64_t kProposedLengthMax = 64;

bool is_all_numbers(const ColumnStatistics& c) {
  return c.numbers > 0 && c.numbers + c.missing == c.rows;
}

/// Many whole numbers from 0 or more on with hardly a gap: users and items are numbered so.
bool is_numbered(const ColumnStatistics& c) {
  constexpr int64_t kManyIds = 200;
  return is_all_numbers(c) && c.integers == c.numbers && c.min >= 0 && c.distinct >= kManyIds &&
         static_cast<double>(c.distinct) >= 0.8 * (c.max - c.min + 1);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

const ColumnStatistics* label_among(const std::vector<ColumnStatistics>& columns,
                                    const std::string& label) {
  for (const auto& c : columns) {
    if (c.name == label) return &c;
  }
  if (!label.empty()) return nullptr;
  for (const char* const name : {"label", "click", "clicked", "target", "income", "class", "y"}) {
    for (const auto& c : columns) {
      if (lower(c.name) == name) return &c;
    }
  }
  for (auto c = columns.rbegin(); c != columns.rend(); ++c) {
    if (c->distinct == 2) return &*c;
  }
  return nullptr;
}

std::string label_lines(const ColumnStatistics& c) {
  const bool is_plain = is_all_numbers(c) && c.distinct <= 2 && c.min >= 0 && c.max <= 1;
  if (is_plain) return fmt::format("label = {}\n", toml_string(c.name));
  if (is_all_numbers(c) && c.distinct > 2) {
    return fmt::format("# {} to {}: from where on is it 1?\nlabel = {}\n", c.min, c.max,
                       toml_string(fmt::format("{}>={:g}", c.name, std::ceil(c.mean))));
  }
  const std::string value = c.examples.empty() ? "" : c.examples.back();
  return fmt::format("label = {}\n# Which of {} is 1?\npositive = {}\n", toml_string(c.name),
                     base::join(
                         [&] {
                           std::vector<std::string> shown;
                           for (const auto& one : c.examples) shown.push_back(parse::shown(one));
                           return shown;
                         }(),
                         ", "),
                     toml_string(base::trim(value)));
}

std::string known_of(const ColumnStatistics& c) {
  const double missing =
      c.rows == 0 ? 0 : 100.0 * static_cast<double>(c.missing) / static_cast<double>(c.rows);
  const std::string distinct =
      fmt::format("{}{} different", c.distinct >= kDistinctMax ? "at least " : "", c.distinct);
  if (is_all_numbers(c)) {
    return fmt::format("{}, {:g} to {:g}, mean {:g}, deviation {:g}, {}, {:.3g} % missing",
                       c.integers == c.numbers ? "whole numbers" : "numbers", c.min, c.max, c.mean,
                       c.stddev, distinct, missing);
  }
  std::vector<std::string> shown;
  for (size_t i = 0; i < c.examples.size() && i < 3; ++i) {
    shown.push_back(parse::shown(c.examples[i]));
  }
  return fmt::format("texts such as {}, {}, {:.3g} % missing", base::join(shown, ", "), distinct,
                     missing);
}

std::string column_lines(const ColumnStatistics& c) {
  if (c.distinct <= 1) return "type = \"ignored\"  # It is always the same.\n";
  const std::string name = lower(c.name);
  const bool is_id = name == "id" || name.ends_with("_id");
  if (!is_id && is_numbered(c)) {
    return "type = \"categorical\"  # Ids, it seems: numbers with hardly a gap.\n";
  }
  if (is_all_numbers(c) && !is_id && (c.integers < c.numbers || c.distinct > kFewValues)) {
    return "type = \"numeric\"\n";
  }
  // What parts many cells, and is not a part of words as blanks and commas are.
  for (size_t i = 0; i < 2; ++i) {
    if (c.parted[i] * 5 < c.rows - c.missing) continue;
    return fmt::format("type = \"categorical\"\nseparator = {}\nmax_length = {}\n",
                       toml_string(kSeparators.substr(i, 1)),
                       std::min(c.parts[i], kProposedLengthMax));
  }
  if (!is_id && c.rows >= kManyRows && c.distinct * 20 > c.rows * 19) {
    return "type = \"ignored\"  # Nearly every row has another one.\n";
  }
  return "type = \"categorical\"\n";
}

}  // namespace

Status parse_label_option(const std::string& text, DataSpec* spec) {
  const size_t at = text.find_first_of("<>=!");
  spec->label = std::string(base::trim(text.substr(0, at)));
  spec->label_rule = {};
  if (at == std::string::npos) return {};
  const bool is_two = at + 1 < text.size() && text[at] != '=' && text[at + 1] == '=';
  const size_t length = is_two ? 2 : 1;
  spec->label_rule.op = text.substr(at, length);
  spec->label_rule.value = std::string(base::trim(text.substr(at + length)));
  if (spec->label.empty() || spec->label_rule.op == "!" || spec->label_rule.value.empty()) {
    return invalid_argument(
        "the label is '{}'; it must be a column, or a comparison such as 'rating>=4' or "
        "'income=>50K'",
        text);
  }
  return {};
}

Status take_features_text(std::string_view text, const std::string& path, DataSpec* spec) {
  const bool has_columns =
      !(spec->numeric.empty() && spec->categorical.empty() && spec->defaults.empty() &&
        spec->multi_hot.empty() && spec->bucketized.empty() && spec->crosses.empty() &&
        spec->vocabularies.empty() && spec->sequences.empty());
  if (has_columns) {
    return invalid_argument(
        "{} says what the columns are; leave out --numeric, --categorical, --default, "
        "--multi-hot, --buckets, --cross, --vocabulary and --sequence",
        path);
  }
  const size_t good = base::utf8_bytes(text);
  if (good < text.size()) {
    return invalid_argument("{}: line {} is not UTF-8; save the file as UTF-8", path,
                            1 + std::count(text.begin(), text.begin() + good, '\n'));
  }
  const auto root = parse_toml(text);
  SR_RETURN_IF_ERROR(base::with_context(root.status(), path));
  SR_RETURN_IF_ERROR(base::with_context(
      take_root(*root, std::filesystem::path(path).parent_path().string(), spec), path));
  if (spec->numeric.empty() && spec->categorical.empty() && spec->bucketized.empty() &&
      spec->sequences.empty()) {
    return invalid_argument("{} names no column; say what each is in a [columns.NAME]", path);
  }
  return {};
}

Status take_features(const std::string& path, DataSpec* spec) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) return base::not_found("cannot read the file of features {}", path);
  return take_features_text(content.str(), path, spec);
}

std::string proposed_features(const std::vector<ColumnStatistics>& columns,
                              const std::string& label) {
  std::string out;
  const ColumnStatistics* const labels = label_among(columns, label);
  out +=
      labels == nullptr ? "# Which column is the label?\n# label = \"\"\n" : label_lines(*labels);
  for (const ColumnStatistics& c : columns) {
    if (&c == labels) continue;
    out +=
        fmt::format("\n[columns.{}]  # {}\n{}", toml_string(c.name), known_of(c), column_lines(c));
  }
  return out;
}

}  // namespace sidereal::data
