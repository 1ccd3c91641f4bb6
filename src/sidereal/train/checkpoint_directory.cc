#include "sidereal/train/checkpoint_directory.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "sidereal/base/strings.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::train {

namespace {

constexpr const char* kStateFile = "checkpoint";
constexpr const char* kLockFile = "checkpoint.lock";
/// Notes in the lock: what is under way.
constexpr const char* kSaving = "saving";
constexpr const char* kRemoving = "removing";
constexpr const char* kPrefix = "model.ckpt-";
constexpr const char* kIndexSuffix = ".index";
constexpr uint64_t kStateBytesMax = uint64_t{1} << 24;

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

/// Whether it is one of a file in a directory.
bool is_name(const std::string& text) {
  return !text.empty() && text.find('/') == std::string::npos;
}

/// What is between the quotes of `KEY: "VALUE"`.
std::string unquoted(std::string_view text) {
  std::string out;
  for (size_t i = 1; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    out += text[i];
  }
  return out;
}

}  // namespace

std::vector<std::string> checkpoints_listed(const std::string& text) {
  std::vector<std::string> out;
  std::string newest;
  for (const std::string& line : base::split(text, '\n')) {
    const size_t colon = line.find(": \"");
    if (colon == std::string::npos) continue;
    const std::string_view key = base::trim(std::string_view(line).substr(0, colon));
    const std::string value = unquoted(std::string_view(line).substr(colon + 2));
    if (key == "model_checkpoint_path") newest = value;
    if (key == "all_model_checkpoint_paths") out.push_back(value);
  }
  std::erase(out, newest);
  if (!newest.empty()) out.push_back(newest);
  return out;
}

Result<std::unique_ptr<CheckpointDirectory>> CheckpointDirectory::open(
    std::shared_ptr<sys::Disk> disk, const std::string& path, int64_t keep) {
  std::error_code error;
  const std::string whole = std::filesystem::absolute(path, error).lexically_normal().string();
  if (error) return base::invalid_argument("'{}' is no path: {}", path, error.message());
  auto out = std::unique_ptr<CheckpointDirectory>(new CheckpointDirectory(disk, whole, keep));
  SR_RETURN_IF_ERROR(disk->make_directories(whole));
  SR_ASSIGN_OR_RETURN(out->lock_,
                      sys::posix::FileLock::take(fmt::format("{}/{}", whole, kLockFile)));
  SR_RETURN_IF_ERROR(out->read_state());
  SR_RETURN_IF_ERROR(out->settle_unfinished());
  return out;
}

Status CheckpointDirectory::read_state() {
  const Result<std::string> text =
      sys::read_file(disk_.get(), fmt::format("{}/{}", path_, kStateFile), kStateBytesMax);
  if (text.status().code() == StatusCode::kNotFound) return {};
  SR_RETURN_IF_ERROR(text.status());
  for (const std::string& listed : checkpoints_listed(*text)) {
    const std::filesystem::path path(listed);
    // Those elsewhere are not this training's.
    const std::string name = path.filename().string();
    if (path == name || path.parent_path() == path_) names_.push_back(name);
  }
  return {};
}

/// The process before may have been killed while it saved: then the checkpoint is there, and not
/// listed, or files of it are there that nothing leads to.
Status CheckpointDirectory::settle_unfinished() {
  const std::vector<std::string> note = base::split(lock_->left_note(), ' ');
  if (note.size() < 2 || note[0] != kSaving || !is_name(note[1])) return {};
  const std::string& name = note[1];
  if (!disk_->open(ckpt::index_path(fmt::format("{}/{}", path_, name))).ok()) {
    return remove_data(name);
  }
  std::erase(names_, name);
  names_.push_back(name);
  // The next save has a note of its own: a kill before its end would lose this checkpoint.
  SR_RETURN_IF_ERROR(write_state());
  if (note.size() < 3 || note[2] != kRemoving) return {};
  for (size_t i = 3; i < note.size(); ++i) {
    // Those that are listed yet go when the next one is added.
    const bool is_listed = std::ranges::find(names_, note[i]) != names_.end();
    if (is_name(note[i]) && !is_listed) SR_RETURN_IF_ERROR(remove(note[i]));
  }
  return {};
}

std::vector<std::string> CheckpointDirectory::newest_first() const {
  std::vector<std::string> out;
  for (const std::string& name : names_) out.push_back(fmt::format("{}/{}", path_, name));
  std::ranges::reverse(out);
  return out;
}

