#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

/// Files of checkpoints: read at any place, written under another name until they are whole.
namespace sidereal::ckpt {

/// What the error number of a call that failed means for the file: kResourceExhausted (the disk is
/// full), kPermissionDenied, kNotFound or kUnavailable, with `what` ("cannot be read").
Status file_error(const std::string& path, std::string_view what, int error);

/// A file that is read at any place. Thread: any.
class InputFile {
 public:
  /// kNotFound, kPermissionDenied; kInvalidArgument for a folder.
  static Result<std::unique_ptr<InputFile>> open(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes it had when it was opened.
  [[nodiscard]] uint64_t size() const { return size_; }
  /// kDataLoss, naming the file, unless it has `count` bytes from `at` on.
  [[nodiscard]] Status check(uint64_t at, uint64_t count) const;
  /// Fills `out` with the bytes from `at` on. kDataLoss when there are not so many.
  Status read(uint64_t at, std::span<char> out) const;

 private:
  InputFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  const std::string path_;
  const int fd_;
  const uint64_t size_;
};

/// Reads one place after the other: what lies close together is read at once.
/// Borrows the file. Thread: core-local.
class RunReader {
 public:
  explicit RunReader(const InputFile* file) : file_(file) {}
  /// As InputFile::read().
  Status read(uint64_t at, std::span<char> out);

 private:
  const InputFile* file_;
  std::string window_;
  uint64_t window_at_ = 0;
  uint64_t next_ = UINT64_MAX;  // Behind what was read last.
};

/// A file that is written under a name of its own until finish().
/// Thread: core-local.
class OutputFile {
 public:
  /// `path` is the name that it will have. kNotFound when its folder is not there.
  static Result<std::unique_ptr<OutputFile>> create(const std::string& path);
  /// Without finish() the file goes.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes appended so far.
  [[nodiscard]] uint64_t size() const { return size_; }
  Status append(std::string_view bytes);
  /// Writes over bytes that were appended.
  Status overwrite(uint64_t at, std::string_view bytes);
  /// Puts all on the disk; it keeps its other name.
  Status sync();
  /// sync(), then it gets its name, and replaces what had it; the folder is put on the disk too.
  Status finish();

 private:
  OutputFile(std::string path, std::string part, int fd)
      : path_(std::move(path)), part_(std::move(part)), fd_(fd) {}
  Status flush();
  Status write_at(uint64_t at, std::string_view bytes);

  const std::string path_;
  const std::string part_;
  const int fd_;
  std::string buffer_;  // The end, not written yet.
  uint64_t size_ = 0;   // With what is in the buffer.
  bool is_named_ = false;
};

/// True when there is a file, or anything else, of that name.
bool is_there(const std::string& path);

}  // namespace sidereal::ckpt
