#include "sidereal/ckpt/formats.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "sidereal/base/strings.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/ckpt/file.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/ckpt/npz.h"
#include "sidereal/ckpt/safetensors.h"
#include "sidereal/ckpt/tensor_bundle.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::ckpt {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"native", "tf", "safetensors", "npz"};
constexpr std::string_view kIndex = ".index";
/// Of the file `checkpoint`: a line or two.
constexpr uint64_t kStateBytesMax = 16 << 20;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// True when PREFIX.index is an index of Sidereal's own.
bool is_checkpoint(const std::string& prefix) {
  const auto file = InputFile::open(index_path(prefix));
  if (!file.ok()) return false;
  std::string begin(std::min<uint64_t>((*file)->size(), 64), '\0');
  return (*file)->read(0, begin).ok() && begins_as_index(begin);
}

std::optional<Found> found_at(const std::string& path) {
  if (is_checkpoint(path)) return Found{path, Format::kNative};
  if (is_tensor_bundle(path)) return Found{path, Format::kTensorFlow};
  if (is_npz(path)) return Found{path, Format::kNpz};
  if (is_safetensors(path)) return Found{path, Format::kSafetensors};
  return std::nullopt;
}

/// The checkpoint that the file `checkpoint` of a folder names first (CheckpointState, a message in
/// text: `model_checkpoint_path: "model.ckpt-5"`); "" without one.
Result<std::string> newest_in(const std::filesystem::path& folder) {
  const std::string path = folder / "checkpoint";
  if (!is_there(path)) return std::string();
  SR_ASSIGN_OR_RETURN(const auto file, InputFile::open(path));
  if (file->size() > kStateBytesMax) return base::data_loss("{}: it is too long", path);
  std::string text(file->size(), '\0');
  SR_RETURN_IF_ERROR(file->read(0, text));
  constexpr std::string_view kKey = "model_checkpoint_path:";
  for (const std::string& line : base::split(text, '\n')) {
    if (!line.starts_with(kKey)) continue;
    const std::string_view value = base::trim(std::string_view(line).substr(kKey.size()));
    if (value.size() < 3 || value.front() != '"' || value.back() != '"') break;
    std::string name;
    for (size_t i = 1; i + 1 < value.size(); ++i) {
      if (value[i] == '\\' && i + 2 < value.size()) ++i;
      name += value[i];
    }
    // A path that is not absolute is one from the folder.
    return (folder / name).string();
  }
  return base::data_loss("{}: it names no checkpoint as {} \"...\"", path, kKey);
}

/// All checkpoints of a folder, sorted.
Result<std::vector<std::string>> all_in(const std::filesystem::path& folder) {
  SR_ASSIGN_OR_RETURN(const auto names, sys::posix::create_disk()->list(folder));
  std::vector<std::string> out;
  for (const std::string& name : names) {
    std::string path = folder / name;
    if (path.ends_with(kIndex)) path.resize(path.size() - kIndex.size());
    if (found_at(path)) out.push_back(std::move(path));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::string_view name_of(Format format) { return kNames[static_cast<size_t>(format)]; }

std::span<const std::string_view> format_names() { return kNames; }

Result<Format> format_from_name(std::string_view name) {
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at != kNames.end()) return static_cast<Format>(at - kNames.begin());
  return base::invalid_argument("there is no format '{}'; there are: {}", name,
                                fmt::join(kNames, ", "));
}

Result<Found> find_checkpoint(const std::string& path) {
  std::error_code ignored;
  std::string at = path;
  if (std::filesystem::is_directory(path, ignored)) {
    SR_ASSIGN_OR_RETURN(at, newest_in(path));
    if (at.empty()) {
      SR_ASSIGN_OR_RETURN(const std::vector<std::string> all, all_in(path));
      if (all.empty()) return base::not_found("{}: there is no checkpoint in this folder", path);
      if (all.size() > 1) {
        return base::invalid_argument("{}: which checkpoint of this folder? There are: {}", path,
                                      fmt::join(all, ", "));
      }
      at = all[0];
    }
  } else if (at.ends_with(kIndex)) {
    at.resize(at.size() - kIndex.size());
  }
  if (const auto found = found_at(at)) return *found;
  if (is_there(at) || is_there(at + std::string(kIndex))) {
    return base::invalid_argument(
        "{}: this is no checkpoint, or its end was cut off; formats that can be read: {}", at,
        fmt::join(kNames, ", "));
  }
  return base::not_found("{}: there is no checkpoint: neither {}.index nor a file of that name", at,
                         at);
}

Result<std::unique_ptr<TensorReader>> open_tensors(const Found& found) {
  switch (found.format) {
    case Format::kNative: {
      SR_ASSIGN_OR_RETURN(auto reader,
                          CheckpointReader::open(sys::posix::create_disk(), found.path));
      return reader;
    }
    case Format::kTensorFlow:
      return open_tensor_bundle(found.path);
    case Format::kSafetensors:
      return open_safetensors(found.path);
    case Format::kNpz:
      return open_npz(found.path);
  }
  return base::internal("a format that is none");
}

}  // namespace sidereal::ckpt
