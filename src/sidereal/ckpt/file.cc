#include "sidereal/ckpt/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/log.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::ckpt {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;
/// What is read at once when it is not known how much follows.
constexpr size_t kWindowBytes = size_t{256} << 10;
/// Bytes between two places that are read over rather than left out.
constexpr uint64_t kGapBytes = 64 << 10;

}  // namespace

Result<std::unique_ptr<InputFile>> InputFile::open(const std::string& path) {
  SR_ASSIGN_OR_RETURN(auto file, sys::posix::create_disk()->open(path));
  SR_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  return std::unique_ptr<InputFile>(new InputFile(path, std::move(file), size));
}

Status InputFile::check(uint64_t at, uint64_t count) const {
  if (at <= size_ && count <= size_ - at) return {};
  return base::data_loss(
      "{}: it was cut off, or is damaged: it has {} bytes, and not {} from {} on", path_, size_,
      count, at);
}

Status InputFile::read(uint64_t at, std::span<char> out) const {
  SR_RETURN_IF_ERROR(check(at, out.size()));
  Status status = file_->read(at, std::as_writable_bytes(out));
  if (status.code() != StatusCode::kOutOfRange) return status;
  return base::data_loss("{}: it was cut off while it was read", path_);
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
  auto disk = sys::posix::create_disk();
  // Others may write the same checkpoint.
  const auto unique = static_cast<uint32_t>(sys::posix::create_random()->next());
  const std::string part = fmt::format("{}.part-{:08x}", path, unique);
  SR_ASSIGN_OR_RETURN(auto file, disk->create(part));
  return std::unique_ptr<OutputFile>(new OutputFile(path, part, std::move(disk), std::move(file)));
}

OutputFile::~OutputFile() {
  if (is_named_) return;
  const Status status = disk_->remove(part_);
  if (!status.ok())
    base::log_warning("file stays file=\"{}\" why=\"{}\"", part_, base::message_of(status));
}

Status OutputFile::write_at(uint64_t at, std::string_view bytes) {
  return file_->write(at, std::as_bytes(std::span(bytes)));
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

Status OutputFile::leave_room(uint64_t bytes) {
  SR_RETURN_IF_ERROR(flush());
  size_ += bytes;
  return {};
}

Status OutputFile::overwrite(uint64_t at, std::string_view bytes) {
  SR_CHECK(at <= size_ && bytes.size() <= size_ - at);
  SR_RETURN_IF_ERROR(flush());
  return write_at(at, bytes);
}

Status OutputFile::sync() {
  SR_RETURN_IF_ERROR(flush());
  return file_->sync();
}

Status OutputFile::finish() {
  SR_RETURN_IF_ERROR(sync());
  SR_RETURN_IF_ERROR(disk_->rename(part_, path_));
  is_named_ = true;
  return disk_->sync_directory(sys::directory_of(path_));
}

}  // namespace sidereal::ckpt
