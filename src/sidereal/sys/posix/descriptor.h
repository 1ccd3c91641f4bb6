#pragma once

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

/// What the files of sys/posix have in common. Internal to sys/posix.
namespace sidereal::sys::posix {

inline std::string error_text(int error) { return std::generic_category().message(error); }

/// A file descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

}  // namespace sidereal::sys::posix
