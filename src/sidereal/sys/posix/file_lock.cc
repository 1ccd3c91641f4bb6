#include "sidereal/sys/posix/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "sidereal/sys/posix/identity.h"

namespace sidereal::sys::posix {

namespace {

Status cannot(const char* what, const std::string& path, int error) {
  const std::string text = fmt::format("{} cannot be {}: {}", path, what, error_text(error));
  if (error == EACCES || error == EPERM || error == EROFS) {
    return base::permission_denied("{}", text);
  }
  if (error == ENOSPC || error == EDQUOT) return base::resource_exhausted("{}", text);
  if (error == ENOENT) return base::not_found("{}", text);
  return base::unavailable("{}", text);
}

Result<std::string> read_all(int fd, const std::string& path) {
  std::string out(4096, '\0');
  const ssize_t got = ::pread(fd, out.data(), out.size(), 0);
  if (got < 0) return cannot("read", path, errno);
  out.resize(static_cast<size_t>(got));
  return out;
}

/// The line of `text` with that number, from 0; "" when it has not so many.
std::string line_of(const std::string& text, int number) {
  size_t begin = 0;
  for (; number > 0; --number) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return "";
    ++begin;
  }
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

Result<std::unique_ptr<FileLock>> FileLock::take(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) return cannot("opened", path, errno);
  const bool is_mine = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  const int error = errno;
  if (!is_mine && error != EWOULDBLOCK) return cannot("locked", path, error);
  SR_ASSIGN_OR_RETURN(const std::string before, read_all(file.get(), path));
  const std::string owner = line_of(before, 0);
  const std::string here = " on " + host_name();
  if (!is_mine) {
    return base::failed_precondition(
        "{} is held by {}; wait for its end, end it, or use another directory", path,
        owner.empty() ? "a process that is just beginning" : owner);
  }
  // Locks of some file systems are seen on one host only.
  if (!owner.empty() && !owner.ends_with(here)) {
    return base::failed_precondition(
        "{} is held by {}, which may still run; if it does not, remove the file", path, owner);
  }
  auto lock = std::unique_ptr<FileLock>(new FileLock(path, std::move(file)));
  lock->left_note_ = line_of(before, 1);
  lock->owner_ = fmt::format("process {}{}", ::getpid(), here);
  SR_RETURN_IF_ERROR(lock->write(lock->owner_ + "\n"));
  return lock;
}

FileLock::~FileLock() {
  // Others see then that it ended orderly; when that cannot be written, the lock is gone all the
  // same.
  if (::ftruncate(file_.get(), 0) != 0) return;
}

Status FileLock::note(const std::string& text) { return write(owner_ + "\n" + text + "\n"); }

Status FileLock::write(const std::string& text) {
  if (::ftruncate(file_.get(), 0) != 0) return cannot("written", path_, errno);
  const ssize_t wrote = ::pwrite(file_.get(), text.data(), text.size(), 0);
  if (wrote == static_cast<ssize_t>(text.size())) return {};
  return cannot("written", path_, wrote < 0 ? errno : ENOSPC);
}

}  // namespace sidereal::sys::posix
