#include "sidereal/ckpt/index.h"

#include <algorithm>
#include <tuple>

#include "sidereal/base/bytes.h"
#include "sidereal/base/hash.h"
#include "sidereal/sys/disk.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::ckpt {

using base::ByteReader;
using base::ByteWriter;
using tensor::DType;
using tensor::Shape;

namespace {

constexpr std::string_view kMagic = "SRCKPT";
constexpr uint16_t kVersion = 2;
/// That of an index that says nothing of pushes.
constexpr uint16_t kVersionWithoutPushes = 1;
/// Bits of the flags of an entry.
constexpr uint8_t kIncrement = 1;
constexpr uint8_t kPushed = 2;
constexpr uint32_t kNameBytesMax = 4096;
constexpr uint32_t kRankMax = 32;
constexpr uint32_t kManyMax = uint32_t{1} << 30;

uint64_t blocks_of(uint64_t bytes) { return bytes / kBlockBytes + (bytes % kBlockBytes != 0); }

void put(const Extent& extent, ByteWriter* out) {
  out->put(extent.file);
  out->put(extent.offset);
  out->put(extent.bytes);
  for (const uint64_t checksum : extent.checksums) out->put(checksum);
}

void put(const Entry& entry, ByteWriter* out) {
  out->put_string(entry.name);
  out->put(static_cast<uint8_t>(entry.dtype));
  const bool says_pushes = entry.pushed.life != 0;
  out->put(
      static_cast<uint8_t>((entry.is_increment ? kIncrement : 0) | (says_pushes ? kPushed : 0)));
  out->put(static_cast<uint16_t>(entry.shape.rank()));
  for (const int64_t extent : entry.shape.dims()) out->put(extent);
  for (const Range& range : entry.slice) {
    out->put(range.start);
    out->put(range.count);
    out->put(range.step);
  }
  if (entry.is_increment) put(entry.rows, out);
  put(entry.data, out);
  out->put_string(entry.changes_made);
  if (!says_pushes) return;
  out->put(entry.pushed.life);
  out->put(entry.pushed.pushes);
  out->put(entry.pushed.rows);
  out->put_string(entry.pushed.table);
}

/// Reads an extent that lies in one of `files`.
Status get(ByteReader* in, const std::vector<DataFile>& files, Extent* out) {
  SR_RETURN_IF_ERROR(in->get(&out->file));
  SR_RETURN_IF_ERROR(in->get(&out->offset));
  SR_RETURN_IF_ERROR(in->get(&out->bytes));
  if (out->file >= files.size()) {
    return base::data_loss("file {} of {}", out->file, files.size());
  }
  const uint64_t size = files[out->file].bytes;
  if (out->offset > size || out->bytes > size - out->offset) {
    return base::data_loss("bytes {} to {} + {} of {}, which has {}", out->offset, out->offset,
                           out->bytes, files[out->file].name, size);
  }
  const uint64_t blocks = blocks_of(out->bytes);
  if (blocks > in->remaining() / sizeof(uint64_t)) return base::data_loss("checksums lack");
  out->checksums.resize(blocks);
  for (uint64_t& checksum : out->checksums) SR_RETURN_IF_ERROR(in->get(&checksum));
  return {};
}

/// kDataLoss unless the extents have as many bytes as the slice needs.
Status check_bytes(const Entry& entry) {
  const Shape part = shape_of(entry.slice);
  const auto elements = static_cast<uint64_t>(part.num_elements());
  if (entry.dtype == DType::kString) {
    if (!entry.is_increment && entry.data.bytes / sizeof(uint64_t) >= elements) return {};
    if (entry.is_increment && entry.rows.bytes == 0 && entry.data.bytes == 0) return {};
    return base::data_loss("{} bytes for {} strings", entry.data.bytes, elements);
  }
  uint64_t needed = 0;
  const uint64_t size = tensor::size_of(entry.dtype);
  if (__builtin_mul_overflow(elements, size, &needed)) return base::data_loss("too many elements");
  if (entry.is_increment) {
    const uint64_t rows = part.rank() > 0 ? static_cast<uint64_t>(part.dim(0)) : 1;
    const uint64_t changed = entry.rows.bytes / sizeof(int64_t);
    if (entry.rows.bytes % sizeof(int64_t) != 0 || changed > rows) {
      return base::data_loss("{} bytes of numbers of {} rows", entry.rows.bytes, rows);
    }
    needed = rows == 0 ? 0 : needed / rows * changed;
  }
  if (entry.data.bytes == needed) return {};
  return base::data_loss("{} bytes where {} are needed", entry.data.bytes, needed);
}

Status get(ByteReader* in, Entry::Pushed* out) {
  SR_RETURN_IF_ERROR(in->get(&out->life));
  SR_RETURN_IF_ERROR(in->get(&out->pushes));
  SR_RETURN_IF_ERROR(in->get(&out->rows));
  SR_RETURN_IF_ERROR(in->get_string(&out->table, kNameBytesMax));
  if (out->life != 0 && out->pushes >= 0 && out->rows >= 0) return {};
  return base::data_loss("{} pushes of {} rows in life {:016x}", out->pushes, out->rows, out->life);
}

Status get(ByteReader* in, const std::vector<DataFile>& files, uint16_t version, Entry* out) {
  uint8_t dtype = 0;
  uint8_t flags = 0;
  uint16_t rank = 0;
  SR_RETURN_IF_ERROR(in->get_string(&out->name, kNameBytesMax));
  SR_RETURN_IF_ERROR(in->get(&dtype));
  SR_RETURN_IF_ERROR(in->get(&flags));
  SR_RETURN_IF_ERROR(in->get(&rank));
  out->dtype = static_cast<DType>(dtype);
  if (!tensor::is_valid(out->dtype)) return base::data_loss("dtype {}", dtype);
  const int known = kIncrement | (version == kVersionWithoutPushes ? 0 : kPushed);
  if ((flags & ~known) != 0) return base::data_loss("flags {}", flags);
  out->is_increment = (flags & kIncrement) != 0;
  if (rank > kRankMax) return base::data_loss("{} dimensions", rank);
  out->shape = Shape();
  for (uint16_t i = 0; i < rank; ++i) {
    int64_t extent = 0;
    SR_RETURN_IF_ERROR(in->get(&extent));
    if (extent < 0) return base::data_loss("extent {}", extent);
    out->shape.append(extent);
  }
  out->slice.resize(rank);
  for (Range& range : out->slice) {
    SR_RETURN_IF_ERROR(in->get(&range.start));
    SR_RETURN_IF_ERROR(in->get(&range.count));
    SR_RETURN_IF_ERROR(in->get(&range.step));
  }
  const Status fits = check_slice(out->slice, out->shape);
  if (!fits.ok()) return base::data_loss("{}", base::message_of(fits));
  if (out->is_increment) SR_RETURN_IF_ERROR(get(in, files, &out->rows));
  SR_RETURN_IF_ERROR(get(in, files, &out->data));
  SR_RETURN_IF_ERROR(in->get_string(&out->changes_made, kManyMax));
  if ((flags & kPushed) != 0) SR_RETURN_IF_ERROR(get(in, &out->pushed));
  return check_bytes(*out);
}

/// A name of a file in the same directory, and no path to elsewhere.
Status check_name(const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..") {
    return {};
  }
  return base::data_loss("'{}' is no name of a file", name);
}

