#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sidereal/data/data_spec.h"

namespace sidereal::data {
namespace {

using base::invalid_argument;
using Json = nlohmann::json;

Status wrong_type(const std::string& key, const char* expected) {
  return invalid_argument("data spec: '{}' must be {}", key, expected);
}

Status read(const std::string& key, const Json& value, std::string* out) {
  if (!value.is_string()) return wrong_type(key, "a string");
  *out = value.get<std::string>();
  return {};
}

Status read(const std::string& key, const Json& value, bool* out) {
  if (!value.is_boolean()) return wrong_type(key, "true or false");
  *out = value.get<bool>();
  return {};
}

Status read(const std::string& key, const Json& value, int64_t* out) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits) return wrong_type(key, "an integer of 64 bits");
  *out = value.get<int64_t>();
  return {};
}

Status read(const std::string& key, const Json& value, uint64_t* out) {
  if (!value.is_number_unsigned()) return wrong_type(key, "a non-negative integer of 64 bits");
  *out = value.get<uint64_t>();
  return {};
}

Status read(const std::string& key, const Json& value, std::vector<std::string>* out) {
  if (!value.is_array()) return wrong_type(key, "a list of strings");
  out->clear();
  for (const Json& item : value) {
    if (!item.is_string()) return wrong_type(key, "a list of strings");
    out->push_back(item.get<std::string>());
  }
  return {};
}

Status read(const std::string& key, const Json& value,
            std::vector<std::pair<std::string, std::string>>* out) {
  constexpr const char* kExpected = "a list of [name, text]";
  if (!value.is_array()) return wrong_type(key, kExpected);
  out->clear();
  for (const Json& item : value) {
    const bool pair =
        item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string();
    if (!pair) return wrong_type(key, kExpected);
    out->emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
  }
  return {};
}

Status read(const std::string& key, const Json& value, float* out) {
  const double number = value.is_number() ? value.get<double>() : NAN;
  *out = static_cast<float>(number);
  return std::isfinite(*out) ? Status() : wrong_type(key, "a finite number of 32 bits");
}

Status read(const std::string& key, const Json& value, char* out) {
  std::string text;
  SR_RETURN_IF_ERROR(read(key, value, &text));
  if (text.size() != 1) return wrong_type(key, "one character");
  *out = text[0];
  return {};
}

Status read(const std::string& key, const Json& value, std::vector<float>* out) {
  if (!value.is_array()) return wrong_type(key, "a list of numbers");
  out->clear();
  for (const Json& item : value) SR_RETURN_IF_ERROR(read(key, item, &out->emplace_back()));
  if (!std::is_sorted(out->begin(), out->end())) return wrong_type(key, "ascending");
  return {};
}

Status read(const std::string& key, const Json& value, std::vector<std::vector<std::string>>* out) {
  if (!value.is_array()) return wrong_type(key, "a list of lists of strings");
  out->clear();
  for (const Json& item : value) SR_RETURN_IF_ERROR(read(key, item, &out->emplace_back()));
  return {};
}

/// An object whose keys `read_member` takes; it says whether it knows the key.
template <class ReadMember>
Status read_object(const std::string& name, const Json& json, ReadMember read_member) {
  if (!json.is_object()) return wrong_type(name, "an object");
  for (const auto& [key, value] : json.items()) {
    bool known = true;
    SR_RETURN_IF_ERROR(read_member(key, value, &known));
    if (!known) return invalid_argument("data spec: unknown key '{}.{}'", name, key);
  }
  return {};
}

template <class T, class ReadMember>
Status read_objects(const std::string& name, const Json& json, std::vector<T>* out,
                    ReadMember read_member) {
  if (!json.is_array()) return wrong_type(name, "a list of objects");
  out->clear();
  for (const Json& item : json) {
    T& one = out->emplace_back();
    SR_RETURN_IF_ERROR(
        read_object(name, item, [&](const auto& key, const Json& value, bool* known) {
          return read_member(key, value, &one, known);
        }));
  }
  return {};
}

Status read_transform(const std::string& key, const Json& value, Transform* out) {
  std::string text;
  SR_RETURN_IF_ERROR(read(key, value, &text));
  SR_ASSIGN_OR_RETURN(*out, transform_from_name(text));
  return {};
}

Status read_numeric(const std::string& key, const Json& value, NumericTransform* out, bool* known) {
  if (key == "kind") return read_transform(key, value, &out->kind);
  if (key == "offset") return read(key, value, &out->offset);
  if (key == "scale") return read(key, value, &out->scale);
  if (key == "missing") return read(key, value, &out->missing);
  if (key == "boundaries") return read(key, value, &out->boundaries);
  *known = false;
  return {};
}

Status read_multi_hot(const std::string& key, const Json& value, MultiHot* out, bool* known) {
  if (key == "column") return read(key, value, &out->column);
  if (key == "separator") return read(key, value, &out->separator);
  if (key == "max_length") return read(key, value, &out->max_length);
  *known = false;
  return {};
}

