#include "sidereal/ckpt/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::ckpt {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;
/// What is read at once when it is not known how much follows.
constexpr size_t kWindowBytes = size_t{256} << 10;
/// Bytes between two places that are read over rather than left out.
constexpr uint64_t kGapBytes = 64 << 10;

Status sync_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return file_error(folder, "cannot be opened", errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some file systems have no such call for folders.
  if (error == 0 || error == EINVAL || error == ENOTSUP) return {};
  return file_error(folder, "cannot be written", error);
}

}  // namespace

Status file_error(const std::string& path, std::string_view what, int error) {
  const std::string text = fmt::format("{}: the file {}: {}", path, what, std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return base::resource_exhausted("{}", text);
    case EACCES:
    case EPERM:
    case EROFS:
      return base::permission_denied("{}", text);
    case ENOENT:
    case ENOTDIR:
      return base::not_found("{}", text);
    case EISDIR:
      return base::invalid_argument("{}", text);
    default:
      return base::unavailable("{}", text);
  }
}

bool is_there(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

Result<std::unique_ptr<InputFile>> InputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error(path, "cannot be opened", errno);
  struct stat info {};
  const bool is_known = fstat(fd, &info) == 0;
  if (is_known && S_ISREG(info.st_mode)) {
    return std::unique_ptr<InputFile>(new InputFile(path, fd, static_cast<uint64_t>(info.st_size)));
  }
  close(fd);
  return base::invalid_argument("{}: it is no file", path);
}

InputFile::~InputFile() { close(fd_); }

Status InputFile::check(uint64_t at, uint64_t count) const {
  if (at <= size_ && count <= size_ - at) return {};
  return base::data_loss(
      "{}: it was cut off, or is damaged: it has {} bytes, and not {} from {} on", path_, size_,
      count, at);
}

Status InputFile::read(uint64_t at, std::span<char> out) const {
  SR_RETURN_IF_ERROR(check(at, out.size()));
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), out.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path_, "cannot be read", errno);
    if (n == 0) return base::data_loss("{}: it was cut off while it was read", path_);
    out = out.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return {};
}

Status RunReader::read(uint64_t at, std::span<char> out) {
  SR_RETURN_IF_ERROR(file_->check(at, out.size()));
  const bool follows = at >= next_ && at - next_ <= kGapBytes;
  next_ = at + out.size();
  if (at < window_at_ || next_ > window_at_ + window_.size()) {
    if (!follows || out.size() >= kGapBytes) return file_->read(at, out);
    window_.resize(std::min<uint64_t>(kWindowBytes, file_->size() - at));
    window_at_ = at;
    SR_RETURN_IF_ERROR(file_->read(at, window_));
  }
  std::memcpy(out.data(), window_.data() + (at - window_at_), out.size());
  return {};
}

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path) {
  const std::string part = fmt::format("{}.part-{}", path, getpid());
  const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return file_error(part, "cannot be written", errno);
  return std::unique_ptr<OutputFile>(new OutputFile(path, part, fd));
}

OutputFile::~OutputFile() {
  if (!is_named_) unlink(part_.c_str());
  close(fd_);
}

Status OutputFile::write_at(uint64_t at, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(part_, "cannot be written", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return {};
}

Status OutputFile::flush() {
  SR_RETURN_IF_ERROR(write_at(size_ - buffer_.size(), buffer_));
  buffer_.clear();
  return {};
}

Status OutputFile::append(std::string_view bytes) {
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() <= kWriteBytes) {
    buffer_ += bytes;
    return {};
  }
  const uint64_t begin = size_ - bytes.size();
  SR_RETURN_IF_ERROR(write_at(begin - buffer_.size(), buffer_));
  buffer_.clear();
  return write_at(begin, bytes);
}

Status OutputFile::overwrite(uint64_t at, std::string_view bytes) {
  SR_CHECK(at <= size_ && bytes.size() <= size_ - at);
  SR_RETURN_IF_ERROR(flush());
  return write_at(at, bytes);
}

Status OutputFile::sync() {
  SR_RETURN_IF_ERROR(flush());
  return fsync(fd_) == 0 ? Status() : file_error(part_, "cannot be written", errno);
}

Status OutputFile::finish() {
  SR_RETURN_IF_ERROR(sync());
  if (rename(part_.c_str(), path_.c_str()) != 0) {
    return file_error(path_, "cannot get its name", errno);
  }
  is_named_ = true;
  return sync_folder(path_);
}

}  // namespace sidereal::ckpt
