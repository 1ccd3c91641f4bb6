#include "sidereal/ckpt/internal/zip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/base/check.h"

namespace sidereal::ckpt::internal {
namespace {

using base::ByteReader;
using base::ByteWriter;
using base::data_loss;

constexpr uint32_t kLocal = 0x04034b50;
constexpr uint32_t kCentral = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocator64Bytes = 20;
constexpr size_t kCentralBytes = 46;
constexpr size_t kCommentBytesMax = 65535;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // The number stands in the extension.
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kUtf8 = 0x800;
/// A byte of deflate makes no more.
constexpr uint64_t kGrowthMax = 1040;
constexpr size_t kPieceBytes = size_t{64} << 10;

/// Reads fields that are known to be there, after one check of all.
struct Fields {
  ByteReader in;
  template <class T>
  T get() {
    T value{};
    SR_CHECK(in.get(&value).ok());
    return value;
  }
};

struct Directory {
  uint64_t at = 0;
  uint64_t size = 0;
  uint64_t entries = 0;
};

/// Finds the directory by the record at the end of the file.
Result<Directory> find_directory(const InputFile& file) {
  const uint64_t tail_bytes = std::min<uint64_t>(file.size(), kEndBytes + kCommentBytesMax);
  const uint64_t tail_at = file.size() - tail_bytes;
  std::string tail(tail_bytes, '\0');
  SR_RETURN_IF_ERROR(file.read(tail_at, tail));
  const char mark[] = {'P', 'K', 5, 6};
  const size_t found = std::string_view(tail).rfind(std::string_view(mark, sizeof(mark)));
  if (found == std::string::npos || tail.size() - found < kEndBytes) {
    return data_loss("it is no ZIP, or was cut off");
  }
  Fields end{ByteReader(std::string_view(tail).substr(found + sizeof(kEnd)))};
  end.get<uint64_t>();  // Numbers of disks, and entries of this one.
  Directory out;
  __builtin_memcpy(&out.entries, tail.data() + found + 10, sizeof(uint16_t));
  out.size = end.get<uint32_t>();
  out.at = end.get<uint32_t>();
  // Where the numbers are too large for this record, a locator of another stands before it.
  const uint64_t end_at = tail_at + found;
  if (end_at < kLocator64Bytes) return out;
  std::string locator(kLocator64Bytes, '\0');
  SR_RETURN_IF_ERROR(file.read(end_at - kLocator64Bytes, locator));
  Fields in{ByteReader(locator)};
  if (in.get<uint32_t>() != kLocator64) return out;
  in.get<uint32_t>();
  const auto end64_at = in.get<uint64_t>();
  std::string end64(kEnd64Bytes, '\0');
  SR_RETURN_IF_ERROR(file.read(end64_at, end64));
  Fields large{ByteReader(end64)};
  if (large.get<uint32_t>() != kEnd64) return data_loss("its directory cannot be found");
  large.get<uint64_t>();  // The size of the record,
  large.get<uint32_t>();  // versions,
  large.get<uint64_t>();  // disks,
  large.get<uint64_t>();  // and entries of this one.
  out.entries = large.get<uint64_t>();
  out.size = large.get<uint64_t>();
  out.at = large.get<uint64_t>();
  return out;
}

/// Takes the numbers that stand in the extension.
Status read_extra(std::string_view extra, ZipEntry* entry) {
  ByteReader in(extra);
  while (in.remaining() >= 4) {
    uint16_t id = 0;
    uint16_t size = 0;
    SR_RETURN_IF_ERROR(in.get(&id));
    SR_RETURN_IF_ERROR(in.get(&size));
    SR_ASSIGN_OR_RETURN(const std::string_view field, in.take(size));
    if (id != kZip64Extra) continue;
    ByteReader numbers(field);
    for (uint64_t* number : {&entry->size, &entry->stored, &entry->at}) {
      if (*number == kIn64) SR_RETURN_IF_ERROR(numbers.get(number));
    }
  }
  return {};
}

Result<ZipEntry> read_entry(ByteReader* in) {
  SR_ASSIGN_OR_RETURN(const std::string_view head, in->take(kCentralBytes));
  Fields fields{ByteReader(head)};
  if (fields.get<uint32_t>() != kCentral) return data_loss("its directory is damaged");
  fields.get<uint32_t>();  // Versions.
  const auto flags = fields.get<uint16_t>();
  const auto method = fields.get<uint16_t>();
  fields.get<uint32_t>();  // Date.
  ZipEntry entry;
  entry.crc = fields.get<uint32_t>();
  entry.stored = fields.get<uint32_t>();
  entry.size = fields.get<uint32_t>();
  const auto name_bytes = fields.get<uint16_t>();
  const auto extra_bytes = fields.get<uint16_t>();
  const auto comment_bytes = fields.get<uint16_t>();
  fields.get<uint64_t>();  // Disk and attributes.
  entry.at = fields.get<uint32_t>();
  SR_ASSIGN_OR_RETURN(entry.name, in->take(name_bytes));
  SR_ASSIGN_OR_RETURN(const std::string_view extra, in->take(extra_bytes));
  SR_RETURN_IF_ERROR(in->take(comment_bytes).status());
  SR_RETURN_IF_ERROR(read_extra(extra, &entry));
  if ((method != kStored && method != kDeflated) || (flags & kEncrypted) != 0) {
    return base::unimplemented("its file '{}' is compressed by method {}, or encrypted", entry.name,
                               method);
  }
  entry.is_deflated = method == kDeflated;
  if (entry.is_deflated ? entry.size / kGrowthMax > entry.stored : entry.size != entry.stored) {
    return data_loss("its file '{}' cannot have {} bytes", entry.name, entry.size);
  }
  return entry;
}

/// The extension with both sizes, and the place if it is given.
std::string extra64(const ZipEntry& entry, bool with_place) {
  ByteWriter out;
  out.put(kZip64Extra);
  out.put(static_cast<uint16_t>(with_place ? 24 : 16));
  out.put(entry.size);
  out.put(entry.stored);
  if (with_place) out.put(entry.at);
  return out.take();
}

/// What a header in front of a file and its place in the directory have in common.
void put_common(const ZipEntry& entry, size_t extra_bytes, ByteWriter* out) {
  constexpr uint16_t kFirstDay = 0x21;  // Of 1980: files of one content are the same.
  out->put(kVersion64);
  out->put(kUtf8);
  out->put(kStored);
  out->put(uint16_t{0});
  out->put(kFirstDay);
  out->put(entry.crc);
  out->put(kIn64);
  out->put(kIn64);
  out->put(static_cast<uint16_t>(entry.name.size()));
  out->put(static_cast<uint16_t>(extra_bytes));
}
constexpr size_t kCrcInLocal = 14;

uint32_t crc_of(uint32_t before, std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

Result<std::vector<ZipEntry>> read_zip(const InputFile& file) {
  SR_ASSIGN_OR_RETURN(const Directory directory, find_directory(file));
  SR_RETURN_IF_ERROR(file.check(directory.at, directory.size));
  std::string bytes(directory.size, '\0');
  SR_RETURN_IF_ERROR(file.read(directory.at, bytes));
  ByteReader in(bytes);
  std::vector<ZipEntry> out;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    SR_ASSIGN_OR_RETURN(out.emplace_back(), read_entry(&in));
  }
  return out;
}

struct ZipMember::Inflater {
  z_stream stream{};
  std::array<char, kPieceBytes> in;
  uint64_t taken = 0;  // Bytes of the ZIP.
  bool is_open = false;

