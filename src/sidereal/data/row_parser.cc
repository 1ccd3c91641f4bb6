#include "sidereal/data/row_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstring>
#include <utility>

#include "sidereal/data/csv_parser.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;
using parse::parse_float;
using parse::parse_integer;
using parse::shown;
using parse::trim_blanks;

Status parse_label(std::string_view text, bool binary, bool minus_one, float* out) {
  if (text.size() == 1 && (text[0] == '0' || text[0] == '1')) {
    *out = text[0] == '1' ? 1.0F : 0.0F;
    return {};
  }
  if (!parse_float(trim_blanks(text), out)) {
    return invalid_argument("the label {} is not a number{}", shown(text),
                            binary ? "; give every row a 0 or 1 as label" : "");
  }
  if (!binary) return {};
  if (minus_one && *out == -1.0F) *out = 0.0F;
  if (*out != 0.0F && *out != 1.0F) {
    return invalid_argument("the label {} is neither 0 nor 1{}; give every row a 0 or 1 as label",
                            shown(text), minus_one ? " (nor -1)" : "");
  }
  return {};
}

namespace {

/// What a comparison of numbers, or of texts, says of an op.
bool holds(std::string_view op, std::partial_ordering order) {
  if (op == "=") return order == 0;
  if (op == "!=") return order != 0;
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

bool is_equality(std::string_view op) { return op == "=" || op == "!="; }

}  // namespace

Status check_label_rule(const LabelRule& rule) {
  constexpr std::array<std::string_view, 7> kOps = {"", "=", "!=", "<", "<=", ">", ">="};
  if (std::find(kOps.begin(), kOps.end(), rule.op) == kOps.end()) {
    return invalid_argument("a label is compared by '{}'; say one of =, !=, <, <=, >, >=", rule.op);
  }
  float number = 0;
  if (!rule.op.empty() && !is_equality(rule.op) && !parse_float(trim_blanks(rule.value), &number)) {
    return invalid_argument("the label is compared with {} by {}, which takes a number",
                            shown(rule.value), rule.op);
  }
  return {};
}

Status parse_label_by(const LabelRule& rule, std::string_view text, bool binary, float* out) {
  if (rule.op.empty()) {
    Status parsed = parse_label(text, binary, false, out);
    if (parsed.ok() || !binary || trim_blanks(text).empty()) return parsed;
    const bool is_number = parse_float(trim_blanks(text), out);
    return base::with_message(
        parsed, fmt::format("{}, or say which labels are 1: {}", base::message_of(parsed),
                            is_number ? "--label 'COLUMN>=4'" : "--positive TEXT"));
  }
  text = trim_blanks(text);
  const std::string_view value = trim_blanks(rule.value);
  float given = 0;
  float wanted = 0;
  const bool has_number = parse_float(text, &given);
  if (has_number && parse_float(value, &wanted)) {
    *out = holds(rule.op, given <=> wanted) ? 1.0F : 0.0F;
    return {};
  }
  if (text.empty()) return invalid_argument("the label is empty; give every row one");
  if (!is_equality(rule.op)) {
    return invalid_argument("the label {} is not a number, which is asked for by {} {}",
                            shown(text), rule.op, value);
  }
  *out = holds(rule.op, text <=> value) ? 1.0F : 0.0F;
  return {};
}

namespace {

constexpr int kCriteoNumbers = 13;
constexpr int kCriteoCategories = 26;
constexpr int kCriteoFields = 1 + kCriteoNumbers + kCriteoCategories;

class CriteoParser final : public RowParser {
 public:
  CriteoParser(int64_t buckets, bool binary) : buckets_(buckets), binary_(binary) {
    for (size_t i = 0; i < small_logs_.size(); ++i) {
      small_logs_[i] = std::log1p(static_cast<float>(i));
    }
  }

  Status parse(std::string_view text, Row* row) override {
    row->dense.resize(kCriteoNumbers);
    row->ids.resize(kCriteoCategories);
    const char* at = text.data();
    const char* const end = at + text.size();
    int field = 0;
    while (true) {
      const auto* tab = static_cast<const char*>(std::memchr(at, '\t', end - at));
      const char* stop = tab == nullptr ? end : tab;
      const std::string_view value(at, stop - at);
      if (field > kCriteoNumbers) [[likely]] {
        if (field >= kCriteoFields) return wrong_count(text);
        const int category = field - 1 - kCriteoNumbers;
        row->ids[category] = category_id(value, category, buckets_);
      } else if (field == 0) {
        SR_RETURN_IF_ERROR(parse_label(value, binary_, false, &row->label));
      } else {
        SR_RETURN_IF_ERROR(parse_count(value, field, &row->dense[field - 1], text));
      }
      ++field;
      if (tab == nullptr) break;
      at = tab + 1;
    }
    return field == kCriteoFields ? Status() : wrong_count(text);
  }

