#include "sidereal/sys/posix/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/sys/posix/descriptor.h"
#include "sidereal/sys/shared_ring.h"

namespace sidereal::sys::posix {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// MFD_NOEXEC_SEAL, which some hosts insist on and kernels before 6.3 do not know.
constexpr unsigned kNeverRun = 8;

class Mapping final : public SharedMemory {
 public:
  Mapping(std::span<std::byte> bytes, const SharedPlace& place, Fd fd)
      : bytes_(bytes), place_(place), fd_(std::move(fd)) {}
  ~Mapping() override { (void)::munmap(bytes_.data(), bytes_.size()); }

  [[nodiscard]] std::span<std::byte> bytes() const override { return bytes_; }
  [[nodiscard]] const SharedPlace& place() const override { return place_; }
  void hide() override { fd_ = Fd(); }
  void release(std::span<std::byte> pages) override {
    (void)::madvise(pages.data(), pages.size(), MADV_REMOVE);
  }

 private:
  const std::span<std::byte> bytes_;
  const SharedPlace place_;
  Fd fd_;  // while it may be found
};

Fd make_memory() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(::memfd_create("sidereal", kFlags | kNeverRun));
  if (!fd.valid() && errno == EINVAL) fd = Fd(::memfd_create("sidereal", kFlags));
  return fd;
}

/// Maps the whole of it. A process that this one forks does not have it.
Result<std::span<std::byte>> map(const Fd& fd, uint64_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return base::resource_exhausted("cannot map {} bytes of shared memory: {}", bytes,
                                    error_text(errno));
  }
  (void)::madvise(at, bytes, MADV_DONTFORK);
  return std::span(static_cast<std::byte*>(at), bytes);
}

/// A descriptor for what `found`, which opens nothing, stands for: memory of that size, of this
/// user, that cannot become shorter.
Result<Fd> open_found(const Fd& found, const SharedPlace& place) {
  struct stat is {};
  struct statfs on {};
  if (::fstat(found.get(), &is) != 0 || ::fstatfs(found.get(), &on) != 0) {
    return base::failed_precondition("the shared memory cannot be looked at: {}",
                                     error_text(errno));
  }
  if (!S_ISREG(is.st_mode) || on.f_type != TMPFS_MAGIC || is.st_uid != ::geteuid() ||
      static_cast<uint64_t>(is.st_size) != shared_bytes(place.ring_bytes)) {
    return base::failed_precondition("what process {} has there is not shared memory of this user",
                                     place.process);
  }
  const std::string name = "/proc/self/fd/" + std::to_string(found.get());
  Fd fd(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  const int seals = fd.valid() ? ::fcntl(fd.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return base::failed_precondition("the shared memory can become shorter");
  }
  return fd;
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> create_shared(uint64_t ring_bytes) {
  SR_CHECK(is_ring_size(ring_bytes));
  SharedPlace place = {.process = static_cast<uint32_t>(::getpid()), .ring_bytes = ring_bytes};
  uint64_t key[2];
  const uint64_t bytes = shared_bytes(ring_bytes);
  Fd fd = make_memory();
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0 ||
      ::getrandom(key, sizeof(key), 0) != static_cast<ssize_t>(sizeof(key))) {
    return base::resource_exhausted("cannot make shared memory: {}", error_text(errno));
  }
  place.key_high = key[0];
  place.key_low = key[1];
  place.descriptor = static_cast<uint32_t>(fd.get());
  SR_ASSIGN_OR_RETURN(const std::span<std::byte> mapped, map(fd, bytes));
  begin_shared(mapped, place);
  return std::make_unique<Mapping>(mapped, place, std::move(fd));
}

Result<std::unique_ptr<SharedMemory>> find_shared(const SharedPlace& place) {
  if (!is_ring_size(place.ring_bytes)) {
    return base::data_loss("shared memory with rings of {} bytes", place.ring_bytes);
  }
  const std::string name =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
  const Fd found(::open(name.c_str(), O_PATH | O_CLOEXEC));
  if (!found.valid()) {
    return base::failed_precondition("{} cannot be opened: {}", name, error_text(errno));
  }
  SR_ASSIGN_OR_RETURN(const Fd fd, open_found(found, place));
  SR_ASSIGN_OR_RETURN(const std::span<std::byte> mapped, map(fd, shared_bytes(place.ring_bytes)));
  auto memory = std::make_unique<Mapping>(mapped, place, Fd());
  SR_RETURN_IF_ERROR(check_shared(mapped, place));
  return memory;
}

}  // namespace sidereal::sys::posix
