#include "sidereal/ckpt/checkpoint_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::ckpt {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

constexpr uint64_t kIndexBytesMax = uint64_t{1} << 30;
/// Rows of an increment that are read at once.
constexpr int64_t kRowsAtOnce = int64_t{1} << 15;

/// The entries of one name.
std::span<const Entry> entries_of(const Index& index, std::string_view name) {
  struct ByName {
    bool operator()(const Entry& a, std::string_view b) const { return a.name < b; }
    bool operator()(std::string_view a, const Entry& b) const { return a < b.name; }
  };
  // clang 14 does not take std::ranges::equal_range.
  const auto [begin, end] =
      std::equal_range(index.entries.begin(), index.entries.end(), name, ByName());
  return {begin, end};
}

std::span<std::byte> bytes_of(Tensor* tensor) { return {tensor->raw(), tensor->nbytes()}; }

}  // namespace

Result<Index> read_index(sys::Disk* disk, const std::string& prefix) {
  const std::string path = index_path(prefix);
  Result<std::string> bytes = sys::read_file(disk, path, kIndexBytesMax);
  if (bytes.status().code() == StatusCode::kNotFound) {
    return base::not_found("there is no checkpoint {}: {}", prefix,
                           base::message_of(bytes.status()));
  }
  SR_RETURN_IF_ERROR(bytes.status());
  SR_ASSIGN_OR_RETURN(Index index, decode(*bytes, path));
  const Status in_order = check_order(index);
  if (in_order.ok()) return index;
  return base::with_context(in_order, fmt::format("{} is damaged, or no checkpoint", path));
}

std::vector<std::string> bases_of(sys::Disk* disk, const std::string& prefix) {
  std::vector<std::string> out;
  std::string at = prefix;
  while (true) {
    const Result<Index> index = read_index(disk, at);
    if (!index.ok() || index->base.empty()) return out;
    at = sys::path_beside(at, index->base);
    if (std::ranges::find(out, at) != out.end()) return out;
    out.push_back(at);
  }
}

Status write_index(sys::Disk* disk, const std::string& prefix, const Index& index,
                   uint64_t unique) {
  const Result<Index> before = read_index(disk, prefix);
  SR_RETURN_IF_ERROR(sys::write_file_at_once(disk, index_path(prefix), encode(index), unique));
  if (!before.ok()) return {};
  for (const DataFile& file : before->files) {
    const bool is_used = std::ranges::any_of(
        index.files, [&](const DataFile& now) { return now.name == file.name; });
    // Nobody reads it any more; what cannot be removed takes room, and does no harm.
    if (!is_used) static_cast<void>(disk->remove(sys::path_beside(prefix, file.name)));
  }
  return {};
}

CheckpointReader::CheckpointReader(std::vector<Level> levels) : levels_(std::move(levels)) {
  std::vector<StoredTensor> tensors;
  for (const Entry& entry : levels_.back().index.entries) {
    if (tensors.empty() || tensors.back().name != entry.name) {
      tensors.push_back({.name = entry.name, .dtype = entry.dtype, .shape = entry.shape});
    }
    if (!is_whole(entry.slice, entry.shape)) tensors.back().slices.push_back(entry.slice);
  }
  set_tensors(std::move(tensors));
}

Result<std::unique_ptr<CheckpointReader>> CheckpointReader::open(std::shared_ptr<sys::Disk> disk,
                                                                 const std::string& prefix) {
  std::vector<Level> levels;
  std::set<std::string> seen;
  for (std::string at = prefix; !at.empty();) {
    if (!seen.insert(at).second) {
      return base::data_loss("checkpoint {} stands on itself, by way of {}", prefix, at);
    }
    Result<Index> index = read_index(disk.get(), at);
    if (!index.ok() && at != prefix) {
      return base::with_context(index.status(),
                                fmt::format("checkpoint {} has what changed since {}", prefix, at));
    }
    SR_RETURN_IF_ERROR(index.status());
    Level& level = levels.emplace_back();
    level.prefix = at;
    level.index = *std::move(index);
    level.data = std::make_unique<DataReader>(disk, sys::directory_of(at), level.index.files);
    SR_RETURN_IF_ERROR(level.data->check_files());
    at = level.index.base.empty() ? "" : sys::path_beside(at, level.index.base);
  }
  std::ranges::reverse(levels);
  return std::unique_ptr<CheckpointReader>(new CheckpointReader(std::move(levels)));
}

Result<Tensor> CheckpointReader::read_whole(const StoredTensor& stored) {
  return read_part(stored, whole_slice(stored.shape));
}

Result<Tensor> CheckpointReader::read_part(const StoredTensor& stored, const Slice& part) {
  SR_ASSIGN_OR_RETURN(Tensor out, tensor_for(stored.dtype, shape_of(part)));
  SR_RETURN_IF_ERROR(read_stored(stored, part, &out));
  return out;
}

Status CheckpointReader::read_into(std::string_view name, const Slice& part, Tensor* out) {
  const StoredTensor* const stored = find(name);
  if (stored == nullptr) {
    return base::not_found("checkpoint {} has no tensor '{}'", levels_.back().prefix, name);
  }
  SR_RETURN_IF_ERROR(check_slice(part, stored->shape));
  return read_stored(*stored, part, out);
}

std::string CheckpointReader::changes_made(std::string_view name, const Slice& part) const {
  for (const Entry& entry : entries_of(levels_.back().index, name)) {
    if (entry.slice == part) return entry.changes_made;
  }
  return {};
}

Entry::Pushed CheckpointReader::pushed(std::string_view name, const Slice& part) const {
  for (const Entry& entry : entries_of(levels_.back().index, name)) {
    if (entry.slice == part) return entry.pushed;
  }
  return {};
}