  ~Inflater() {
    if (is_open) inflateEnd(&stream);
  }
};

ZipMember::ZipMember(const InputFile* file, const ZipEntry& entry, uint64_t data_at)
    : file_(file), entry_(entry), data_at_(data_at) {}
ZipMember::ZipMember(ZipMember&&) noexcept = default;
ZipMember::~ZipMember() = default;

Result<ZipMember> ZipMember::open(const InputFile* file, const ZipEntry& entry) {
  std::string head(kLocalBytes, '\0');
  SR_RETURN_IF_ERROR(file->read(entry.at, head));
  Fields fields{ByteReader(head)};
  if (fields.get<uint32_t>() != kLocal) {
    return data_loss("{}: there is no file '{}' where the directory says", file->path(),
                     entry.name);
  }
  uint16_t name_bytes = 0;
  uint16_t extra_bytes = 0;
  __builtin_memcpy(&name_bytes, head.data() + 26, sizeof(name_bytes));
  __builtin_memcpy(&extra_bytes, head.data() + 28, sizeof(extra_bytes));
  const uint64_t data_at = entry.at + kLocalBytes + name_bytes + extra_bytes;
  SR_RETURN_IF_ERROR(file->check(data_at, entry.stored));
  ZipMember out(file, entry, data_at);
  if (!entry.is_deflated) {
    out.reader_ = std::make_unique<RunReader>(file);
    return out;
  }
  out.inflater_ = std::make_unique<Inflater>();
  // Without a header of its own.
  if (inflateInit2(&out.inflater_->stream, -MAX_WBITS) != Z_OK) {
    return base::resource_exhausted("no memory to decompress '{}'", entry.name);
  }
  out.inflater_->is_open = true;
  return out;
}

Status ZipMember::read(std::span<char> out) {
  if (out.size() > entry_.size - at_) {
    return data_loss("it has {} bytes, and more are asked for", entry_.size);
  }
  if (!entry_.is_deflated) {
    // In pieces, so that the checksum finds them in the processor.
    while (!out.empty()) {
      const std::span<char> piece = out.first(std::min(out.size(), kPieceBytes * 4));
      SR_RETURN_IF_ERROR(reader_->read(data_at_ + at_, piece));
      crc_ = crc_of(crc_, {piece.data(), piece.size()});
      at_ += piece.size();
      out = out.subspan(piece.size());
    }
    return {};
  }
  z_stream& stream = inflater_->stream;
  while (!out.empty()) {
    if (stream.avail_in == 0 && inflater_->taken < entry_.stored) {
      const size_t some = std::min<uint64_t>(entry_.stored - inflater_->taken, kPieceBytes);
      SR_RETURN_IF_ERROR(
          file_->read(data_at_ + inflater_->taken, std::span(inflater_->in).first(some)));
      inflater_->taken += some;
      stream.next_in = reinterpret_cast<Bytef*>(inflater_->in.data());
      stream.avail_in = static_cast<uInt>(some);
    }
    const std::span<char> piece = out.first(std::min(out.size(), kPieceBytes));
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    const int code = inflate(&stream, Z_NO_FLUSH);
    const size_t got = piece.size() - stream.avail_out;
    if ((code != Z_OK && code != Z_STREAM_END) || got == 0) {
      return data_loss("its compressed bytes are damaged or cut off");
    }
    crc_ = crc_of(crc_, {piece.data(), got});
    at_ += got;
    out = out.subspan(got);
  }
  return {};
}

Status ZipMember::seek(uint64_t at, bool all) {
  SR_CHECK(at >= at_ && at <= entry_.size);
  if (!entry_.is_deflated && !all) {
    at_ = at;
    return {};
  }
  std::string skipped;
  while (at_ < at) {
    skipped.resize(std::min<uint64_t>(at - at_, kPieceBytes));
    SR_RETURN_IF_ERROR(read(skipped));
  }
  return {};
}

Status ZipMember::finish() {
  SR_RETURN_IF_ERROR(seek(entry_.size, /*all=*/true));
  return crc_ == entry_.crc ? Status() : data_loss("its checksum is wrong");
}

Status ZipWriter::begin(const std::string& name, uint64_t size) {
  if (name.size() > std::numeric_limits<uint16_t>::max()) {
    return base::invalid_argument("a ZIP has no names of {} bytes", name.size());
  }
  entries_.push_back({.name = name, .stored = size, .size = size, .at = file_->size()});
  const ZipEntry& entry = entries_.back();
  const std::string extra = extra64(entry, /*with_place=*/false);
  ByteWriter head;
  head.put(kLocal);
  put_common(entry, extra.size(), &head);
  return file_->append(head.bytes() + name + extra);
}

Status ZipWriter::append(std::string_view bytes) {
  ZipEntry& entry = entries_.back();
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kPieceBytes * 4);
    entry.crc = crc_of(entry.crc, piece);
    SR_RETURN_IF_ERROR(file_->append(piece));
    bytes.remove_prefix(piece.size());
  }
  return {};
}