  [[nodiscard]] Schema schema() const override {
    Schema schema;
    schema.dense_width = kCriteoNumbers;
    schema.fields = kCriteoCategories;
    schema.rows = kCriteoCategories * buckets_;
    for (int i = 1; i <= kCriteoNumbers; ++i) schema.numeric.push_back(fmt::format("I{}", i));
    for (int i = 1; i <= kCriteoCategories; ++i) {
      schema.categorical.push_back(fmt::format("C{}", i));
    }
    return schema;
  }

 private:
  static Status wrong_count(std::string_view text) {
    return invalid_argument(
        "{} fields where {} are expected (label, {} integers, {} categories, separated by tabs)",
        std::count(text.begin(), text.end(), '\t') + 1, kCriteoFields, kCriteoNumbers,
        kCriteoCategories);
  }

  Status parse_count(std::string_view value, int field, float* out, std::string_view text) const {
    if (value.empty()) {
      *out = 0;
      return {};
    }
    int64_t count = 0;
    if (!parse_integer(value, &count)) {
      // A row with a field too few shows first as a category among the integers.
      if (std::count(text.begin(), text.end(), '\t') + 1 != kCriteoFields) return wrong_count(text);
      return invalid_argument("field {} (I{}) is {}, not an integer", field + 1, field,
                              shown(value));
    }
    if (count < 0) count = 0;
    *out = static_cast<size_t>(count) < small_logs_.size() ? small_logs_[count]
                                                           : std::log1p(static_cast<float>(count));
    return {};
  }

  int64_t buckets_;
  bool binary_;
  std::array<float, 4096> small_logs_;
};

class LibsvmParser final : public RowParser {
 public:
  LibsvmParser(int64_t space, bool binary) : space_(space), binary_(binary) {}

  Status parse(std::string_view text, Row* row) override {
    row->dense.clear();
    row->ids.clear();
    row->weights.clear();
    text = text.substr(0, text.find('#'));
    std::string_view word = next_word(&text);
    SR_RETURN_IF_ERROR(parse_label(word, binary_, true, &row->label));
    while (!(word = next_word(&text)).empty()) {
      SR_RETURN_IF_ERROR(parse_pair(word, row));
    }
    return {};
  }

  [[nodiscard]] Schema schema() const override {
    Schema schema;
    schema.rows = space_;
    schema.weighted = true;
    return schema;
  }

 private:
  static std::string_view next_word(std::string_view* text) {
    size_t begin = 0;
    while (begin < text->size() && is_blank((*text)[begin])) ++begin;
    size_t end = begin;
    while (end < text->size() && !is_blank((*text)[end])) ++end;
    const std::string_view word = text->substr(begin, end - begin);
    text->remove_prefix(end);
    return word;
  }
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

  Status parse_pair(std::string_view word, Row* row) const {
    const size_t colon = word.find(':');
    int64_t index = 0;
    if (!parse_integer(word.substr(0, colon), &index)) {
      return invalid_argument("{} is not index:value with an integer index", shown(word));
    }
    if (index < 0 || index >= space_) {
      return invalid_argument(
          "index {} is outside [0, {}); give an id space larger than the largest index", index,
          space_);
    }
    float value = 1;
    if (colon != std::string_view::npos && !parse_float(word.substr(colon + 1), &value)) {
      return invalid_argument("{} is not index:value with a finite number as value", shown(word));
    }
    row->ids.push_back(index);
    row->weights.push_back(value);
    return {};
  }

  int64_t space_;
  bool binary_;
};

}  // namespace

Result<std::unique_ptr<RowParser>> make_parser(const DataSpec& spec) {
  // Criteo's categories are not integers in general, so an id space means nothing there.
  const bool hashed = spec.format == Format::kCriteo || spec.id_space <= 0;
  if (spec.id_space < 0) {
    return invalid_argument("id_space is {}; it must be positive, or 0 to hash", spec.id_space);
  }
  if (hashed && (spec.hash_buckets <= 0 || spec.hash_buckets > kHashBucketsMax)) {
    return invalid_argument("hash_buckets is {}; it must be from 1 to {}", spec.hash_buckets,
                            kHashBucketsMax);
  }
  switch (spec.format) {
    case Format::kCriteo:
      return std::make_unique<CriteoParser>(spec.hash_buckets, spec.binary_label);
    case Format::kLibsvm:
      return std::make_unique<LibsvmParser>(spec.id_space > 0 ? spec.id_space : spec.hash_buckets,
                                            spec.binary_label);
    case Format::kCsv:
      return make_csv_parser(spec);
    default:
      return invalid_argument("format {} is not text", name_of(spec.format));
  }
}

}  // namespace sidereal::data
