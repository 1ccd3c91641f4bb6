#include "sidereal/data/csv_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"
#include "sidereal/data/csv_checks.h"
#include "sidereal/data/numeric_transform.h"
#include "sidereal/data/vocabulary.h"
#include "sidereal/parse/csv.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;
using parse::parse_float;
using parse::parse_integer;
using parse::shown;
using parse::split_csv;
using parse::trim_blanks;

namespace {

/// Names of columns for a message: a file that is no CSV may have anything in its first line.
std::string column_names(const std::vector<std::string>& names) {
  constexpr size_t kNamesMax = 50;
  constexpr size_t kNameBytesMax = 60;
  std::vector<std::string> shown;
  for (size_t i = 0; i < names.size() && i < kNamesMax; ++i) {
    shown.push_back(base::printable(base::message_text(names[i], kNameBytesMax)));
  }
  std::string out = base::join(shown, ", ");
  if (names.size() > kNamesMax) out += fmt::format(" and {} more", names.size() - kNamesMax);
  return out;
}

class CsvParser final : public RowParser {
 public:
  explicit CsvParser(const DataSpec& spec) : spec_(spec) {
    numeric_ = spec.numeric;
    categorical_ = spec.categorical;
    for (const NumericTransform& one : spec.transforms) numbers_.push_back(one);
    numbers_.resize(numeric_.size());
    for (const auto& [label, weight] : spec.class_weights) {
      auto& [at, by] = class_weights_.emplace_back(0.0F, 1.0F);
      // check_csv() has seen that they are numbers.
      static_cast<void>(parse_float(label, &at) && parse_float(weight, &by));
    }
  }

  [[nodiscard]] bool has_header() const override { return true; }

  Status start_file(std::string_view header) override {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (header.starts_with(kByteOrderMark)) header.remove_prefix(kByteOrderMark.size());
    SR_RETURN_IF_ERROR(split_csv(header, {.delimiter = spec_.delimiter}, &fields_, &scratch_));
    std::vector<std::string> found;
    for (const std::string_view name : fields_) found.emplace_back(trim_blanks(name));
    if (!started_ && spec_.categorical.empty()) choose_categorical(found);
    if (!started_) SR_RETURN_IF_ERROR(lay_out());
    started_ = true;

    roles_.assign(found.size(), Role{});
    std::vector<std::pair<std::string, Kind>> others;
    if (!spec_.label.empty()) others.emplace_back(spec_.label, Kind::kLabel);
    if (!spec_.weight.empty()) others.emplace_back(spec_.weight, Kind::kWeight);
    if (!spec_.group.empty()) others.emplace_back(spec_.group, Kind::kGroup);
    for (const auto& [name, kind] : others) {
      SR_ASSIGN_OR_RETURN(Role* const role, role_of(found, name));
      role->kind = kind;
    }
    for (size_t i = 0; i < spec_.targets.size(); ++i) {
      SR_ASSIGN_OR_RETURN(Role* const role, role_of(found, spec_.targets[i]));
      *role = {.kind = Kind::kTarget, .slot = static_cast<uint32_t>(numeric_.size() + i)};
    }
    for (size_t i = 0; i < numeric_.size(); ++i) {
      SR_ASSIGN_OR_RETURN(Role* const role, role_of(found, numeric_[i]));
      *role = {.kind = Kind::kNumber, .slot = static_cast<uint32_t>(i)};
    }
    for (size_t i = 0; i < categorical_.size(); ++i) {
      SR_ASSIGN_OR_RETURN(Role* const role, role_of(found, categorical_[i]));
      *role = {.kind = categories_[i].is_plain() ? Kind::kCategory : Kind::kSpecial,
               .slot = static_cast<uint32_t>(categories_[i].slot),
               .field = static_cast<uint32_t>(i),
               .shift = ids_[i].shift()};
    }
    for (size_t i = 0; i < spec_.sequences.size(); ++i) {
      SR_ASSIGN_OR_RETURN(Role* const role, role_of(found, spec_.sequences[i].column));
      *role = {.kind = Kind::kSequence,
               .slot = static_cast<uint32_t>(sequences_[i].slot),
               .field = static_cast<uint32_t>(i)};
    }
    for (size_t i = 0; i < spec_.bucketized.size(); ++i) {
      SR_ASSIGN_OR_RETURN(Role* const role, role_of(found, spec_.bucketized[i].column));
      if (role->kind == Kind::kUnused) role->kind = Kind::kBuckets;
      role->bucketized = static_cast<int32_t>(i);
    }
    names_.clear();
    for (const std::string& name : found) names_.push_back(base::printable(name));
    return {};
  }