Status get(ByteReader* in, uint16_t version, Index* out) {
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(in->get_string(&out->base, kNameBytesMax));
  if (!out->base.empty()) SR_RETURN_IF_ERROR(check_name(out->base));
  SR_RETURN_IF_ERROR(in->get_count(&count, kManyMax, sizeof(uint64_t)));
  out->cuts.resize(count);
  for (uint64_t& cut : out->cuts) SR_RETURN_IF_ERROR(in->get(&cut));
  SR_RETURN_IF_ERROR(in->get_count(&count, kManyMax, 12));
  out->files.resize(count);
  for (DataFile& file : out->files) {
    SR_RETURN_IF_ERROR(in->get_string(&file.name, kNameBytesMax));
    SR_RETURN_IF_ERROR(check_name(file.name));
    SR_RETURN_IF_ERROR(in->get(&file.bytes));
  }
  SR_RETURN_IF_ERROR(in->get_count(&count, kManyMax, 28));
  for (uint32_t i = 0; i < count; ++i) {
    Entry& entry = out->entries.emplace_back();
    const Status read = get(in, out->files, version, &entry);
    if (!read.ok()) return base::with_context(read, fmt::format("tensor '{}'", entry.name));
  }
  if (in->remaining() == 0) return {};
  return base::data_loss("{} bytes follow", in->remaining());
}