Status read_bucketized(const std::string& key, const Json& value, Bucketized* out, bool* known) {
  if (key == "column") return read(key, value, &out->column);
  if (key == "buckets") return read(key, value, &out->buckets);
  if (key == "boundaries") return read(key, value, &out->boundaries);
  *known = false;
  return {};
}

Status read_vocabulary(const std::string& key, const Json& value, Vocabulary* out, bool* known) {
  if (key == "column") return read(key, value, &out->column);
  if (key == "max_tokens") return read(key, value, &out->max_tokens);
  if (key == "num_oov_indices") return read(key, value, &out->num_oov_indices);
  if (key == "tokens") return read(key, value, &out->tokens);
  *known = false;
  return {};
}

Status read_sequence(const std::string& key, const Json& value, Sequence* out, bool* known) {
  if (key == "column") return read(key, value, &out->column);
  if (key == "separator") return read(key, value, &out->separator);
  if (key == "max_length") return read(key, value, &out->max_length);
  if (key == "padding") return read(key, value, &out->padding);
  if (key == "truncating") return read(key, value, &out->truncating);
  if (key == "like") return read(key, value, &out->like);
  *known = false;
  return {};
}

Status read_negatives(const std::string& key, const Json& value, Negatives* out, bool* known) {
  if (key == "column") return read(key, value, &out->column);
  if (key == "count") return read(key, value, &out->count);
  if (key == "sampler") return read(key, value, &out->sampler);
  *known = false;
  return {};
}

Status read_label_rule(const std::string& key, const Json& value, LabelRule* out, bool* known) {
  if (key == "op") return read(key, value, &out->op);
  if (key == "value") return read(key, value, &out->value);
  *known = false;
  return {};
}

/// The keys of what columns become.
Status read_feature(const std::string& key, const Json& value, DataSpec* spec, bool* known) {
  if (key == "label_rule") {
    return read_object(key, value, [&](const auto& name, const Json& member, bool* is_known) {
      return read_label_rule(name, member, &spec->label_rule, is_known);
    });
  }
  if (key == "weight") return read(key, value, &spec->weight);
  if (key == "targets") return read(key, value, &spec->targets);
  if (key == "group") return read(key, value, &spec->group);
  if (key == "class_weights") return read(key, value, &spec->class_weights);
  if (key == "numeric_transform") return read_transform(key, value, &spec->numeric_transform);
  if (key == "column_transforms") return read(key, value, &spec->column_transforms);
  if (key == "transforms") return read_objects(key, value, &spec->transforms, read_numeric);
  if (key == "defaults") return read(key, value, &spec->defaults);
  if (key == "multi_hot") return read_objects(key, value, &spec->multi_hot, read_multi_hot);
  if (key == "bucketized") return read_objects(key, value, &spec->bucketized, read_bucketized);
  if (key == "crosses") return read(key, value, &spec->crosses);
  if (key == "vocabularies") return read_objects(key, value, &spec->vocabularies, read_vocabulary);
  if (key == "negatives") {
    return read_object(key, value, [&](const auto& name, const Json& member, bool* is_known) {
      return read_negatives(name, member, &spec->negatives, is_known);
    });
  }
  if (key == "sequences") return read_objects(key, value, &spec->sequences, read_sequence);
  if (key == "hash") {
    std::string name;
    SR_RETURN_IF_ERROR(read(key, value, &name));
    SR_ASSIGN_OR_RETURN(spec->hash, hash_from_name(name));
    return {};
  }
  *known = false;
  return {};
}

Json pairs(const std::vector<std::pair<std::string, std::string>>& values) {
  Json out = Json::array();
  for (const auto& [first, second] : values) out.push_back(Json::array({first, second}));
  return out;
}