  Status parse(std::string_view text, Row* row) override {
    row->dense.resize(numeric_.size() + spec_.targets.size());
    row->ids.resize(width_ + sequence_width_ + (spec_.group.empty() ? 0 : 1));
    row->sample_weight = 1;
    if (std::memchr(text.data(), '"', text.size()) != nullptr) {
      SR_RETURN_IF_ERROR(split_csv(text, {.delimiter = spec_.delimiter}, &fields_, &scratch_));
      if (fields_.size() != roles_.size()) return wrong_count(fields_.size());
      for (size_t i = 0; i < fields_.size(); ++i) SR_RETURN_IF_ERROR(take(i, fields_[i], row));
    } else {
      SR_RETURN_IF_ERROR(parse_unquoted(text, row));
    }
    for (const Cross& cross : crosses_) row->ids[cross.slot] = crossed(cross);
    return {};
  }

  void weigh(Row* row) const override {
    for (const auto& [label, weight] : class_weights_) {
      if (row->label == label) row->sample_weight *= weight;
    }
  }

  [[nodiscard]] NegativeSlot negative_slot() const override { return negative_slot_; }

  [[nodiscard]] Schema schema() const override {
    Schema schema;
    schema.has_label = !spec_.label.empty();
    schema.dense_width = static_cast<int64_t>(numeric_.size());
    schema.fields = static_cast<int64_t>(width_);
    schema.rows = ids_.empty() ? 0 : ids_.back().first() + ids_.back().size();
    if (spec_.id_space > 0) schema.rows = spec_.id_space;
    if (schema.fields == 0 && sequences_.empty()) schema.rows = 0;
    for (const Sequence& one : spec_.sequences) {
      schema.sequences.emplace_back(one.column, one.max_length);
    }
    schema.has_sample_weight = !(spec_.weight.empty() && spec_.class_weights.empty());
    schema.targets = spec_.targets;
    schema.has_group = !spec_.group.empty();
    schema.has_negatives = !spec_.negatives.column.empty();
    schema.numeric = numeric_;
    schema.categorical = categorical_;
    return schema;
  }

 private:
  enum class Kind : uint8_t {
    kUnused,
    kLabel,
    kNumber,
    kCategory,
    kSpecial,  ///< A category with more to it than its text's hash.
    kBuckets,  ///< A number that is nothing but bucketized.
    kWeight,
    kSequence,
    kTarget,
    kGroup,
  };
  struct Role {
    Kind kind = Kind::kUnused;
    uint32_t slot = 0;   ///< In `dense`, or the first one in `ids`.
    uint32_t field = 0;  ///< Of categories and sequences: which.
    int32_t bucketized = -1;
    int64_t shift = 0;  ///< Of kCategory: from category_id() to its id.
  };
  struct Category {
    size_t slot = 0;
    size_t length = 1;      ///< Slots it has.
    char separator = 0;     ///< 0: a cell is one value.
    std::string missing;    ///< What an empty cell counts as.
    int64_t crossed = -1;   ///< Its place among texts_, if a cross wants it.
    bool is_hashed = true;  ///< By category_id().
    [[nodiscard]] bool is_plain() const {
      return separator == 0 && missing.empty() && crossed < 0 && is_hashed;
    }
  };
  struct Buckets {
    size_t slot = 0;
    std::optional<float> missing;
    int64_t crossed = -1;
  };
  struct Cross {
    size_t slot = 0;
    size_t field = 0;
    std::vector<size_t> texts;
    std::vector<bool> are_numbers;
  };
  struct SequenceSlots {
    size_t slot = 0;
    size_t field = 0;  ///< Of its ids.
    std::string missing;
  };

