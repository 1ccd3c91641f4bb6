#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "sidereal/sys/disk.h"
#include "sidereal/sys/posix/descriptor.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::sys::posix {

namespace {

StatusCode code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return StatusCode::kResourceExhausted;
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return StatusCode::kInvalidArgument;
    default:
      return StatusCode::kUnavailable;
  }
}

Status failed(const char* what, const std::string& path, int error) {
  return base::make_status(code_of(error),
                           fmt::format("cannot {} {}: {}", what, path, error_text(error)));
}

class PosixFile final : public File {
 public:
  PosixFile(std::string path, Fd fd, bool is_direct)
      : path_(std::move(path)), fd_(std::move(fd)), is_direct_(is_direct) {}

  Status write(uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      size_t size = bytes.size();
      if (is_direct_) {
        const bool is_at_block = offset % kDiskBlock == 0 && address_of(bytes) % kDiskBlock == 0;
        size = size / kDiskBlock * kDiskBlock;
        if (!is_at_block || size == 0) {
          SR_RETURN_IF_ERROR(use_cache());
          continue;
        }
      }
      const ssize_t written = ::pwrite(fd_.get(), bytes.data(), size, static_cast<off_t>(offset));
      if (written < 0) {
        if (errno == EINTR) continue;
        if (errno == EINVAL && is_direct_) {
          // This file system has its own idea of blocks.
          SR_RETURN_IF_ERROR(use_cache());
          continue;
        }
        return failed("write to", path_, errno);
      }
      offset += static_cast<uint64_t>(written);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return {};
  }

  Status read(uint64_t offset, std::span<std::byte> into) override {
    while (!into.empty()) {
      const ssize_t got = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        return failed("read", path_, errno);
      }
      if (got == 0) return base::out_of_range("{} ends at byte {}", path_, offset);
      offset += static_cast<uint64_t>(got);
      into = into.subspan(static_cast<size_t>(got));
    }
    return {};
  }

  Result<uint64_t> size() override {
    struct stat status = {};
    if (::fstat(fd_.get(), &status) != 0) return failed("look at", path_, errno);
    if (!S_ISREG(status.st_mode)) return base::invalid_argument("{} is not a file", path_);
    return static_cast<uint64_t>(status.st_size);
  }

  Status sync() override {
    if (::fdatasync(fd_.get()) == 0) return {};
    return failed("write to the disk", path_, errno);
  }

 private:
  static uintptr_t address_of(std::span<const std::byte> bytes) {
    return reinterpret_cast<uintptr_t>(bytes.data());
  }

  /// Writes go through the system's cache from here on.
  Status use_cache() {
    is_direct_ = false;
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    if (flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) == 0) return {};
    return failed("write to", path_, errno);
  }

  const std::string path_;
  const Fd fd_;
  bool is_direct_;  // Writes must begin and end at blocks.
};

class PosixDisk final : public Disk {
 public:
  Result<std::unique_ptr<File>> create(const std::string& path) override {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    constexpr mode_t kMode = 0644;
    Fd fd(::open(path.c_str(), kFlags | O_DIRECT, kMode));
    const bool is_direct = fd.valid();
    // A file system without O_DIRECT may have made the file all the same.
    if (!is_direct && errno == EINVAL) fd = Fd(::open(path.c_str(), kFlags & ~O_EXCL, kMode));
    if (!fd.valid()) return failed("create", path, errno);
    return std::make_unique<PosixFile>(path, std::move(fd), is_direct);
  }

  Result<std::unique_ptr<File>> open(const std::string& path) override {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return failed("open", path, errno);
    return std::make_unique<PosixFile>(path, std::move(fd), false);
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    return failed(fmt::format("rename to {}:", to).c_str(), from, errno);
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0) return {};
    return failed("remove", path, errno);
  }

  Status sync_directory(const std::string& path) override {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) return failed("open", path, errno);
    // Some file systems have no such thing: names are there at once then.
    if (::fsync(fd.get()) == 0 || errno == EINVAL) return {};
    return failed("write to the disk", path, errno);
  }

  Status make_directories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (!error) return {};
    return failed("make directory", path, error.value());
  }

  Result<std::vector<std::string>> list(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> out;
    for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
      out.push_back(at->path().filename().string());
    }
    if (error) return failed("list", directory, error.value());
    std::ranges::sort(out);
    return out;
  }
};

}  // namespace

std::shared_ptr<Disk> create_disk() { return std::make_shared<PosixDisk>(); }

}  // namespace sidereal::sys::posix
