#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

/// Files that must be there after a crash: posix/posix.h has the machine's, sim/disk.h one that
/// fails as it is told.
namespace sidereal::sys {

/// An open file, closed with the object. Errors name its path.
/// Thread: one at a time.
class File {
 public:
  virtual ~File() = default;
  /// Writes all of `bytes` from `offset` on. kResourceExhausted: the disk is full.
  virtual Status write(uint64_t offset, std::span<const std::byte> bytes) = 0;
  /// Fills `into` from `offset` on. kOutOfRange when the file ends before.
  virtual Status read(uint64_t offset, std::span<std::byte> into) = 0;
  virtual Result<uint64_t> size() = 0;
  /// Returns when what was written is on the disk; its name is when its directory is, too.
  virtual Status sync() = 0;
};

/// Where memory and offsets of File::write() should begin, and lengths should end, so that large
/// writes go past the system's cache.
inline constexpr size_t kDiskBlock = 4096;

/// A file system. Errors name the path: kNotFound, kAlreadyExists, kPermissionDenied,
/// kResourceExhausted (full), kUnavailable for what is wrong with the disk.
/// Thread: any.
class Disk {
 public:
  virtual ~Disk() = default;
  /// A new file, for writing. kAlreadyExists.
  virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;
  /// An existing file, for reading.
  virtual Result<std::unique_ptr<File>> open(const std::string& path) = 0;
  /// Gives a file another name, in place of the file that had it; at once.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
  /// Returns when the names in a directory are on the disk.
  virtual Status sync_directory(const std::string& path) = 0;
  /// Makes a directory, and those that it is in; ok when it is there.
  virtual Status make_directories(const std::string& path) = 0;
  /// Names in a directory, sorted.
  virtual Result<std::vector<std::string>> list(const std::string& directory) = 0;
};

/// The directory that a path is in: "." for a name alone.
std::string directory_of(const std::string& path);
/// What a path calls its file in that directory.
std::string file_name_of(const std::string& path);
/// The path of file `name` in the directory of `path`.
std::string path_beside(const std::string& path, const std::string& name);

/// All of a file of at most `max` bytes; kResourceExhausted for a larger one.
Result<std::string> read_file(Disk* disk, const std::string& path, uint64_t max);
/// Writes a file, so that there is the old one or all of the new one at any moment: to a file
/// beside it, which gets the name when it is on the disk. `unique` makes the name of that file.
Status write_file_at_once(Disk* disk, const std::string& path, const std::string& bytes,
                          uint64_t unique);

}  // namespace sidereal::sys