Status CheckpointReader::read_stored(const StoredTensor& stored, const Slice& part, Tensor* out) {
  // The newest checkpoint that has the whole tensor, then what has changed since.
  size_t from = levels_.size();
  while (from-- > 0) {
    const std::span<const Entry> entries = entries_of(levels_[from].index, stored.name);
    for (const Entry& entry : entries) {
      if (entry.dtype == stored.dtype && entry.shape == stored.shape) continue;
      return base::data_loss("'{}' is {}{} in {}, and {}{} in {}, which stands on that",
                             stored.name, tensor::name_of(entry.dtype), entry.shape.to_string(),
                             levels_[from].prefix, tensor::name_of(stored.dtype),
                             stored.shape.to_string(), levels_.back().prefix);
    }
    if (std::ranges::none_of(entries, [](const Entry& entry) { return entry.is_increment; })) break;
    if (from > 0) continue;
    return base::data_loss("{} has what changed of '{}' only, and stands on nothing",
                           levels_[0].prefix, stored.name);
  }
  int64_t elements = 0;
  for (const Entry& entry : entries_of(levels_[from].index, stored.name)) {
    SR_RETURN_IF_ERROR(add_entry(levels_[from], entry, part, out, &elements));
  }
  if (elements != out->num_elements()) {
    return base::data_loss("{} has {} elements of {}{} of '{}': parts of it lack",
                           levels_[from].prefix, elements, out->num_elements(),
                           shape_of(part).to_string(), stored.name);
  }
  for (size_t at = from + 1; at < levels_.size(); ++at) {
    for (const Entry& entry : entries_of(levels_[at].index, stored.name)) {
      if (entry.is_increment) {
        SR_RETURN_IF_ERROR(add_increment(levels_[at], entry, part, out));
      } else {
        SR_RETURN_IF_ERROR(add_entry(levels_[at], entry, part, out, &elements));
      }
    }
  }
  return {};
}

/// Copies what `entry` has of `part` to `out`, and counts it.
Status CheckpointReader::add_entry(const Level& level, const Entry& entry, const Slice& part,
                                   Tensor* out, int64_t* elements) {
  if (entry.dtype == DType::kString) {
    SR_ASSIGN_OR_RETURN(const Tensor strings, read_strings(level, entry));
    *elements += copy_common(entry.slice, strings, part, out);
    return {};
  }
  const size_t size = tensor::size_of(entry.dtype);
  return for_each_run(entry.slice, part, [&](const Run& run) -> Status {
    *elements += run.count;
    return level.data->read(entry.data, static_cast<uint64_t>(run.from) * size,
                            bytes_of(out).subspan(static_cast<size_t>(run.to) * size,
                                                  static_cast<size_t>(run.count) * size));
  });
}

Status CheckpointReader::add_increment(const Level& level, const Entry& entry, const Slice& part,
                                       Tensor* out) {
  const auto rows = static_cast<int64_t>(entry.rows.bytes / sizeof(int64_t));
  const Shape have = shape_of(entry.slice);
  const int64_t all = have.rank() > 0 ? have.dim(0) : 1;
  if (rows == 0 || all == 0) return {};
  Shape row_shape = have;
  if (have.rank() > 0) row_shape.set_dim(0, 1);
  const uint64_t row_bytes = entry.data.bytes / static_cast<uint64_t>(rows);
  std::vector<int64_t> which;
  for (int64_t at = 0; at < rows; at += kRowsAtOnce) {
    const int64_t some = std::min(kRowsAtOnce, rows - at);
    which.resize(static_cast<size_t>(some));
    SR_RETURN_IF_ERROR(level.data->read(entry.rows, static_cast<uint64_t>(at) * sizeof(int64_t),
                                        std::as_writable_bytes(std::span(which))));
    SR_ASSIGN_OR_RETURN(Tensor row, tensor_for(entry.dtype, row_shape));
    for (int64_t i = 0; i < some; ++i) {
      const int64_t number = which[static_cast<size_t>(i)];
      if (number < 0 || number >= all) {
        return base::data_loss("{} has row {} of '{}', whose part there has {}", level.prefix,
                               number, entry.name, all);
      }
      Slice of_row = entry.slice;
      if (!of_row.empty()) {
        of_row[0] = {of_row[0].start + number * of_row[0].step, 1, of_row[0].step};
      }
      if (num_common(of_row, part) == 0) continue;
      SR_RETURN_IF_ERROR(
          level.data->read(entry.data, static_cast<uint64_t>(at + i) * row_bytes, bytes_of(&row)));
      copy_common(of_row, row, part, out);
    }
  }
  return {};
}

Result<Tensor> CheckpointReader::read_strings(const Level& level, const Entry& entry) {
  std::string bytes(entry.data.bytes, '\0');
  SR_RETURN_IF_ERROR(level.data->read(entry.data, 0, std::as_writable_bytes(std::span(bytes))));
  Result<Tensor> strings = tensor::strings_from_bytes(bytes, shape_of(entry.slice));
  if (strings.ok()) return strings;
  return base::with_context(strings.status(), fmt::format("{}: '{}'", level.prefix, entry.name));
}

Status CheckpointReader::verify_stored(const StoredTensor& stored) {
  for (const Level& level : levels_) {
    for (const Entry& entry : entries_of(level.index, stored.name)) {
      SR_RETURN_IF_ERROR(level.data->verify(entry.rows));
      SR_RETURN_IF_ERROR(level.data->verify(entry.data));
    }
  }
  return {};
}

}  // namespace sidereal::ckpt
