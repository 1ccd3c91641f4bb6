#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// The bytes of one file, decompressed, from beginning to end.
/// Thread: core-local.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Reads at least one byte into `out` and returns how many; 0 at the end. kDataLoss for a damaged
  /// or cut-off gzip file, naming it.
  virtual Result<size_t> read(std::span<char> out) = 0;
  /// Bytes taken from the file so far, before decompression.
  [[nodiscard]] virtual int64_t position() const = 0;
  /// Size of the file in bytes.
  [[nodiscard]] virtual int64_t size() const = 0;
};

/// Opens `path`, plain or gzip by its first bytes (RFC 1952; several members in a row are one
/// text). kNotFound when there is no such file, kPermissionDenied, or kInvalidArgument for a
/// folder. What lies elsewhere ("s3://...") comes from a feeder (feeder.h), with its errors;
/// `stop`, when not null, ends waiting for it.
Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path,
                                               const std::atomic<bool>* stop = nullptr);

/// Size of the file, or file of a table, in bytes; errors and `stop` as of open_bytes().
Result<int64_t> file_bytes(const std::string& path, const std::atomic<bool>* stop = nullptr);

}  // namespace sidereal::data
