#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// Writes a file of records (see RecordReader) that has its name when it is whole. Until then it is
/// "<path>.part", locked: what a process that was killed leaves is written again from the
/// beginning. A file that is not finished goes with the writer. Thread: core-local.
class RecordWriter {
 public:
  /// kAlreadyExists while somebody else writes it; nullptr when the file is there meanwhile.
  /// kNotFound for a folder that is not there, kPermissionDenied.
  static Result<std::unique_ptr<RecordWriter>> open(const std::string& path);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// kResourceExhausted when the disk is full.
  Status add(std::string_view bytes);
  /// All of it is there under its name.
  Status finish();

 private:
  RecordWriter(std::string path, std::string part, int fd);
  Status flush();

  std::string path_;
  std::string part_;
  int fd_;
  bool is_mine_ = true;  ///< The name `part_` is this file's.
  std::string buffer_;
};

}  // namespace sidereal::data
