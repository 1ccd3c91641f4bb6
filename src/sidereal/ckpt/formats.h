#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/stored_tensors.h"

/// Checkpoints of any format, found by what is there.
namespace sidereal::ckpt {

enum class Format : uint8_t { kNative, kTensorFlow, kSafetensors, kNpz };

/// "native" (index.h), "tf", "safetensors", "npz".
std::string_view name_of(Format format);
/// Those names.
std::span<const std::string_view> format_names();
/// kInvalidArgument naming those that there are.
Result<Format> format_from_name(std::string_view name);

/// A checkpoint and how it is written. Value type.
struct Found {
  std::string path;  ///< The prefix, or the file.
  Format format = Format::kNative;
};

/// What `path` is: the prefix of a checkpoint, its index file, a file of another format, or a
/// folder, of which the newest checkpoint is meant, as its file `checkpoint` says, or the only one.
/// kNotFound saying what was looked for.
Result<Found> find_checkpoint(const std::string& path);

/// Opens what was found.
Result<std::unique_ptr<TensorReader>> open_tensors(const Found& found);

}  // namespace sidereal::ckpt
