#include <fmt/format.h>

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
  constexpr const char* kExpected = "a list of [name, file]";
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
  } else if (key == "bad_rows") {
    SR_ASSIGN_OR_RETURN(spec->bad_rows, bad_rows_from_name(text));
  } else {
    if (text.size() != 1) return wrong_type(key, "one character");
    spec->delimiter = text[0];
  }
  return {};
}

Status read_key(const std::string& key, const Json& value, DataSpec* spec) {
  if (key == "format" || key == "bad_rows" || key == "delimiter") {
    return read_named(key, value, spec);
  }
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
  return invalid_argument("data spec: unknown key '{}'", key);
}

}  // namespace

std::string to_json(const DataSpec& spec) {
  Json json;
  json["format"] = std::string(name_of(spec.format));
  json["files"] = spec.files;
  json["arrays"] = Json::array();
  for (const auto& [name, file] : spec.arrays) {
    json["arrays"].push_back(Json::array({name, file}));
  }
  json["label"] = spec.label;
  json["numeric"] = spec.numeric;
  json["categorical"] = spec.categorical;
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