  // The first file decides; the others must have the same columns, in any order.
  void choose_categorical(const std::vector<std::string>& found) {
    categorical_.clear();
    std::set<std::string> taken(numeric_.begin(), numeric_.end());
    if (!spec_.label.empty()) taken.insert(spec_.label);
    if (!spec_.weight.empty()) taken.insert(spec_.weight);
    for (const Bucketized& one : spec_.bucketized) taken.insert(one.column);
    for (const Sequence& one : spec_.sequences) taken.insert(one.column);
    taken.insert(spec_.targets.begin(), spec_.targets.end());
    if (!spec_.group.empty()) taken.insert(spec_.group);
    for (const std::string& name : found) {
      if (!taken.contains(name)) categorical_.push_back(name);
    }
  }

  /// Gives each field its slots.
  Status lay_out() {
    width_ = 0;
    categories_.assign(categorical_.size(), {});
    for (size_t i = 0; i < categorical_.size(); ++i) {
      const auto many =
          std::find_if(spec_.multi_hot.begin(), spec_.multi_hot.end(),
                       [&](const MultiHot& m) { return m.column == categorical_[i]; });
      categories_[i].slot = width_;
      if (many != spec_.multi_hot.end()) {
        categories_[i].separator = many->separator;
        categories_[i].length = static_cast<size_t>(many->max_length);
      }
      width_ += categories_[i].length;
    }
    for (const MultiHot& many : spec_.multi_hot) {
      SR_RETURN_IF_ERROR(category_of(many.column, "which has several values").status());
    }
    buckets_.assign(spec_.bucketized.size(), {});
    for (Buckets& one : buckets_) one.slot = width_++;
    SR_RETURN_IF_ERROR(number_fields());
    SR_RETURN_IF_ERROR(take_defaults());
    SR_RETURN_IF_ERROR(place_negatives());
    crosses_.clear();
    // Fields are known by their names, and so are the ids that models are served with.
    std::set<std::string> named(categorical_.begin(), categorical_.end());
    for (const Bucketized& one : spec_.bucketized) named.insert(one.column);
    for (size_t i = 0; i < spec_.crosses.size(); ++i) {
      Cross& cross = crosses_.emplace_back();
      const std::string joined = base::join(spec_.crosses[i], "*");
      if (!named.insert(joined).second) {
        return invalid_argument(
            "the cross '{}' is named twice, or a column has its name; name each field once",
            joined);
      }
      cross.slot = width_++;
      cross.field = categories_.size() + buckets_.size() + i;
      for (const std::string& name : spec_.crosses[i]) {
        SR_ASSIGN_OR_RETURN(int64_t* const place, crossed_of(name));
        if (*place < 0) {
          *place = static_cast<int64_t>(texts_.size());
          texts_.emplace_back();
        }
        cross.texts.push_back(static_cast<size_t>(*place));
        cross.are_numbers.push_back(is_bucketized(name));
      }
    }
    return {};
  }

  [[nodiscard]] bool is_bucketized(const std::string& name) const {
    return std::any_of(spec_.bucketized.begin(), spec_.bucketized.end(),
                       [&](const Bucketized& one) { return one.column == name; });
  }

  /// Gives each field its ids, and sequences their slots.
  Status number_fields() {
    std::set<std::string> numbered;
    for (const Vocabulary& one : spec_.vocabularies) numbered.insert(one.column);
    ids_.clear();
    const auto add = [&](const std::string& column) {
      const auto field = static_cast<int64_t>(ids_.size());
      const int64_t first = ids_.empty() ? 0 : ids_.back().first() + ids_.back().size();
      for (const Vocabulary& one : spec_.vocabularies) {
        if (one.column != column || numbered.erase(column) == 0) continue;
        ids_.emplace_back(field, first, one);
        return;
      }
      ids_.emplace_back(field, first, spec_.hash, spec_.hash_buckets);
    };
    for (size_t i = 0; i < categorical_.size(); ++i) {
      add(categorical_[i]);
      categories_[i].is_hashed = ids_.back().is_plain();
    }
    for (size_t i = 0; i < spec_.bucketized.size() + spec_.crosses.size(); ++i) add("");
    sequences_.clear();
    sequence_width_ = 0;
    for (const Sequence& one : spec_.sequences) {
      SequenceSlots& made = sequences_.emplace_back();
      made.slot = width_ + spec_.crosses.size() + sequence_width_;
      sequence_width_ += static_cast<size_t>(one.max_length);
      made.field = ids_.size();
      if (one.like.empty()) {
        add(one.column);
      } else {
        SR_ASSIGN_OR_RETURN(made.field, category_of(one.like, "whose ids a sequence is to have"));
      }
    }
    if (numbered.empty()) return {};
    return invalid_argument(
        "column '{}' has a vocabulary and is neither categorical nor a sequence with ids of its "
        "own; they are: {}",
        *numbered.begin(), base::join(categorical_, ", "));
  }

