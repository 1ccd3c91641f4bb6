#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/byte_source.h"

namespace sidereal::data {

/// Cuts a file into rows: lines, or with `quoted` (RFC 4180) records whose quoted fields may hold
/// line ends. Line ends are LF or CR LF and are not part of a row. Empty lines are passed over.
/// Thread: core-local.
class LineReader {
 public:
  /// Bytes a row may have; longer ones are kInvalidArgument, so that a binary file or a missing
  /// quote does not take all memory.
  static constexpr size_t kRowBytesMax = size_t{16} << 20;

  /// Opens the file; errors as of open_bytes().
  static Result<std::unique_ptr<LineReader>> open(const std::string& path, bool quoted,
                                                  const std::atomic<bool>* stop = nullptr);
  /// Opens the file of a table; errors as of open_table().
  static Result<std::unique_ptr<LineReader>> open_table(const std::string& file, char delimiter,
                                                        const std::atomic<bool>* stop = nullptr);

  LineReader(std::string path, std::unique_ptr<ByteSource> source, bool quoted,
             bool is_text = true);

  /// The next row, valid until the next call; false at the end.
  Result<bool> next(std::string_view* row);
  /// As next(), with empty lines.
  Result<bool> next_line(std::string_view* row);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Number of the line the last row began on, from 1.
  [[nodiscard]] int64_t line() const { return line_; }
  /// Where the last row is, for messages: "path:line", or of a table that is no text "path: row
  /// 3", or "path" of its header.
  [[nodiscard]] std::string place() const;
  /// Bytes of the file used, before decompression.
  [[nodiscard]] int64_t position() const { return source_->position(); }
  /// Size of the file in bytes.
  [[nodiscard]] int64_t size() const { return source_->size(); }

 private:
  Result<size_t> find_line_end(size_t from);
  Status fill();

  std::string path_;
  std::unique_ptr<ByteSource> source_;
  bool quoted_;
  bool is_text_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool ended_ = false;
  int64_t line_ = 0;
  int64_t rows_ = 0;
  int64_t lines_read_ = 0;
};

}  // namespace sidereal::data
