#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/sys/disk.h"

/// Data files of checkpoints: bytes in blocks, each with a checksum.
namespace sidereal::ckpt {

/// Memory that begins at a block of the disk, as files take it without a copy. Resource.
class BlockMemory {
 public:
  /// kResourceExhausted when there is not so much.
  static Result<BlockMemory> allocate(size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  /// A multiple of a block of the disk.
  [[nodiscard]] size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  BlockMemory(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

/// Writes a data file, extents side by side.
/// Lifecycle: create(), reserve() and ExtentWriters, finish(); without that no file stays.
/// Thread: one at a time.
class DataWriter {
 public:
  static Result<std::unique_ptr<DataWriter>> create(std::shared_ptr<sys::Disk> disk,
                                                    std::string path);
  ~DataWriter();
  DataWriter(const DataWriter&) = delete;
  DataWriter& operator=(const DataWriter&) = delete;

  /// A place for `bytes`, which begins at a block of the disk.
  Extent reserve(uint64_t bytes);
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Puts all on the disk, its name too.
  Status finish();

 private:
  friend class ExtentWriter;
  DataWriter(std::shared_ptr<sys::Disk> disk, std::string path, std::unique_ptr<sys::File> file)
      : disk_(std::move(disk)), path_(std::move(path)), file_(std::move(file)) {}

  const std::shared_ptr<sys::Disk> disk_;
  const std::string path_;
  std::unique_ptr<sys::File> file_;
  uint64_t size_ = 0;
  bool is_finished_ = false;
};

/// Fills an extent from its beginning to its end. Borrows the file. Thread: one at a time.
class ExtentWriter {
 public:
  ExtentWriter(DataWriter* file, Extent extent) : file_(*file), extent_(std::move(extent)) {}

  /// A whole block, or what is left, goes to the file from where it is; else it is copied. What
  /// follows `bytes` up to a block of the disk is overwritten if it is in `memory`.
  Status append(std::span<const std::byte> bytes, BlockMemory* memory = nullptr);
  /// Nothing follows. A bug unless the extent is full.
  Result<Extent> finish();

 private:
  Status write(std::byte* at, size_t bytes, size_t room);

  DataWriter& file_;
  Extent extent_;
  uint64_t written_ = 0;
  std::vector<BlockMemory> block_;  // At most one: of what does not fill a block.
  size_t in_block_ = 0;
};

/// Reads extents of the files of an index and checks each block.
/// Thread: one at a time.
class DataReader {
 public:
  /// `directory` is where the files are.
  DataReader(std::shared_ptr<sys::Disk> disk, std::string directory, std::vector<DataFile> files);

  /// kNotFound or kDataLoss, naming the file, unless every file is there and as large as it was.
  Status check_files();
  /// Bytes from `begin` of the extent on. kDataLoss when a block is not what was written.
  Status read(const Extent& extent, uint64_t begin, std::span<std::byte> into);
  /// Checks the whole extent, and what fills its last block of the disk.
  Status verify(const Extent& extent);

 private:
  Result<sys::File*> file(uint32_t number);
  Status read_block(const Extent& extent, uint64_t block, std::span<std::byte> into);

  const std::shared_ptr<sys::Disk> disk_;
  const std::string directory_;
  const std::vector<DataFile> files_;
  std::vector<std::unique_ptr<sys::File>> open_;
  // The block that was read last, if only a part of it was wanted.
  std::vector<std::byte> block_;
  uint32_t block_file_ = 0;
  uint64_t block_offset_ = UINT64_MAX;
};

}  // namespace sidereal::ckpt