void put_features(const DataSpec& spec, Json* out) {
  Json& json = *out;
  json["label_rule"] = {{"op", spec.label_rule.op}, {"value", spec.label_rule.value}};
  json["weight"] = spec.weight;
  json["targets"] = spec.targets;
  json["group"] = spec.group;
  json["class_weights"] = pairs(spec.class_weights);
  json["numeric_transform"] = std::string(name_of(spec.numeric_transform));
  json["transforms"] = Json::array();
  for (const NumericTransform& one : spec.transforms) {
    json["transforms"].push_back({{"kind", std::string(name_of(one.kind))},
                                  {"offset", one.offset},
                                  {"scale", one.scale},
                                  {"missing", one.missing},
                                  {"boundaries", one.boundaries}});
  }
  json["column_transforms"] = pairs(spec.column_transforms);
  json["defaults"] = pairs(spec.defaults);
  json["multi_hot"] = Json::array();
  for (const MultiHot& one : spec.multi_hot) {
    json["multi_hot"].push_back({{"column", one.column},
                                 {"separator", std::string(1, one.separator)},
                                 {"max_length", one.max_length}});
  }
  json["bucketized"] = Json::array();
  for (const Bucketized& one : spec.bucketized) {
    json["bucketized"].push_back(
        {{"column", one.column}, {"buckets", one.buckets}, {"boundaries", one.boundaries}});
  }
  json["crosses"] = spec.crosses;
  json["hash"] = std::string(name_of(spec.hash));
  json["vocabularies"] = Json::array();
  for (const Vocabulary& one : spec.vocabularies) {
    json["vocabularies"].push_back({{"column", one.column},
                                    {"max_tokens", one.max_tokens},
                                    {"num_oov_indices", one.num_oov_indices},
                                    {"tokens", one.tokens}});
  }
  json["negatives"] = {{"column", spec.negatives.column},
                       {"count", spec.negatives.count},
                       {"sampler", spec.negatives.sampler}};
  json["sequences"] = Json::array();
  for (const Sequence& one : spec.sequences) {
    json["sequences"].push_back({{"column", one.column},
                                 {"separator", std::string(1, one.separator)},
                                 {"max_length", one.max_length},
                                 {"padding", one.padding},
                                 {"truncating", one.truncating},
                                 {"like", one.like}});
  }
}

Status read_synthetic(const Json& json, SyntheticSpec* spec) {
  if (!json.is_object()) return wrong_type("synthetic", "an object");
  for (const auto& [key, value] : json.items()) {
    if (key == "rows") {
      SR_RETURN_IF_ERROR(read(key, value, &spec->rows));
    } else if (key == "first_row") {
      SR_RETURN_IF_ERROR(read(key, value, &spec->first_row));
    } else if (key == "seed") {
      SR_RETURN_IF_ERROR(read(key, value, &spec->seed));
    } else if (key == "vocabulary_max") {
      SR_RETURN_IF_ERROR(read(key, value, &spec->vocabulary_max));
    } else {
      return invalid_argument("data spec: unknown key 'synthetic.{}'", key);
    }
  }
  return {};
}

Status read_named(const std::string& key, const Json& value, DataSpec* spec) {
  std::string text;
  SR_RETURN_IF_ERROR(read(key, value, &text));
  if (key == "format") {
    SR_ASSIGN_OR_RETURN(spec->format, format_from_name(text));
  } else {
    SR_ASSIGN_OR_RETURN(spec->bad_rows, bad_rows_from_name(text));
  }
  return {};
}

Status read_key(const std::string& key, const Json& value, DataSpec* spec) {
  if (key == "format" || key == "bad_rows") return read_named(key, value, spec);
  if (key == "delimiter") return read(key, value, &spec->delimiter);
  if (key == "files") return read(key, value, &spec->files);
  if (key == "arrays") return read(key, value, &spec->arrays);
  if (key == "label") return read(key, value, &spec->label);
  if (key == "numeric") return read(key, value, &spec->numeric);
  if (key == "categorical") return read(key, value, &spec->categorical);
  if (key == "hash_buckets") return read(key, value, &spec->hash_buckets);
  if (key == "id_space") return read(key, value, &spec->id_space);
  if (key == "binary_label") return read(key, value, &spec->binary_label);
  if (key == "shuffle_rows") return read(key, value, &spec->shuffle_rows);
  if (key == "seed") return read(key, value, &spec->seed);
  if (key == "synthetic") return read_synthetic(value, &spec->synthetic);
  bool known = true;
  SR_RETURN_IF_ERROR(read_feature(key, value, spec, &known));
  if (known) return {};
  return invalid_argument("data spec: unknown key '{}'", key);
}

}  // namespace

std::string to_json(const DataSpec& spec) {
  Json json;
  json["format"] = std::string(name_of(spec.format));
  json["files"] = spec.files;
  json["arrays"] = pairs(spec.arrays);
  json["label"] = spec.label;
  json["numeric"] = spec.numeric;
  json["categorical"] = spec.categorical;
  put_features(spec, &json);
  json["delimiter"] = std::string(1, spec.delimiter);
  json["hash_buckets"] = spec.hash_buckets;
  json["id_space"] = spec.id_space;
  json["binary_label"] = spec.binary_label;
  json["bad_rows"] = std::string(name_of(spec.bad_rows));
  json["shuffle_rows"] = spec.shuffle_rows;
  json["seed"] = spec.seed;
  json["synthetic"] = {{"rows", spec.synthetic.rows},
                       {"first_row", spec.synthetic.first_row},
                       {"seed", spec.synthetic.seed},
                       {"vocabulary_max", spec.synthetic.vocabulary_max}};
  // Bytes that are not UTF-8 (in a file name, say) are replaced instead of thrown about.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<DataSpec> spec_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_argument("data spec: not a JSON object");
  DataSpec spec;
  for (const auto& [key, value] : json.items()) SR_RETURN_IF_ERROR(read_key(key, value, &spec));
  return spec;
}

}  // namespace sidereal::data
