#include "sidereal/parse/example.h"

#include <cstring>

#include "sidereal/parse/protobuf_wire.h"

namespace sidereal::parse {
namespace {

using base::invalid_argument;

Status broken(std::string_view example, const WireReader& reader) {
  return invalid_argument("no tf.train.Example: the {} bytes make no sense at byte {}",
                          example.size(), reader.at() - example.data());
}

/// A Feature is a choice: the list that comes last counts, and equal ones in a row are one list.
bool read_feature(std::string_view message, Feature* out) {
  *out = {};
  WireReader reader(message);
  Field field;
  while (!reader.done()) {
    const char* begin = reader.at();
    if (!reader.next(&field)) return false;
    if (field.number > 3 || field.type != WireType::kBytes) continue;
    const auto kind = static_cast<FeatureKind>(field.number);
    if (kind == out->kind) continue;
    out->kind = kind;
    out->message = message.substr(begin - message.data());
  }
  return true;
}

bool read_entry(std::string_view message, NamedFeature* out) {
  *out = {};
  return each_field(message, [out](const Field& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == 1) out->name = field.bytes;
    return field.number != 2 || read_feature(field.bytes, &out->feature);
  });
}

// --- Lists. Their one field has number 1; numbers may be packed or one by one.

bool append_field(const Field& field, std::vector<std::string_view>* out) {
  if (field.type == WireType::kBytes) out->push_back(field.bytes);
  return true;
}

bool append_field(const Field& field, std::vector<float>* out) {
  if (field.type != WireType::kBytes && field.type != WireType::kFixed32) return true;
  const size_t count = field.bytes.size() / sizeof(float);
  if (count * sizeof(float) != field.bytes.size()) return false;
  const size_t before = out->size();
  out->resize(before + count);
  if (count > 0) std::memcpy(out->data() + before, field.bytes.data(), field.bytes.size());
  return true;
}

bool append_field(const Field& field, std::vector<int64_t>* out) {
  if (field.type == WireType::kVarint) {
    out->push_back(static_cast<int64_t>(field.varint));
    return true;
  }
  if (field.type != WireType::kBytes) return true;
  return each_varint(field.bytes, [out](uint64_t value) {
    out->push_back(static_cast<int64_t>(value));
    return true;
  });
}

template <class T>
constexpr FeatureKind kKindOf = std::is_same_v<T, float>     ? FeatureKind::kFloats
                                : std::is_same_v<T, int64_t> ? FeatureKind::kInts
                                                             : FeatureKind::kBytes;

template <class T>
bool append_list(std::string_view list, std::vector<T>* out) {
  return each_field(
      list, [out](const Field& field) { return field.number != 1 || append_field(field, out); });
}

}  // namespace

const char* name_of(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes:
      return "bytes";
    case FeatureKind::kFloats:
      return "float";
    case FeatureKind::kInts:
      return "int64";
    default:
      return "nothing";
  }
}

Status read_example(std::string_view example, std::vector<NamedFeature>* out) {
  out->clear();
  WireReader reader(example);
  Field field;
  while (!reader.done()) {
    if (!reader.next(&field)) return broken(example, reader);
    if (field.number != 1 || field.type != WireType::kBytes) continue;
    WireReader features(field.bytes);
    Field entry;
    while (!features.done()) {
      if (!features.next(&entry)) return broken(example, features);
      if (entry.number != 1 || entry.type != WireType::kBytes) continue;
      if (!read_entry(entry.bytes, &out->emplace_back())) return broken(example, features);
    }
  }
  return {};
}

template <class T>
Status append_values(const Feature& feature, std::vector<T>* out) {
  if (feature.kind == FeatureKind::kNone) return {};
  if (feature.kind != kKindOf<T>) {
    return invalid_argument("it holds a list of {}, not of {}", name_of(feature.kind),
                            name_of(kKindOf<T>));
  }
  const bool is_read = each_field(feature.message, [&](const Field& field) {
    const bool list =
        field.number == static_cast<uint32_t>(feature.kind) && field.type == WireType::kBytes;
    return !list || append_list(field.bytes, out);
  });
  if (!is_read) return invalid_argument("its list of {} is broken", name_of(feature.kind));
  return {};
}

template Status append_values(const Feature&, std::vector<std::string_view>*);
template Status append_values(const Feature&, std::vector<float>*);
template Status append_values(const Feature&, std::vector<int64_t>*);

}  // namespace sidereal::parse
