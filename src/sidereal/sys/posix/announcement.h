#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sidereal::sys::posix {

/// A text that other programs of the same user can find as long as this process lives, and nobody
/// else can: it lies in the process's own memory, as a file without a name, and goes with it.
/// Thread: any.
class Announcement {
 public:
  /// nullptr where the system has no such files. `kind` says what others look for.
  static std::unique_ptr<Announcement> create(const std::string& kind, const std::string& text);
  ~Announcement();
  Announcement(const Announcement&) = delete;
  /// Adds to the text, of which the latest lines stay, within `bytes_max` and a line. A reader may
  /// find half a line meanwhile. Thread: one at a time.
  void append(std::string_view line, size_t bytes_max);
  Announcement& operator=(const Announcement&) = delete;

 private:
  explicit Announcement(int handle) : handle_(handle) {}
  int handle_;
  std::string text_;  // As long as lines are added to it.
};

/// The texts of this kind that processes of this user announce now, in no order. Thread: any.
std::vector<std::string> announced(const std::string& kind);

}  // namespace sidereal::sys::posix