Status ZipWriter::end() {
  const ZipEntry& entry = entries_.back();
  ByteWriter crc;
  crc.put(entry.crc);
  return file_->overwrite(entry.at + kCrcInLocal, crc.bytes());
}

Status ZipWriter::finish() {
  const uint64_t at = file_->size();
  for (const ZipEntry& entry : entries_) {
    const std::string extra = extra64(entry, /*with_place=*/true);
    ByteWriter head;
    head.put(kCentral);
    head.put(kVersion64);
    put_common(entry, extra.size(), &head);
    head.put(uint16_t{0});  // A comment,
    head.put(uint32_t{0});  // a disk, attributes
    head.put(uint32_t{0});  // of other systems.
    head.put(kIn64);
    SR_RETURN_IF_ERROR(file_->append(head.bytes() + entry.name + extra));
  }
  const uint64_t size = file_->size() - at;
  const uint64_t end_at = file_->size();
  ByteWriter end;
  end.put(kEnd64);
  end.put(uint64_t{kEnd64Bytes - 12});
  end.put(kVersion64);
  end.put(kVersion64);
  end.put(uint64_t{0});
  end.put(static_cast<uint64_t>(entries_.size()));
  end.put(static_cast<uint64_t>(entries_.size()));
  end.put(size);
  end.put(at);
  end.put(kLocator64);
  end.put(uint32_t{0});
  end.put(end_at);
  end.put(uint32_t{1});
  end.put(kEnd);
  end.put(uint32_t{0});
  const auto count = static_cast<uint16_t>(std::min<size_t>(entries_.size(), 0xFFFF));
  end.put(count);
  end.put(count);
  end.put(static_cast<uint32_t>(std::min<uint64_t>(size, kIn64)));
  end.put(static_cast<uint32_t>(std::min<uint64_t>(at, kIn64)));
  end.put(uint16_t{0});
  return file_->append(end.bytes());
}

}  // namespace sidereal::ckpt::internal
