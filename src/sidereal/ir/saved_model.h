#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// Version of the bytes; a reader takes this one and those before it.
inline constexpr uint16_t kSavedModelVersion = 1;

/// What decode_saved_model() takes at most.
inline constexpr uint32_t kMaxSavedFunctions = 100'000;
inline constexpr uint32_t kMaxSavedValues = 1'000'000;
inline constexpr uint32_t kMaxSavedList = 1'000'000;

/// A value that functions of a saved model read: a variable, or a tensor they captured.
struct SavedValue {
  std::string name;  ///< Of a variable; any text.
  bool variable = false;
  bool trainable = false;
  Tensor value;
};

/// One function of a saved model: a graph that is fed through Placeholder nodes. Value type.
struct SavedFunction {
  std::string name;
  std::string structure;  ///< How the language that saved it nests arguments and results; opaque.
  Graph graph;
  std::vector<Output> inputs;      ///< Outputs of Placeholders: arguments, then what it captured.
  std::vector<uint32_t> captures;  ///< By captured input: which value is fed to it.
  std::vector<Output> outputs;     ///< Results, then the new values of `assigned`.
  std::vector<uint32_t> assigned;  ///< Values (variables) that it gives other values.
  std::vector<NodeId> targets;     ///< Nodes to run for what they do.
};

/// A name under which a function can be asked for, with names for what goes in and out.
struct SavedSignature {
  std::string name;
  uint32_t function = 0;
  std::vector<std::string> inputs;   ///< One per argument.
  std::vector<std::string> outputs;  ///< One per result.
};

/// Functions with the values they use (tf.saved_model): a model as data. Value type.
struct SavedModel {
  std::string producer;  ///< Release that wrote it, for people.
  std::vector<SavedFunction> functions;
  std::vector<SavedSignature> signatures;
  std::vector<SavedValue> values;
  std::string objects;  ///< How the language that saved it nests its objects; opaque.

  /// The signature of that name, or nullptr.
  [[nodiscard]] const SavedSignature* find_signature(std::string_view name) const;
};

/// Versioned bytes of a model; the format is in docs/formats/saved_model.md. Equal models have
/// equal bytes. kInvalidArgument for a model that decode_saved_model() would not take.
Result<std::string> encode_saved_model(const SavedModel& model, const OpRegistry& registry);

/// The reverse of encode_saved_model(). Bytes from anyone: checksums, lengths and indices are
/// checked before memory is taken, graphs are verified, and values fit their inputs. Wrong bytes
/// are kDataLoss or kInvalidArgument, another version is kInvalidArgument naming it.
Result<SavedModel> decode_saved_model(std::string_view bytes, const OpRegistry& registry);

}  // namespace sidereal::ir
