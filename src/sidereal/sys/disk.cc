#include "sidereal/sys/disk.h"

#include <utility>

namespace sidereal::sys {

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string file_name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string path_beside(const std::string& path, const std::string& name) {
  return path.substr(0, path.rfind('/') + 1) + name;
}

Result<std::string> read_file(Disk* disk, const std::string& path, uint64_t max) {
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, disk->open(path));
  SR_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  if (size > max) {
    return base::resource_exhausted("{} has {} bytes; at most {} are read", path, size, max);
  }
  std::string out(size, '\0');
  SR_RETURN_IF_ERROR(file->read(0, std::as_writable_bytes(std::span(out))));
  return out;
}

Status write_file_at_once(Disk* disk, const std::string& path, const std::string& bytes,
                          uint64_t unique) {
  const std::string beside = fmt::format("{}.{:016x}.tmp", path, unique);
  const auto write = [&]() -> Status {
    SR_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, disk->create(beside));
    SR_RETURN_IF_ERROR(file->write(0, std::as_bytes(std::span(bytes))));
    return file->sync();
  };
  Status status = write();
  if (status.ok()) status = disk->rename(beside, path);
  if (!status.ok()) {
    static_cast<void>(disk->remove(beside));  // The first error is the one to tell.
    return status;
  }
  return disk->sync_directory(directory_of(path));
}

}  // namespace sidereal::sys