bool comes_before(const Entry& a, const Entry& b) {
  if (a.name != b.name) return a.name < b.name;
  const auto starts = [](const Entry& entry) {
    std::vector<int64_t> out;
    for (const Range& range : entry.slice) out.push_back(range.start);
    return out;
  };
  return starts(a) < starts(b);
}

/// kInvalidArgument unless `parts`, of one name, are one tensor, each element of it once.
Status check_whole(std::span<const Entry> parts) {
  const Entry& first = parts.front();
  int64_t elements = 0;
  for (const Entry& part : parts) {
    if (part.dtype != first.dtype || !(part.shape == first.shape)) {
      return base::invalid_argument("'{}' is {}{} and {}{} in parts that are saved at once",
                                    first.name, tensor::name_of(first.dtype),
                                    first.shape.to_string(), tensor::name_of(part.dtype),
                                    part.shape.to_string());
    }
    elements += shape_of(part.slice).num_elements();
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = i + 1; j < parts.size(); ++j) {
      if (num_common(parts[i].slice, parts[j].slice) == 0 && !parts[i].slice.empty()) continue;
      return base::invalid_argument("'{}' is saved twice: {} and {}; give one another name",
                                    first.name, format_slice(parts[i].slice, first.shape),
                                    format_slice(parts[j].slice, first.shape));
    }
  }
  if (elements == first.shape.num_elements()) return {};
  return base::invalid_argument("of '{}' {} elements of {} are saved: parts of it lack", first.name,
                                elements, first.shape.num_elements());
}

}  // namespace

bool begins_as_index(std::string_view bytes) { return bytes.starts_with(kMagic); }

std::string encode(const Index& index) {
  ByteWriter out;
  out.put_bytes(kMagic);
  // Earlier releases read what they know.
  const bool says_pushes =
      std::ranges::any_of(index.entries, [](const Entry& entry) { return entry.pushed.life != 0; });
  out.put(says_pushes ? kVersion : kVersionWithoutPushes);
  out.put_string(index.base);
  out.put(static_cast<uint32_t>(index.cuts.size()));
  for (const uint64_t cut : index.cuts) out.put(cut);
  out.put(static_cast<uint32_t>(index.files.size()));
  for (const DataFile& file : index.files) {
    out.put_string(file.name);
    out.put(file.bytes);
  }
  out.put(static_cast<uint32_t>(index.entries.size()));
  for (const Entry& entry : index.entries) put(entry, &out);
  out.put(base::hash64(out.bytes()));
  return out.take();
}

