#include "sidereal/data/table_layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;
using parse::parse_float;
using parse::shown;
using parse::trim_blanks;

namespace {

/// Names of columns for a message: a file that is no CSV may have anything in its first line.
std::string column_names(const std::vector<std::string>& names) {
  constexpr size_t kNamesMax = 50;
  constexpr size_t kNameBytesMax = 60;
  return base::some_of(names, kNamesMax, [](const std::string& name) {
    return base::printable(base::message_text(name, kNameBytesMax));
  });
}

}  // namespace

TableLayout::TableLayout(const DataSpec& spec) : spec_(spec) {
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

Status TableLayout::start_file(const std::vector<std::string>& found) {
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
  wanted_.clear();
  used_.clear();
  for (size_t i = 0; i < found.size(); ++i) {
    names_.push_back(base::printable(found[i]));
    if (roles_[i].kind == Kind::kUnused) continue;
    wanted_.push_back(found[i]);
    used_.push_back(i);
  }
  return {};
}

void TableLayout::weigh(Row* row) const {
  for (const auto& [label, weight] : class_weights_) {
    if (row->label == label) row->sample_weight *= weight;
  }
}

Schema TableLayout::schema() const {
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

void TableLayout::choose_categorical(const std::vector<std::string>& found) {
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

Status TableLayout::lay_out() {
  width_ = 0;
  categories_.assign(categorical_.size(), {});
  for (size_t i = 0; i < categorical_.size(); ++i) {
    const auto many = std::find_if(spec_.multi_hot.begin(), spec_.multi_hot.end(),
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
          "the cross '{}' is named twice, or a column has its name; name each field once", joined);
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

bool TableLayout::is_bucketized(const std::string& name) const {
  return std::any_of(spec_.bucketized.begin(), spec_.bucketized.end(),
                     [&](const Bucketized& one) { return one.column == name; });
}

Status TableLayout::number_fields() {
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
      *numbered.begin(), column_names(categorical_));
}

Status TableLayout::place_negatives() {
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
  negative_slot_ = {
      .slot = categories_[at].slot, .first = ids_[at].first_token(), .size = ids_[at].num_tokens()};
  if (wanted.sampler == "popularity" || ids_[at].has_vocabulary()) return {};
  return invalid_argument(
      "negatives of column '{}' are sampled by '{}', from a vocabulary, and it has none; give it "
      "one (--vocabulary {}), or sample by popularity",
      wanted.column, wanted.sampler, wanted.column);
}

Result<size_t> TableLayout::category_of(const std::string& name, const char* why) const {
  const auto at = std::find(categorical_.begin(), categorical_.end(), name);
  if (at != categorical_.end()) return at - categorical_.begin();
  return invalid_argument("no categorical column '{}', {}; they are: {}", name, why,
                          column_names(categorical_));
}

Result<int64_t*> TableLayout::crossed_of(const std::string& name) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (spec_.bucketized[i].column == name) return &buckets_[i].crossed;
  }
  SR_ASSIGN_OR_RETURN(const size_t at, category_of(name, "which is to be crossed"));
  if (categories_[at].separator != 0) {
    return invalid_argument("column '{}' has several values in a cell; it cannot be crossed", name);
  }
  return &categories_[at].crossed;
}

Status TableLayout::take_defaults() {
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

bool TableLayout::set_default_of_sequence(const std::string& name, const std::string& text) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (spec_.sequences[i].column != name) continue;
    sequences_[i].missing = text;
    return true;
  }
  return false;
}

Result<TableLayout::Role*> TableLayout::role_of(const std::vector<std::string>& found,
                                                const std::string& name) {
  const auto at = std::find(found.begin(), found.end(), name);
  if (at == found.end()) {
    return invalid_argument("no column '{}'; the columns are: {}", name, column_names(found));
  }
  if (std::find(at + 1, found.end(), name) != found.end()) {
    return invalid_argument("column '{}' stands in the header twice", base::printable(name));
  }
  return &roles_[at - found.begin()];
}

}  // namespace sidereal::data
