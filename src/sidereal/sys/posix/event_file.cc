#include "sidereal/sys/posix/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sidereal/base/log.h"

namespace sidereal::sys::posix {

EventFile::~EventFile() { close_it(); }

void EventFile::close_it() {
  if (handle_ >= 0) ::close(handle_);
  handle_ = -1;
}

bool EventFile::append(std::string_view line) {
  if (try_to_append(line)) return true;
  const int why = errno;
  close_it();
  if (lost_++ == 0) {
    base::log_warning("events are not written, and all else goes on file=\"{}\" error=\"{}\"",
                      path_, std::strerror(why));
  }
  return false;
}

bool EventFile::try_to_append(std::string_view line) {
  const auto open_it = [this] {
    // Not to wait for a reader, where somebody has put a pipe there.
    constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    handle_ = ::open(path_.c_str(), kFlags, 0640);
    return handle_ >= 0;
  };
  if (handle_ < 0 && !open_it()) return false;
  struct stat now = {};
  if (::fstat(handle_, &now) != 0) return false;
  const auto size = static_cast<int64_t>(line.size());
  if (now.st_size > 0 && now.st_size + size > bytes_max_) {
    close_it();
    if (::rename(path_.c_str(), (path_ + ".1").c_str()) != 0 || !open_it()) return false;
    now.st_size = 0;
  }
  const ssize_t written = ::write(handle_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return true;
  if (written > 0) {
    // The disk is full: half a line would spoil the next one.
    static_cast<void>(::ftruncate(handle_, now.st_size));
    errno = ENOSPC;
  }
  return false;
}

std::unique_ptr<base::EventSinkRegistration> write_events(const std::string& path) {
  if (path.empty()) return nullptr;
  return std::make_unique<base::EventSinkRegistration>(
      [file = std::make_shared<EventFile>(path)](std::string_view line) {
        static_cast<void>(file->append(line));
      });
}

std::string event_file(const std::string& folder, const std::string& member) {
  return folder + "/" + member + kEventFileEnd;
}

}  // namespace sidereal::sys::posix
