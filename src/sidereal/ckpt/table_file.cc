#include "sidereal/ckpt/table_file.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/base/check.h"
#include "sidereal/parse/crc32c.h"

namespace sidereal::ckpt {
namespace {

using base::data_loss;

constexpr uint64_t kMagic = 0xdb4775248b80fb57;
constexpr size_t kHandlesBytes = 40;
/// A byte that says how the block is compressed, and a checksum.
constexpr size_t kTrailerBytes = 5;
constexpr size_t kBlockBytes = size_t{64} << 10;
constexpr uint32_t kWholeKeyEvery = 16;
/// Keys share their beginnings, so that a small file could have any amount of them: a multiple that
/// no file reaches that is not meant to.
constexpr size_t kGrowthMax = 64;
constexpr size_t kGrowthFree = size_t{1} << 20;

struct Handle {
  uint64_t at = 0;
  uint64_t size = 0;
};

bool take_handle(std::string_view* bytes, Handle* out) {
  return take_varint(bytes, &out->at) && take_varint(bytes, &out->size);
}

/// The entries of a block, its checksum checked.
Result<std::string_view> block_at(std::string_view file, const Handle& handle) {
  if (handle.at > file.size() || handle.size > file.size() - handle.at ||
      file.size() - handle.at - handle.size < kTrailerBytes) {
    return data_loss("a block of {} bytes from {} on is not in its {} bytes", handle.size,
                     handle.at, file.size());
  }
  const std::string_view sealed = file.substr(handle.at, handle.size + 1);
  base::ByteReader trailer(file.substr(handle.at + handle.size, kTrailerBytes));
  uint8_t kind = 0;
  uint32_t crc = 0;
  SR_RETURN_IF_ERROR(trailer.get(&kind));
  SR_RETURN_IF_ERROR(trailer.get(&crc));
  if (crc != parse::masked_crc(parse::crc32c(sealed))) {
    return data_loss("the checksum of the block from byte {} on is wrong", handle.at);
  }
  if (kind != 0) {
    return base::unimplemented(
        "the block from byte {} on is compressed, which TensorFlow does not do", handle.at);
  }
  const std::string_view block = file.substr(handle.at, handle.size);
  uint32_t restarts = 0;
  if (block.size() < sizeof(restarts)) return data_loss("a block has no end");
  __builtin_memcpy(&restarts, block.data() + block.size() - sizeof(restarts), sizeof(restarts));
  const uint64_t tail = (uint64_t{restarts} + 1) * sizeof(restarts);
  if (tail > block.size()) return data_loss("a block is all end");
  return block.substr(0, block.size() - tail);
}

/// Reads the entries of one block after the other. Thread: core-local.
class Entries {
 public:
  explicit Entries(size_t file_bytes) : left_(file_bytes * kGrowthMax + kGrowthFree) {}

  Status read(std::string_view block,
              absl::FunctionRef<Status(std::string_view, std::string_view)> use) {
    key_.clear();
    while (!block.empty()) {
      uint64_t shared = 0;
      uint64_t more = 0;
      uint64_t value = 0;
      if (!take_varint(&block, &shared) || !take_varint(&block, &more) ||
          !take_varint(&block, &value) || shared > key_.size() || more > block.size() ||
          value > block.size() - more) {
        return data_loss("an entry cannot be");
      }
      if (shared + more > left_) return data_loss("its keys are longer than any file's");
      left_ -= shared + more;
      key_.resize(shared);
      key_ += block.substr(0, more);
      SR_RETURN_IF_ERROR(use(key_, block.substr(more, value)));
      block.remove_prefix(more + value);
    }
    return {};
  }

