#include "sidereal/data/record_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "sidereal/data/record_reader.h"

namespace sidereal::data {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;

Status file_error(const std::string& path, const char* what, int error) {
  const std::string text = fmt::format("{}: the file {}: {}", path, what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return base::resource_exhausted("{}", text);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return base::permission_denied("{}", text);
  }
  if (error == ENOENT || error == ENOTDIR || error == EISDIR) return base::not_found("{}", text);
  return base::unavailable("{}", text);
}

bool is_there(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

}  // namespace

RecordWriter::RecordWriter(std::string path, std::string part, int fd)
    : path_(std::move(path)), part_(std::move(part)), fd_(fd) {}

Result<std::unique_ptr<RecordWriter>> RecordWriter::open(const std::string& path) {
  const std::string part = path + ".part";
  for (;;) {
    const int fd = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return file_error(part, "cannot be written", errno);
    std::unique_ptr<RecordWriter> made(new RecordWriter(path, part, fd));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      made->is_mine_ = false;
      if (errno != EWOULDBLOCK) return file_error(part, "cannot be locked", errno);
      return base::already_exists("{}: somebody else writes this file now", path);
    }
    // It may have got its name, or gone, before it was locked here.
    struct stat by_name {};
    struct stat locked {};
    const bool is_it = stat(part.c_str(), &by_name) == 0 && fstat(fd, &locked) == 0 &&
                       by_name.st_ino == locked.st_ino && by_name.st_dev == locked.st_dev;
    if (!is_it) {
      made->is_mine_ = false;
      continue;
    }
    if (is_there(path)) return nullptr;
    if (ftruncate(fd, 0) != 0) return file_error(part, "cannot be written", errno);
    return made;
  }
}

RecordWriter::~RecordWriter() {
  // While it is locked: no other one is meant.
  if (is_mine_) unlink(part_.c_str());
  close(fd_);
}

Status RecordWriter::add(std::string_view bytes) {
  buffer_ += record_of(bytes);
  return buffer_.size() < kWriteBytes ? Status() : flush();
}

Status RecordWriter::finish() {
  SR_RETURN_IF_ERROR(flush());
  if (fsync(fd_) != 0) return file_error(part_, "cannot be written", errno);
  if (rename(part_.c_str(), path_.c_str()) != 0) {
    return file_error(path_, "cannot get its name", errno);
  }
  is_mine_ = false;
  return {};
}

Status RecordWriter::flush() {
  std::string_view left = buffer_;
  while (!left.empty()) {
    const ssize_t n = ::write(fd_, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(part_, "cannot be written", errno);
    left.remove_prefix(static_cast<size_t>(n));
  }
  buffer_.clear();
  return {};
}

}  // namespace sidereal::data
