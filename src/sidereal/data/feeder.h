#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/byte_source.h"
#include "sidereal/data/columns.h"

/// What this program does not read itself is read by a process beside it, a feeder: Python's
/// `sidereal._feeder`, which the program in SIDEREAL_PYTHON runs, else `python3`. It reads files of
/// other machines, and the columns of tables. They talk by a pair of sockets: the protocol stands
/// in python/sidereal/_feeder.py. Feeders that have nothing to do are kept for the next file, as
/// long as the environment that was taken is what they began with, and end with this process, or
/// when it closes their socket.
namespace sidereal::data {

/// Feeders have the environment of this moment from now on. To be called where nothing changes it
/// meanwhile: threads that read look at what was taken, and the first one takes it where nobody
/// has.
void take_environment();

/// What a feeder is to read. Value type.
struct Feed {
  std::string path;
  std::string format = "";  ///< Of fed_columns(): see table_formats.h.
  /// Of fed_columns(): those whose cells are wanted; null: all.
  std::optional<std::vector<std::string>> columns = std::nullopt;
  /// How long a feeder may be silent; 0: SIDEREAL_IO_TIMEOUT_S for each attempt, and a while.
  std::chrono::milliseconds silence{0};
};

/// The rows of a table, from beginning to end. Thread: core-local.
class ColumnSource {
 public:
  virtual ~ColumnSource() = default;

  /// The next rows, or none of them, valid until the next call; false at the end. Every frame has
  /// all columns of the table. Errors as of fed_columns().
  virtual Result<bool> next(ColumnFrame* frame) = 0;
  /// Bytes of the file used so far, about.
  [[nodiscard]] virtual int64_t position() const = 0;
};

/// The bytes of a file. Errors name it: kNotFound, kPermissionDenied, kDataLoss, kInvalidArgument
/// when it is not of the format, kFailedPrecondition when a package is missing, kUnavailable for a
/// connection that was lost or a feeder that ended, kDeadlineExceeded, and kCancelled soon after
/// `stop`, when not null, is set by another thread.
Result<std::unique_ptr<ByteSource>> fed_bytes(const Feed& feed, const std::atomic<bool>* stop);

/// The rows of a file that is a table; errors as of fed_bytes().
Result<std::unique_ptr<ColumnSource>> fed_columns(const Feed& feed, const std::atomic<bool>* stop);

/// The size of the file where it lies, in bytes. Errors and `stop` as of fed_bytes().
Result<int64_t> fed_size(const std::string& path, const std::atomic<bool>* stop = nullptr);

/// The files that match a pattern of another machine's, sorted.
Result<std::vector<std::string>> fed_list(const std::string& pattern);

}  // namespace sidereal::data