 private:
  size_t left_;  // Of all bytes of keys.
  std::string key_;
};

}  // namespace

void put_varint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

bool take_varint(std::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    if (shift == 63 && byte > 1) return false;
    *value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool is_table(std::string_view file) {
  uint64_t magic = 0;
  if (file.size() < kTableFooterBytes) return false;
  __builtin_memcpy(&magic, file.data() + file.size() - sizeof(magic), sizeof(magic));
  return magic == kMagic;
}

void TableBuilder::Block::add(std::string_view key, std::string_view value, uint32_t whole_every) {
  const bool is_whole = entries++ % whole_every == 0;
  size_t shared = 0;
  if (is_whole) {
    base::ByteWriter at;
    at.put(static_cast<uint32_t>(bytes.size()));
    restarts += at.bytes();
  } else {
    const auto differ = std::mismatch(key.begin(), key.end(), last_key.begin(), last_key.end());
    shared = static_cast<size_t>(differ.first - key.begin());
  }
  put_varint(shared, &bytes);
  put_varint(key.size() - shared, &bytes);
  put_varint(value.size(), &bytes);
  bytes += key.substr(shared);
  bytes += value;
  last_key = key;
}

std::string TableBuilder::write(Block* block) {
  base::ByteWriter tail;
  // A block has at least one.
  if (block->restarts.empty()) block->restarts.assign(sizeof(uint32_t), '\0');
  tail.put(static_cast<uint32_t>(block->restarts.size() / sizeof(uint32_t)));
  std::string bytes = block->bytes + block->restarts + tail.bytes();
  std::string handle;
  put_varint(out_.size(), &handle);
  put_varint(bytes.size(), &handle);
  bytes.push_back('\0');
  base::ByteWriter crc;
  crc.put(parse::masked_crc(parse::crc32c(bytes)));
  out_ += bytes;
  out_ += crc.bytes();
  block->bytes.clear();
  block->restarts.clear();
  block->entries = 0;
  return handle;
}

void TableBuilder::end_data() {
  if (data_.entries == 0) return;
  // The last key of a block is one that keeps it apart from the next.
  const std::string last = data_.last_key;
  index_.add(last, write(&data_), 1);
}

void TableBuilder::add(std::string_view key, std::string_view value) {
  SR_CHECK((data_.entries == 0 && index_.entries == 0) || key > data_.last_key);
  data_.add(key, value, kWholeKeyEvery);
  if (data_.bytes.size() >= kBlockBytes) end_data();
}

std::string TableBuilder::finish() && {
  end_data();
  Block none;
  std::string footer = write(&none);
  footer += write(&index_);
  footer.resize(kHandlesBytes);
  base::ByteWriter magic;
  magic.put(kMagic);
  return std::move(out_) + footer + magic.bytes();
}

Status read_table(std::string_view file,
                  absl::FunctionRef<Status(std::string_view, std::string_view)> use) {
  if (!is_table(file)) return data_loss("it does not end as a table does: it was cut off");
  std::string_view footer = file.substr(file.size() - kTableFooterBytes, kHandlesBytes);
  Handle meta;
  Handle index;
  if (!take_handle(&footer, &meta) || !take_handle(&footer, &index)) {
    return data_loss("its footer cannot be");
  }
  SR_RETURN_IF_ERROR(block_at(file, meta).status());
  SR_ASSIGN_OR_RETURN(const std::string_view index_block, block_at(file, index));
  Entries blocks(file.size());
  Entries entries(file.size());
  std::string last;
  bool is_first = true;
  uint64_t end = 0;  // Of the block before: each is read once.
  return blocks.read(index_block, [&](std::string_view, std::string_view value) -> Status {
    Handle handle;
    if (!take_handle(&value, &handle) || handle.at < end) return data_loss("its index cannot be");
    SR_ASSIGN_OR_RETURN(const std::string_view block, block_at(file, handle));
    end = handle.at + handle.size;
    return entries.read(block, [&](std::string_view key, std::string_view bytes) -> Status {
      if (!is_first && key <= last) return data_loss("its keys are not in order");
      is_first = false;
      last = key;
      return use(key, bytes);
    });
  });
}

}  // namespace sidereal::ckpt
