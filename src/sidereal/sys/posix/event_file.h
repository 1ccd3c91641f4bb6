#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "sidereal/base/event_log.h"

namespace sidereal::sys::posix {

/// A file that lines are appended to, each with one write: what was written of a process that is
/// killed is there. When it is full it becomes PATH.1, in the place of the one before. Whatever
/// goes wrong costs lines, never more: the file is tried again with the next one.
/// Thread: one at a time; several processes may append to one file.
class EventFile {
 public:
  static constexpr int64_t kBytesMax = int64_t{4} << 20;

  explicit EventFile(std::string path, int64_t bytes_max = kBytesMax)
      : path_(std::move(path)), bytes_max_(bytes_max) {}
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Appends `line`, which ends with a line's end; whether it is in the file.
  bool append(std::string_view line);
  /// Lines that could not be written.
  [[nodiscard]] int64_t lost() const { return lost_; }

 private:
  bool try_to_append(std::string_view line);
  void close_it();

  const std::string path_;
  const int64_t bytes_max_;
  int handle_ = -1;
  int64_t lost_ = 0;
};

/// Writes each event of this process to the file, as long as the object lives. "": nullptr.
std::unique_ptr<base::EventSinkRegistration> write_events(const std::string& path);

/// The file of a member of a cluster in a folder: "DIR/ps-0.events.jsonl".
std::string event_file(const std::string& folder, const std::string& member);
inline constexpr const char* kEventFileEnd = ".events.jsonl";
/// Of the program that starts a cluster.
inline constexpr const char* kLauncherEvents = "launcher";

}  // namespace sidereal::sys::posix