void CheckpointDirectory::forget_after(const std::string& prefix) {
  while (!names_.empty() && fmt::format("{}/{}", path_, names_.back()) != prefix) {
    names_.pop_back();
  }
}

Result<std::string> CheckpointDirectory::begin(int64_t step) {
  const std::string name = fmt::format("{}{}", kPrefix, step);
  std::string prefix = fmt::format("{}/{}", path_, name);
  if (std::ranges::find(names_, name) == names_.end()) {
    if (disk_->open(ckpt::index_path(prefix)).ok()) {
      SR_RETURN_IF_ERROR(remove_what_stands_on(name));
    }
    Status removed = disk_->remove(ckpt::index_path(prefix));
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
    if (removed.ok()) SR_RETURN_IF_ERROR(remove_data(name));
  }
  SR_RETURN_IF_ERROR(lock_->note(fmt::format("{} {}", kSaving, name)));
  return prefix;
}

int64_t CheckpointDirectory::data_files(const std::string& prefix) const {
  const Result<std::vector<std::string>> files = disk_->list(path_);
  if (!files.ok()) return 0;
  const std::string data = std::filesystem::path(prefix).filename().string() + ".data-";
  return std::ranges::count_if(*files,
                               [&](const std::string& file) { return file.starts_with(data); });
}

Status CheckpointDirectory::add(const std::string& prefix) {
  const std::string name = std::filesystem::path(prefix).filename().string();
  std::erase(names_, name);
  names_.push_back(name);
  std::vector<std::string> old;
  const auto count = static_cast<int64_t>(names_.size());
  if (keep_ > 0 && count > keep_) {
    const auto end = names_.begin() + (count - keep_);
    std::set<std::string> needed;
    for (auto it = end; it != names_.end(); ++it) {
      for (std::string& base : bases_of(*it)) needed.insert(std::move(base));
    }
    const auto held = std::stable_partition(
        names_.begin(), end, [&](const std::string& one) { return !needed.contains(one); });
    old.assign(names_.begin(), held);
    names_.erase(names_.begin(), held);
  }
  SR_RETURN_IF_ERROR(
      lock_->note(fmt::format("{} {} {} {}", kSaving, name, kRemoving, base::join(old, " "))));
  SR_RETURN_IF_ERROR(write_state());
  for (const std::string& one : old) SR_RETURN_IF_ERROR(remove(one));
  return lock_->note("");
}

/// Names of all that a checkpoint stands on.
std::vector<std::string> CheckpointDirectory::bases_of(const std::string& name) const {
  std::vector<std::string> out = ckpt::bases_of(disk_.get(), fmt::format("{}/{}", path_, name));
  for (std::string& base : out) base = sys::file_name_of(base);
  return out;
}

/// It would have values of the new one.
Status CheckpointDirectory::remove_what_stands_on(const std::string& name) {
  SR_ASSIGN_OR_RETURN(const std::vector<std::string> files, disk_->list(path_));
  for (std::string file : files) {
    if (!file.starts_with(kPrefix) || !file.ends_with(kIndexSuffix)) continue;
    file.resize(file.size() - std::string_view(kIndexSuffix).size());
    const std::vector<std::string> bases = bases_of(file);
    if (std::ranges::find(bases, name) == bases.end()) continue;
    std::erase(names_, file);
    SR_RETURN_IF_ERROR(remove(file));
  }
  return {};
}

Status CheckpointDirectory::write_state() {
  std::string text = fmt::format("model_checkpoint_path: {}\n", in_quotes(names_.back()));
  for (const std::string& name : names_) {
    text += fmt::format("all_model_checkpoint_paths: {}\n", in_quotes(name));
  }
  return sys::write_file_at_once(disk_.get(), fmt::format("{}/{}", path_, kStateFile), text,
                                 sys::posix::create_random()->next());
}

Status CheckpointDirectory::remove(const std::string& name) {
  // The index first: what has one has all its data.
  Status removed = disk_->remove(ckpt::index_path(fmt::format("{}/{}", path_, name)));
  if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  return remove_data(name);
}

Status CheckpointDirectory::remove_data(const std::string& name) {
  SR_ASSIGN_OR_RETURN(const std::vector<std::string> files, disk_->list(path_));
  const std::string data = name + ".data-";
  const std::string half_index = name + ".index.";
  for (const std::string& file : files) {
    if (!file.starts_with(data) && !file.starts_with(half_index)) continue;
    Status removed = disk_->remove(fmt::format("{}/{}", path_, file));
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  }
  return {};
}

}  // namespace sidereal::train
