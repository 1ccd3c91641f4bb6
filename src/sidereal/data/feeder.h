#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/byte_source.h"

/// What this program does not read itself is read by a process beside it, a feeder: Python's
/// `sidereal._feeder`, which the program in SIDEREAL_PYTHON runs, else `python3`. It reads files of
/// other machines, and makes text of tables. They talk by a pair of sockets: the protocol stands in
/// python/sidereal/_feeder.py. Feeders that have nothing to do are kept for the next file, as long
/// as the environment that was taken is what they began with, and end with this process, or when it
/// closes their socket.
namespace sidereal::data {

/// Feeders have the environment of this moment from now on. To be called where nothing changes it
/// meanwhile: threads that read look at what was taken, and the first one takes it where nobody
/// has.
void take_environment();

/// How a feeder makes text of a file.
struct Feed {
  std::string path;
  std::string format = "";  ///< See table_formats.h; "": its bytes are the text.
  char delimiter = ',';     ///< Between the columns of a table.
  /// How long a feeder may be silent; 0: SIDEREAL_IO_TIMEOUT_S for each attempt, and a while.
  std::chrono::milliseconds silence{0};
};

/// The text of a file. Errors name it: kNotFound, kPermissionDenied, kDataLoss, kInvalidArgument
/// when it is not of the format, kFailedPrecondition when a package is missing, kUnavailable for a
/// connection that was lost or a feeder that ended, kDeadlineExceeded, and kCancelled soon after
/// `stop`, when not null, is set by another thread.
Result<std::unique_ptr<ByteSource>> fed_bytes(const Feed& feed, const std::atomic<bool>* stop);

/// Bytes of the file where it lies. Errors and `stop` as of fed_bytes().
Result<int64_t> fed_size(const std::string& path, const std::atomic<bool>* stop = nullptr);

/// The files that match a pattern of another machine's, sorted.
Result<std::vector<std::string>> fed_list(const std::string& pattern);

}  // namespace sidereal::data
