#include "sidereal/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "sidereal/data/feeder.h"
#include "sidereal/data/table_formats.h"

namespace sidereal::data {
namespace {

using base::data_loss;
using base::invalid_argument;
using base::not_found;
using base::permission_denied;
using base::unavailable;

constexpr size_t kCompressedBytes = size_t{128} << 10;

Status open_error(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return not_found("{}: no such file; check the path of the data", path);
  }
  if (error == EACCES || error == EPERM) {
    return permission_denied("{}: may not be read by this user; change its permissions", path);
  }
  return unavailable("{}: cannot be opened: {}", path, std::strerror(error));
}

// An open file. Resource.
class PlainFile final : public ByteSource {
 public:
  PlainFile(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~PlainFile() override { close(fd_); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  Result<size_t> read(std::span<char> out) override {
    while (true) {
      const ssize_t n = ::read(fd_, out.data(), out.size());
      if (n >= 0) {
        position_ += n;
        return static_cast<size_t>(n);
      }
      if (errno != EINTR) {
        return unavailable("{}: reading failed at byte {}: {}", path_, position_,
                           std::strerror(errno));
      }
    }
  }
  [[nodiscard]] int64_t position() const override { return position_; }
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Peeks at the first bytes without moving.
  [[nodiscard]] bool starts_like_gzip() const {
    unsigned char magic[2];
    return pread(fd_, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  }

 private:
  std::string path_;
  int fd_;
  int64_t size_;
  int64_t position_ = 0;
};

class GzipFile final : public ByteSource {
 public:
  explicit GzipFile(std::unique_ptr<PlainFile> file)
      : file_(std::move(file)), input_(kCompressedBytes) {}
  ~GzipFile() override {
    if (started_) inflateEnd(&stream_);
  }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  Status start() {
    // 15 window bits, and 16 for "a gzip header, not a zlib one".
    const int rc = inflateInit2(&stream_, 15 + 16);
    if (rc != Z_OK) return base::internal("{}: zlib does not start: {}", file_->path(), rc);
    started_ = true;
    return {};
  }

  Result<size_t> read(std::span<char> out) override {
    if (ended_) return size_t{0};
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), 1U << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      SR_ASSIGN_OR_RETURN(const bool more, fill());
      if (!more) {
        if (in_member_) return damaged("ends in the middle; it was cut off");
        ended_ = true;
        break;
      }
      if (!in_member_) SR_RETURN_IF_ERROR(next_member());
      if (ended_) break;
      const int rc = inflate(&stream_, Z_NO_FLUSH);
      if (rc == Z_STREAM_END) {
        in_member_ = false;
      } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        return damaged(stream_.msg == nullptr ? "is damaged" : stream_.msg);
      }
    }
    return static_cast<size_t>(wanted - stream_.avail_out);
  }
  [[nodiscard]] int64_t position() const override { return file_->position() - stream_.avail_in; }
  [[nodiscard]] int64_t size() const override { return file_->size(); }

 private:
  Result<bool> fill() {
    if (stream_.avail_in > 0) return true;
    SR_ASSIGN_OR_RETURN(const size_t n, file_->read(input_));
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(n);
    return n > 0;
  }

  // Between members: another member, or the zeros some tools pad with.
  Status next_member() {
    if (first_member_) {
      first_member_ = false;
      in_member_ = true;
      return {};
    }
    while (true) {
      while (stream_.avail_in > 0 && *stream_.next_in == 0) {
        ++stream_.next_in;
        --stream_.avail_in;
      }
      if (stream_.avail_in > 0) break;
      SR_ASSIGN_OR_RETURN(const bool more, fill());
      if (!more) {
        ended_ = true;
        return {};
      }
    }
    if (*stream_.next_in != 0x1f) return damaged("has other bytes after the compressed data");
    inflateReset(&stream_);
    in_member_ = true;
    return {};
  }

  [[nodiscard]] Status damaged(const char* what) const {
    return data_loss("{}: gzip data near byte {} of {}: {}; fetch or write the file again",
                     file_->path(), position(), size(), what);
  }

  std::unique_ptr<PlainFile> file_;
  std::vector<char> input_;
  z_stream stream_{};
  bool started_ = false;
  bool first_member_ = true;
  bool in_member_ = false;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path,
                                               const std::atomic<bool>* stop) {
  if (is_remote(path)) return fed_bytes({.path = path}, stop);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return open_error(path, errno);
  struct stat info {};
  const bool known = fstat(fd, &info) == 0;
  auto file = std::make_unique<PlainFile>(path, fd, known ? info.st_size : 0);
  if (known && S_ISDIR(info.st_mode)) {
    return invalid_argument("{}: is a folder; name the files in it, for example {}/*.csv", path,
                            path);
  }
  if (!file->starts_like_gzip()) return file;
  auto gzip = std::make_unique<GzipFile>(std::move(file));
  SR_RETURN_IF_ERROR(gzip->start());
  return gzip;
}

Result<int64_t> file_bytes(const std::string& file, const std::atomic<bool>* stop) {
  const std::string path = table_file(file).path;
  if (is_remote(path)) return fed_size(path, stop);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return open_error(path, errno);
  return static_cast<int64_t>(info.st_size);
}

}  // namespace sidereal::data
