#include "sidereal/data/csv_checks.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/data/row_parser.h"
#include "sidereal/data/vocabulary.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;

namespace {

Status check_counts(const DataSpec& spec) {
  if (!spec.transforms.empty() && spec.transforms.size() != spec.numeric.size()) {
    return invalid_argument("{} transforms for {} numeric columns", spec.transforms.size(),
                            spec.numeric.size());
  }
  for (const NumericTransform& one : spec.transforms) {
    if (one.kind == Transform::kAuto) {
      return invalid_argument("a transform is 'auto'; it is chosen before data is read");
    }
  }
  for (const MultiHot& one : spec.multi_hot) {
    if (one.max_length < 1 || one.max_length > kMultiHotMax) {
      return invalid_argument("column '{}' has up to {} values in a cell; it must be from 1 to {}",
                              one.column, one.max_length, kMultiHotMax);
    }
    if (one.separator == spec.delimiter) {
      return invalid_argument("column '{}': its separator is that of the columns", one.column);
    }
  }
  for (const Bucketized& one : spec.bucketized) {
    const auto buckets = std::max(one.buckets, static_cast<int64_t>(one.boundaries.size()) + 1);
    if (buckets < 2 || buckets > kBucketsMax) {
      return invalid_argument("column '{}' is to have {} buckets; it must be from 2 to {}",
                              one.column, buckets, kBucketsMax);
    }
    if (buckets >= spec.hash_buckets) {
      return invalid_argument(
          "column '{}' has {} buckets, and one for empty cells; hash_buckets "
          "is {}: make it larger",
          one.column, buckets, spec.hash_buckets);
    }
  }
  for (const auto& [label, weight] : spec.class_weights) {
    float number = 0;
    const bool good = parse::parse_float(label, &number) && parse::parse_float(weight, &number);
    if (!good || number < 0) {
      return invalid_argument(
          "the weight of label {} is {}; both are numbers, and the weight is not negative",
          parse::shown(label), parse::shown(weight));
    }
  }
  for (const auto& cross : spec.crosses) {
    if (cross.size() < 2) return invalid_argument("a cross is of two columns or more");
  }
  for (const Sequence& one : spec.sequences) {
    SR_RETURN_IF_ERROR(check_sequence(one));
    if (one.separator == spec.delimiter) {
      return invalid_argument("column '{}': its separator is that of the columns", one.column);
    }
  }
  SR_RETURN_IF_ERROR(check_negatives(spec.negatives));
  if (!spec.negatives.column.empty() && !spec.group.empty()) {
    return invalid_argument(
        "negatives of column '{}' go with no group ('{}'): rows that did not happen are of no "
        "query; leave one of the two out",
        spec.negatives.column, spec.group);
  }
  for (const Vocabulary& one : spec.vocabularies) SR_RETURN_IF_ERROR(check_vocabulary(one));
  const bool are_ids = spec.bucketized.empty() && spec.crosses.empty() && spec.vocabularies.empty();
  if (spec.id_space > 0 && !are_ids) {
    return invalid_argument(
        "buckets, crosses and vocabularies have ids of their own; they go with no id space");
  }
  return check_label_rule(spec.label_rule);
}

}  // namespace

Status check_csv(const DataSpec& spec) {
  const char d = spec.delimiter;
  if (d == '"' || d == '\n' || d == '\r' || d == '\0') {
    return invalid_argument("a delimiter cannot be a quote, a line end or a zero byte");
  }
  std::vector<std::string> others;
  if (!spec.weight.empty()) others.push_back(spec.weight);
  for (const Sequence& one : spec.sequences) others.push_back(one.column);
  others.insert(others.end(), spec.targets.begin(), spec.targets.end());
  if (!spec.group.empty()) others.push_back(spec.group);
  std::set<std::string> bucketized;
  for (const Bucketized& one : spec.bucketized) {
    const bool is_numeric =
        std::find(spec.numeric.begin(), spec.numeric.end(), one.column) != spec.numeric.end();
    if (!bucketized.insert(one.column).second) {
      return invalid_argument("column '{}' is bucketized twice", one.column);
    }
    if (!is_numeric) others.push_back(one.column);
  }
  std::set<std::string> seen;
  if (!spec.label.empty()) seen.insert(spec.label);
  for (const auto* names : {&spec.numeric, &spec.categorical, &std::as_const(others)}) {
    for (const std::string& name : *names) {
      if (!seen.insert(name).second) {
        return invalid_argument(
            "column '{}' is named twice (as label, target, weight, group, numeric, bucketized, "
            "categorical or "
            "a sequence)",
            name);
      }
    }
  }
  return check_counts(spec);
}

}  // namespace sidereal::data
