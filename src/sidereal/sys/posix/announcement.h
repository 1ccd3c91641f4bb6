#pragma once

#include <memory>
#include <string>
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
  Announcement& operator=(const Announcement&) = delete;

 private:
  explicit Announcement(int handle) : handle_(handle) {}
  int handle_;
};

/// The texts of this kind that processes of this user announce now, in no order. Thread: any.
std::vector<std::string> announced(const std::string& kind);

}  // namespace sidereal::sys::posix
