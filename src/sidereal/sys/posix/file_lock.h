#pragma once

#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/sys/posix/descriptor.h"

namespace sidereal::sys::posix {

/// Keeps a directory, or whatever a file stands for, to one process at a time: the file says who,
/// and is empty when nobody has it. The system lets go of it when its process ends, however that
/// ends; of a process of another host, whose end nobody here sees, the file must be removed.
/// Thread: one at a time.
class FileLock {
 public:
  /// kFailedPrecondition, naming the process that has it and what to do.
  static Result<std::unique_ptr<FileLock>> take(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// What the process noted that had it before and did not end orderly; else "".
  [[nodiscard]] const std::string& left_note() const { return left_note_; }
  /// Leaves a line for whoever takes it next, should this process not end orderly.
  Status note(const std::string& text);

 private:
  FileLock(std::string path, Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  Status write(const std::string& text);

  const std::string path_;
  const Fd file_;
  std::string owner_;
  std::string left_note_;
};

}  // namespace sidereal::sys::posix