Result<Index> decode(std::string_view bytes, std::string_view what) {
  const auto damaged = [&](std::string_view why) {
    return base::data_loss("{} is damaged, or no checkpoint: {}", what, why);
  };
  constexpr size_t kChecksum = sizeof(uint64_t);
  if (bytes.size() < kMagic.size() + sizeof(kVersion) + kChecksum)
    return damaged("it is too short");
  if (!begins_as_index(bytes)) return damaged("it does not begin as one");
  ByteReader checksum(bytes.substr(bytes.size() - kChecksum));
  uint64_t stored = 0;
  SR_RETURN_IF_ERROR(checksum.get(&stored));
  bytes.remove_suffix(kChecksum);
  if (stored != base::hash64(bytes)) return damaged("its checksum is wrong");
  ByteReader in(bytes.substr(kMagic.size()));
  uint16_t version = 0;
  SR_RETURN_IF_ERROR(in.get(&version));
  if (version < kVersionWithoutPushes || version > kVersion) {
    return base::unimplemented(
        "{} has format {}; this release reads formats {} to {}: read it with the release that "
        "wrote it",
        what, version, kVersionWithoutPushes, kVersion);
  }
  Index out;
  const Status read = get(&in, version, &out);
  if (!read.ok()) return damaged(base::message_of(read));
  return out;
}

Result<Index> merge(std::span<const Index> parts, std::string base) {
  Index out;
  out.base = std::move(base);
  for (const Index& part : parts) {
    const auto first = static_cast<uint32_t>(out.files.size());
    out.cuts.insert(out.cuts.end(), part.cuts.begin(), part.cuts.end());
    out.files.insert(out.files.end(), part.files.begin(), part.files.end());
    for (const Entry& entry : part.entries) {
      Entry& added = out.entries.emplace_back(entry);
      added.data.file += first;
      if (added.is_increment) added.rows.file += first;
      if (!added.is_increment || !out.base.empty()) continue;
      return base::invalid_argument("'{}' has what changed only, and no base is named", entry.name);
    }
  }
  std::ranges::sort(out.entries, comes_before);
  for (size_t i = 0; i < out.entries.size();) {
    size_t end = i + 1;
    while (end < out.entries.size() && out.entries[end].name == out.entries[i].name) ++end;
    SR_RETURN_IF_ERROR(check_whole(std::span(out.entries).subspan(i, end - i)));
    i = end;
  }
  return out;
}

Status check_order(const Index& index) {
  for (size_t i = 1; i < index.entries.size(); ++i) {
    const Entry& before = index.entries[i - 1];
    const Entry& entry = index.entries[i];
    if (comes_before(entry, before)) {
      return base::data_loss("its tensors are in no order: '{}' follows '{}'", entry.name,
                             before.name);
    }
    if (entry.name != before.name) continue;
    if (entry.dtype == before.dtype && entry.shape == before.shape) continue;
    return base::data_loss("'{}' is {}{}, and {}{}", entry.name, tensor::name_of(before.dtype),
                           before.shape.to_string(), tensor::name_of(entry.dtype),
                           entry.shape.to_string());
  }
  return {};
}

std::string index_path(const std::string& prefix) { return prefix + ".index"; }

std::string data_file_name(const std::string& prefix, int64_t shard, int64_t shards,
                           uint64_t unique) {
  return fmt::format("{}.data-{:05}-of-{:05}.{:08x}", sys::file_name_of(prefix), shard, shards,
                     static_cast<uint32_t>(unique));
}

std::string cut_text(const std::vector<uint64_t>& cuts) {
  std::string out;
  for (const uint64_t cut : cuts) {
    if (!out.empty()) out += ',';
    out += fmt::format("{:016x}", cut);
  }
  return out;
}

Result<std::vector<uint64_t>> parse_cut(std::string_view text) {
  std::vector<uint64_t> out;
  constexpr size_t kDigits = 16;
  while (!text.empty()) {
    const std::string one(text.substr(0, kDigits));
    const bool is_hex =
        one.size() == kDigits && one.find_first_not_of("0123456789abcdef") == std::string::npos;
    text.remove_prefix(one.size());
    const bool goes_on = text.starts_with(',') && text.size() > 1;
    if (!is_hex || (!text.empty() && !goes_on)) {
      return base::invalid_argument(
          "the cut that increments count from is no cut that CommitCheckpoint has told");
    }
    if (goes_on) text.remove_prefix(1);
    out.push_back(std::stoull(one, nullptr, 16));
  }
  return out;
}

}  // namespace sidereal::ckpt
