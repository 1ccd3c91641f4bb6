#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/data/byte_source.h"

namespace sidereal::data {

/// The records of a file of TensorFlow's format (TFRecord), plain or gzip: u64 length, its masked
/// CRC-32C, the bytes, theirs; all little-endian.
/// Thread: core-local.
class RecordReader {
 public:
  /// Opens the file; errors and `stop` as of open_bytes().
  static Result<std::unique_ptr<RecordReader>> open(const std::string& path,
                                                    const std::atomic<bool>* stop = nullptr);

  RecordReader(std::string path, std::unique_ptr<ByteSource> source);

  /// The next record into `record`, whose memory is used again; false at the end. kDataLoss names
  /// the file and the byte (of the decompressed file) where a checksum is wrong or the file ends
  /// too early. Takes no more memory than the file has bytes.
  Result<bool> next(std::string* record);

 private:
  /// Reads `out` full; the number of bytes there were.
  Result<size_t> read(std::span<char> out);
  Status ends_early() const;

  std::string path_;
  std::unique_ptr<ByteSource> source_;
  uint64_t at_ = 0;
  std::string buffer_;
  size_t begin_ = 0;
};

/// Bytes as a record of such a file.
std::string record_of(std::string_view bytes);

}  // namespace sidereal::data
