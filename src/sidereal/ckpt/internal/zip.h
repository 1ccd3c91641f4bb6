#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/file.h"

/// ZIP files (PKWARE's APPNOTE), with the extensions for large ones: as much as NumPy writes.
namespace sidereal::ckpt::internal {

/// A file in a ZIP, as its directory says. Value type.
struct ZipEntry {
  std::string name = {};
  bool is_deflated = false;
  uint32_t crc = 0;
  uint64_t stored = 0;  ///< Bytes it takes in the ZIP.
  uint64_t size = 0;    ///< Its own bytes.
  uint64_t at = 0;      ///< Of its header.
};

/// The directory. kDataLoss for what is none, kUnimplemented for other ways to compress.
Result<std::vector<ZipEntry>> read_zip(const InputFile& file);

/// Reads a file of a ZIP from its begin to its end.
/// Borrows the file of the ZIP. Thread: core-local.
class ZipMember {
 public:
  static Result<ZipMember> open(const InputFile* file, const ZipEntry& entry);
  ~ZipMember();
  ZipMember(ZipMember&&) noexcept;
  ZipMember& operator=(ZipMember&&) = delete;

  /// The byte that is read next.
  [[nodiscard]] uint64_t at() const { return at_; }
  /// The next bytes. kDataLoss when there are not so many.
  Status read(std::span<char> out);
  /// Goes forward to byte `at`. What lies between is looked at if it must be, or with `all`.
  Status seek(uint64_t at, bool all);
  /// Reads what is left and checks the checksum of all, if all was read.
  Status finish();

 private:
  struct Inflater;

  ZipMember(const InputFile* file, const ZipEntry& entry, uint64_t data_at);

  const InputFile* file_;
  ZipEntry entry_;
  uint64_t data_at_;                    // Of its bytes in the ZIP.
  uint64_t at_ = 0;                     // Of its own bytes.
  uint32_t crc_ = 0;                    // Of those read.
  std::unique_ptr<RunReader> reader_;   // Of what is stored as it is.
  std::unique_ptr<Inflater> inflater_;  // Of what is compressed.
};

/// Writes a ZIP of files that are not compressed. Borrows the file. Thread: core-local.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile* file) : file_(file) {}
  /// A file of `size` bytes, which append() adds; then end().
  Status begin(const std::string& name, uint64_t size);
  Status append(std::string_view bytes);
  Status end();
  /// The directory, after all files.
  Status finish();

 private:
  OutputFile* file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace sidereal::ckpt::internal