  Status place_negatives() {
    const Negatives& wanted = spec_.negatives;
    if (wanted.column.empty()) return {};
    SR_ASSIGN_OR_RETURN(const size_t at, category_of(wanted.column, "which is to have negatives"));
    const bool is_crossed = std::any_of(
        spec_.crosses.begin(), spec_.crosses.end(), [&](const std::vector<std::string>& cross) {
          return std::find(cross.begin(), cross.end(), wanted.column) != cross.end();
        });
    if (categories_[at].separator != 0 || is_crossed) {
      return invalid_argument("column '{}' {}; it cannot have negatives", wanted.column,
                              is_crossed ? "is crossed" : "has several values in a cell");
    }
    negative_slot_ = {.slot = categories_[at].slot,
                      .first = ids_[at].first_token(),
                      .size = ids_[at].num_tokens()};
    if (wanted.sampler == "popularity" || ids_[at].has_vocabulary()) return {};
    return invalid_argument(
        "negatives of column '{}' are sampled by '{}', from a vocabulary, and it has none; give it "
        "one (--vocabulary {}), or sample by popularity",
        wanted.column, wanted.sampler, wanted.column);
  }

  Result<size_t> category_of(const std::string& name, const char* why) const {
    const auto at = std::find(categorical_.begin(), categorical_.end(), name);
    if (at != categorical_.end()) return at - categorical_.begin();
    return invalid_argument("no categorical column '{}', {}; they are: {}", name, why,
                            base::join(categorical_, ", "));
  }

  Result<int64_t*> crossed_of(const std::string& name) {
    for (size_t i = 0; i < buckets_.size(); ++i) {
      if (spec_.bucketized[i].column == name) return &buckets_[i].crossed;
    }
    SR_ASSIGN_OR_RETURN(const size_t at, category_of(name, "which is to be crossed"));
    if (categories_[at].separator != 0) {
      return invalid_argument("column '{}' has several values in a cell; it cannot be crossed",
                              name);
    }
    return &categories_[at].crossed;
  }

  Status take_defaults() {
    for (const auto& [name, text] : spec_.defaults) {
      bool is_number = false;
      float number = 0;
      const bool good = parse_float(trim_blanks(text), &number);
      for (size_t i = 0; i < numeric_.size(); ++i) {
        if (numeric_[i] != name) continue;
        is_number = true;
        numbers_[i].missing = number;
      }
      for (size_t i = 0; i < buckets_.size(); ++i) {
        if (spec_.bucketized[i].column != name) continue;
        is_number = true;
        buckets_[i].missing = number;
      }
      if (is_number && !good) {
        return invalid_argument("the default of column '{}' is {}, not a finite number", name,
                                shown(text));
      }
      if (is_number || set_default_of_sequence(name, text)) continue;
      SR_ASSIGN_OR_RETURN(const size_t at, category_of(name, "which has a default"));
      categories_[at].missing = text;
    }
    return {};
  }

