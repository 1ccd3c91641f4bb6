#include "sidereal/ckpt/data_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"

namespace sidereal::ckpt {

namespace {

uint64_t round_up(uint64_t bytes) {
  return (bytes + sys::kDiskBlock - 1) / sys::kDiskBlock * sys::kDiskBlock;
}

}  // namespace

void BlockMemory::Free::operator()(std::byte* data) const { std::free(data); }

Result<BlockMemory> BlockMemory::allocate(size_t bytes) {
  const size_t size = std::max<size_t>(round_up(bytes), sys::kDiskBlock);
  void* const data = std::aligned_alloc(sys::kDiskBlock, size);
  if (data == nullptr) return base::resource_exhausted("no memory for {} bytes to save from", size);
  return BlockMemory(static_cast<std::byte*>(data), size);
}

Result<std::unique_ptr<DataWriter>> DataWriter::create(std::shared_ptr<sys::Disk> disk,
                                                       std::string path) {
  SR_ASSIGN_OR_RETURN(std::unique_ptr<sys::File> file, disk->create(path));
  return std::unique_ptr<DataWriter>(
      new DataWriter(std::move(disk), std::move(path), std::move(file)));
}

DataWriter::~DataWriter() {
  if (is_finished_) return;
  file_ = nullptr;
  static_cast<void>(disk_->remove(path_));  // No index names it.
}

Extent DataWriter::reserve(uint64_t bytes) {
  Extent out{.offset = size_, .bytes = bytes};
  out.checksums.resize((bytes + kBlockBytes - 1) / kBlockBytes);
  size_ += round_up(bytes);
  return out;
}

Status DataWriter::finish() {
  SR_RETURN_IF_ERROR(file_->sync());
  SR_RETURN_IF_ERROR(disk_->sync_directory(sys::directory_of(path_)));
  is_finished_ = true;
  return {};
}

Status ExtentWriter::append(std::span<const std::byte> bytes, BlockMemory* memory) {
  while (!bytes.empty()) {
    const uint64_t left = extent_.bytes - written_ - in_block_;
    SR_CHECK(bytes.size() <= left);
    const uint64_t block = std::min(kBlockBytes, extent_.bytes - written_);
    if (in_block_ == 0 && memory != nullptr && bytes.size() >= block) {
      std::byte* const at = memory->data() + (bytes.data() - memory->data());
      const auto room = static_cast<size_t>(memory->data() + memory->size() - at);
      SR_RETURN_IF_ERROR(write(at, block, room));
      bytes = bytes.subspan(block);
      continue;
    }
    if (block_.empty()) {
      SR_ASSIGN_OR_RETURN(BlockMemory made, BlockMemory::allocate(kBlockBytes));
      block_.push_back(std::move(made));
    }
    const size_t some = std::min<size_t>(bytes.size(), block - in_block_);
    std::memcpy(block_[0].data() + in_block_, bytes.data(), some);
    in_block_ += some;
    bytes = bytes.subspan(some);
    if (in_block_ < block) continue;
    in_block_ = 0;
    SR_RETURN_IF_ERROR(write(block_[0].data(), block, block_[0].size()));
  }
  return {};
}

/// Writes a block, whose memory has `room`.
Status ExtentWriter::write(std::byte* at, size_t bytes, size_t room) {
  extent_.checksums[written_ / kBlockBytes] = base::hash64(at, bytes);
  const size_t whole = round_up(bytes);
  size_t size = bytes;
  if (whole <= room && whole > bytes && written_ + bytes == extent_.bytes) {
    // The end of the extent: a whole block of the disk goes past the system's cache.
    std::memset(at + bytes, 0, whole - bytes);
    size = whole;
  }
  SR_RETURN_IF_ERROR(file_.file_->write(extent_.offset + written_, std::span(at, size)));
  written_ += bytes;
  return {};
}

Result<Extent> ExtentWriter::finish() {
  SR_CHECK(written_ == extent_.bytes);
  return std::move(extent_);
}

DataReader::DataReader(std::shared_ptr<sys::Disk> disk, std::string directory,
                       std::vector<DataFile> files)
    : disk_(std::move(disk)),
      directory_(std::move(directory)),
      files_(std::move(files)),
      open_(files_.size()) {}

Result<sys::File*> DataReader::file(uint32_t number) {
  std::unique_ptr<sys::File>& out = open_[number];
  if (out == nullptr) {
    const DataFile& of = files_[number];
    const std::string path = fmt::format("{}/{}", directory_, of.name);
    Result<std::unique_ptr<sys::File>> opened = disk_->open(path);
    if (!opened.ok()) {
      return base::with_context(opened.status(),
                                "a data file of the checkpoint lacks, or cannot be read (bring "
                                "it back, or restore an older checkpoint)");
    }
    SR_ASSIGN_OR_RETURN(const uint64_t size, (*opened)->size());
    if (size < of.bytes) {
      return base::data_loss("{} has {} bytes; the checkpoint says {}: it was cut off", path, size,
                             of.bytes);
    }
    out = *std::move(opened);
  }
  return out.get();
}

Status DataReader::check_files() {
  for (uint32_t i = 0; i < files_.size(); ++i) SR_RETURN_IF_ERROR(file(i).status());
  return {};
}

Status DataReader::read_block(const Extent& extent, uint64_t block, std::span<std::byte> into) {
  SR_ASSIGN_OR_RETURN(sys::File* const from, file(extent.file));
  const uint64_t offset = extent.offset + block * kBlockBytes;
  SR_RETURN_IF_ERROR(from->read(offset, into));
  if (base::hash64(into.data(), into.size()) == extent.checksums[block]) return {};
  return base::data_loss("{}/{} is damaged: bytes {} to {} are not what was written", directory_,
                         files_[extent.file].name, offset, offset + into.size() - 1);
}

Status DataReader::verify(const Extent& extent) {
  std::vector<std::byte> block;
  for (uint64_t at = 0; at < extent.bytes; at += block.size()) {
    block.resize(static_cast<size_t>(std::min(kBlockBytes, extent.bytes - at)));
    SR_RETURN_IF_ERROR(read(extent, at, block));
  }
  const uint64_t end = extent.offset + extent.bytes;
  if (extent.bytes == 0) return {};
  SR_ASSIGN_OR_RETURN(sys::File* const from, file(extent.file));
  block.resize(static_cast<size_t>(std::min(round_up(end), files_[extent.file].bytes) - end));
  SR_RETURN_IF_ERROR(from->read(end, block));
  if (std::ranges::all_of(block, [](std::byte byte) { return byte == std::byte{0}; })) return {};
  return base::data_loss("{}/{} is damaged: bytes {} to {} are to be zeros", directory_,
                         files_[extent.file].name, end, end + block.size() - 1);
}

Status DataReader::read(const Extent& extent, uint64_t begin, std::span<std::byte> into) {
  SR_CHECK(begin <= extent.bytes && into.size() <= extent.bytes - begin);
  while (!into.empty()) {
    const uint64_t block = begin / kBlockBytes;
    const uint64_t block_begin = block * kBlockBytes;
    const auto size = static_cast<size_t>(std::min(kBlockBytes, extent.bytes - block_begin));
    const auto skipped = static_cast<size_t>(begin - block_begin);
    const size_t some = std::min(size - skipped, into.size());
    if (some == size) {
      SR_RETURN_IF_ERROR(read_block(extent, block, into.first(size)));
    } else {
      const uint64_t offset = extent.offset + block_begin;
      if (block_file_ != extent.file || block_offset_ != offset) {
        block_offset_ = UINT64_MAX;
        block_.resize(size);
        SR_RETURN_IF_ERROR(read_block(extent, block, block_));
        block_file_ = extent.file;
        block_offset_ = offset;
      }
      std::memcpy(into.data(), block_.data() + skipped, some);
    }
    begin += some;
    into = into.subspan(some);
  }
  return {};
}

}  // namespace sidereal::ckpt
