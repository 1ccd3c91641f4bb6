#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

/// Serialized tf.train.Example messages, read where they lie: names and strings are views of the
/// bytes. The fields of the messages are those of TensorFlow's example.proto and feature.proto.
namespace sidereal::parse {

/// Which list a feature holds; the numbers are those of the fields of tf.train.Feature.
enum class FeatureKind : uint8_t { kNone = 0, kBytes = 1, kFloats = 2, kInts = 3 };

/// "bytes", "float", "int64", or "nothing".
const char* name_of(FeatureKind kind);

/// One feature, its values not yet decoded. Borrows the bytes of the example.
struct Feature {
  FeatureKind kind = FeatureKind::kNone;
  std::string_view message;  ///< The Feature message, from its list on.
};

/// One entry of an example.
struct NamedFeature {
  std::string_view name;
  Feature feature;
};

/// The entries of `example` in the order they are written, into `out`, whose old contents are
/// dropped. A name may be there twice: the last one counts. kInvalidArgument for bytes that are no
/// Example, saying at which byte. Memory: a few words per entry.
/// Thread: any.
Status read_example(std::string_view example, std::vector<NamedFeature>* out);

/// Appends the values of a feature of the kind of T: std::string_view, float or int64_t. A feature
/// of no kind has none. kInvalidArgument for another kind, and for bytes that are no such list.
/// Thread: any.
template <class T>
Status append_values(const Feature& feature, std::vector<T>* out);

}  // namespace sidereal::parse