  bool set_default_of_sequence(const std::string& name, const std::string& text) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (spec_.sequences[i].column != name) continue;
      sequences_[i].missing = text;
      return true;
    }
    return false;
  }

  Result<Role*> role_of(const std::vector<std::string>& found, const std::string& name) {
    const auto at = std::find(found.begin(), found.end(), name);
    if (at == found.end()) {
      return invalid_argument("no column '{}'; the columns are: {}", name, column_names(found));
    }
    if (std::find(at + 1, found.end(), name) != found.end()) {
      return invalid_argument("column '{}' stands in the header twice", base::printable(name));
    }
    return &roles_[at - found.begin()];
  }

  Status parse_unquoted(std::string_view text, Row* row) {
    const char* at = text.data();
    const char* const end = at + text.size();
    const char delimiter = spec_.delimiter;
    for (size_t i = 0; i < roles_.size(); ++i) {
      const char* stop = at;
      while (stop < end && *stop != delimiter) ++stop;
      const Status status = take(i, std::string_view(at, stop - at), row);
      const bool last = i + 1 == roles_.size();
      if (!status.ok() || (stop == end) != last) [[unlikely]] {
        const auto count = static_cast<size_t>(std::count(text.begin(), text.end(), delimiter)) + 1;
        return count == roles_.size() ? status : wrong_count(count);
      }
      at = stop + 1;
    }
    return {};
  }

  // What nearly all cells are stands here: the rest costs a call.
  Status take(size_t column, std::string_view value, Row* row) {
    const Role role = roles_[column];
    if (role.kind == Kind::kCategory) [[likely]] {
      int64_t& out = row->ids[role.slot];
      if (spec_.id_space <= 0) {
        out = category_id(value, role.field, spec_.hash_buckets) + role.shift;
        return {};
      }
      if (parse_integer(value, &out) && out >= 0 && out < spec_.id_space) [[likely]]
        return {};
      return to_id(column, value, role.field, &out);
    }
    return take_other(column, value, row);
  }

  Status take_other(size_t column, std::string_view value, Row* row) {
    switch (roles_[column].kind) {
      case Kind::kNumber:
      case Kind::kBuckets:
        return take_number(column, value, row);
      case Kind::kSpecial:
        return take_category(column, value, row);
      case Kind::kLabel:
        return parse_label_by(spec_.label_rule, value, spec_.binary_label, &row->label);
      case Kind::kWeight:
        return take_weight(column, value, row);
      case Kind::kSequence:
        return take_sequence(column, value, row);
      case Kind::kTarget:
        return base::with_context(
            parse_label(value, spec_.binary_label, false, &row->dense[roles_[column].slot]),
            fmt::format("column '{}'", names_[column]));
      case Kind::kGroup:
        // Not negative, as ids are.
        row->ids.back() = static_cast<int64_t>(base::hash64(value) >> 1);
        return {};
      case Kind::kCategory:
      case Kind::kUnused:
        break;
    }
    return {};
  }

  Status to_id(size_t column, std::string_view value, size_t field, int64_t* out) const {
    if (spec_.id_space <= 0) {
      *out = ids_[field].id(value);
      return {};
    }
    int64_t id = 0;
    if (!parse_integer(value, &id) && !parse_integer(trim_blanks(value), &id)) {
      return invalid_argument(
          "column '{}' is {}, not an integer id (ids are read as they stand "
          "because an id space is given)",
          names_[column], shown(value));
    }
    if (id < 0) {
      return invalid_argument("id {} in column '{}' is negative; ids count from 0", id,
                              names_[column]);
    }
    if (id >= spec_.id_space) {
      return invalid_argument("id {} in column '{}' is outside [0, {}); make the id space larger",
                              id, names_[column], spec_.id_space);
    }
    *out = id;
    return {};
  }

  Status take_category(size_t column, std::string_view value, Row* row) {
    const Role& role = roles_[column];
    const Category& category = categories_[role.field];
    const size_t field = role.field;
    if (value.empty()) value = category.missing;
    if (category.crossed >= 0) texts_[static_cast<size_t>(category.crossed)].assign(value);
    int64_t* const out = row->ids.data() + role.slot;
    if (category.separator == 0) return to_id(column, value, field, out);
    size_t count = 0;
    // Nothing is no value; what stands between separators is one, even if empty.
    for (bool more = !value.empty(); more && count < category.length; ++count) {
      const size_t end = value.find(category.separator);
      more = end != std::string_view::npos;
      SR_RETURN_IF_ERROR(to_id(column, trim_blanks(value.substr(0, end)), field, out + count));
      value.remove_prefix(more ? end + 1 : value.size());
    }
    std::fill(out + count, out + category.length, int64_t{-1});
    return {};
  }

  Status take_sequence(size_t column, std::string_view value, Row* row) {
    const Role& role = roles_[column];
    const Sequence& how = spec_.sequences[role.field];
    const SequenceSlots& slots = sequences_[role.field];
    if (value.empty()) value = slots.missing;
    pieces_.clear();
    for (bool more = !value.empty(); more;) {
      const size_t end = value.find(how.separator);
      more = end != std::string_view::npos;
      pieces_.push_back(trim_blanks(value.substr(0, end)));
      value.remove_prefix(more ? end + 1 : value.size());
    }
    const auto room = static_cast<size_t>(how.max_length);
    const size_t count = std::min(pieces_.size(), room);
    const size_t from = how.truncating == "pre" ? pieces_.size() - count : 0;
    int64_t* const out = row->ids.data() + role.slot;
    std::fill(out, out + room, int64_t{-1});
    const size_t at = how.padding == "pre" ? room - count : 0;
    for (size_t i = 0; i < count; ++i) {
      SR_RETURN_IF_ERROR(to_id(column, pieces_[from + i], slots.field, out + at + i));
    }
    return {};
  }

  Status take_number(size_t column, std::string_view value, Row* row) {
    const Role& role = roles_[column];
    const std::string_view text = trim_blanks(value);
    float x = 0;
    if (!text.empty() && !parse_float(text, &x)) {
      return invalid_argument("column '{}' is {}, not a finite number", names_[column],
                              shown(value));
    }
    if (role.kind == Kind::kNumber) {
      const NumericTransform& by = numbers_[role.slot];
      float& out = row->dense[role.slot];
      out = transformed(text.empty() ? by.missing : x, by);
      if (!std::isfinite(out)) [[unlikely]] {
        return invalid_argument("column '{}' is {}, too far from the numbers that its scale is of",
                                names_[column], shown(value));
      }
    }
    if (role.bucketized >= 0) take_bucket(role.bucketized, text.empty(), x, row);
    return {};
  }

  void take_bucket(int64_t index, bool is_missing, float x, Row* row) {
    const Buckets& buckets = buckets_[static_cast<size_t>(index)];
    const std::vector<float>& boundaries = spec_.bucketized[index].boundaries;
    if (is_missing && buckets.missing.has_value()) {
      x = *buckets.missing;
      is_missing = false;
    }
    const int64_t bucket =
        is_missing ? static_cast<int64_t>(boundaries.size()) + 1 : bucket_of(x, boundaries);
    const size_t field = categories_.size() + static_cast<size_t>(index);
    row->ids[buckets.slot] = ids_[field].first() + bucket;
    if (buckets.crossed >= 0) {
      texts_[static_cast<size_t>(buckets.crossed)] = std::to_string(bucket);
    }
  }

  Status take_weight(size_t column, std::string_view value, Row* row) {
    const std::string_view text = trim_blanks(value);
    if (parse_float(text, &row->sample_weight) && row->sample_weight >= 0) return {};
    return invalid_argument(
        "column '{}' is {}; the weight of a row is a number that is not "
        "negative",
        names_[column], shown(value));
  }

  int64_t crossed(const Cross& cross) {
    joined_.resize(cross.texts.size());
    for (size_t i = 0; i < cross.texts.size(); ++i) joined_[i] = texts_[cross.texts[i]];
    return ids_[cross.field].crossed(joined_, cross.are_numbers);
  }

  [[nodiscard]] Status wrong_count(size_t count) const {
    return invalid_argument(
        "{} fields where the header has {}; check the delimiter ('{}') and "
        "the row",
        count, roles_.size(),
        spec_.delimiter == '\t' ? std::string("tab") : std::string(1, spec_.delimiter));
  }

  DataSpec spec_;
  std::vector<std::string> numeric_;
  std::vector<std::string> categorical_;
  std::vector<NumericTransform> numbers_;
  std::vector<std::pair<float, float>> class_weights_;
  std::vector<Category> categories_;
  std::vector<Buckets> buckets_;
  std::vector<Cross> crosses_;
  std::vector<FieldIds> ids_;  // Of each field.
  std::vector<SequenceSlots> sequences_;
  NegativeSlot negative_slot_;
  size_t width_ = 0;                // Slots of `ids`.
  size_t sequence_width_ = 0;       // Slots behind them.
  std::vector<std::string> texts_;  // Of the row, of columns that are crossed.
  std::vector<std::string> joined_;
  std::vector<std::string_view> pieces_;
  std::vector<std::string> names_;  // For messages.
  std::vector<Role> roles_;
  bool started_ = false;
  std::vector<std::string_view> fields_;
  std::string scratch_;
};

}  // namespace

Result<std::unique_ptr<RowParser>> make_csv_parser(const DataSpec& spec) {
  SR_RETURN_IF_ERROR(check_csv(spec));
  return std::make_unique<CsvParser>(spec);
}

}  // namespace sidereal::data
