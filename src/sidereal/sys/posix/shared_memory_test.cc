#include "sidereal/sys/posix/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "sidereal/sys/posix/descriptor.h"
#include "sidereal/sys/shared_ring.h"

namespace sidereal::sys::posix {
namespace {

TEST(SharedMemoryOfTwo, IsFoundByItsPlaceAndBothSeeTheSameBytes) {
  const auto made = create_shared(kRingBytesMin).value();
  const auto found = find_shared(made->place()).value();
  EXPECT_EQ(found->bytes().size(), shared_bytes(kRingBytesMin));
  EXPECT_NE(found->bytes().data(), made->bytes().data());
  made->bytes()[5000] = std::byte{7};
  EXPECT_EQ(found->bytes()[5000], std::byte{7});
  found->bytes().back() = std::byte{9};
  EXPECT_EQ(made->bytes().back(), std::byte{9});
}

TEST(SharedMemoryOfTwo, CannotBeFoundOnceItIsHidden) {
  const auto made = create_shared(kRingBytesMin).value();
  const auto found = find_shared(made->place()).value();
  made->hide();
  EXPECT_EQ(find_shared(made->place()).status().code(), StatusCode::kFailedPrecondition);
  made->bytes()[5000] = std::byte{7};  // for those who have it nothing changes
  EXPECT_EQ(found->bytes()[5000], std::byte{7});
}

TEST(SharedMemoryOfTwo, CannotBeMadeShorterByAnybody) {
  const auto made = create_shared(kRingBytesMin).value();
  const auto fd = static_cast<int>(made->place().descriptor);
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
}

TEST(SharedMemoryOfTwo, GivesPagesBackThatHoldNothing) {
  const auto made = create_shared(kRingBytesMin).value();
  const auto pages = [&] {
    struct stat is {};
    EXPECT_EQ(::fstat(static_cast<int>(made->place().descriptor), &is), 0);
    return is.st_blocks * 512 / 4096;
  };
  const std::span<std::byte> ring = made->bytes().subspan(kRingData, kRingBytesMin);
  EXPECT_EQ(pages(), 1);  // only what was touched
  std::memset(ring.data(), 1, ring.size());
  EXPECT_EQ(pages(), 17);
  made->release(ring);
  EXPECT_EQ(pages(), 1);
  EXPECT_EQ(ring[100], std::byte{0});
}

TEST(SharedMemoryOfTwo, PlacesOfAnythingElseAreRefused) {
  const auto made = create_shared(kRingBytesMin).value();
  const auto refused = [&](SharedPlace place) {
    const auto found = find_shared(place);
    return found.ok() ? "found" : std::string(base::message_of(found.status()));
  };
  SharedPlace place = made->place();
  place.key_high ^= 1;
  EXPECT_NE(refused(place).find("not the one"), std::string::npos) << refused(place);
  place = made->place();
  place.ring_bytes = 2 * kRingBytesMin;
  EXPECT_NE(refused(place).find("not shared memory"), std::string::npos) << refused(place);
  place.ring_bytes = kRingBytesMin + 1;
  EXPECT_NE(refused(place).find("rings of"), std::string::npos) << refused(place);
  place = made->place();
  place.process = 0x7fffffff;
  EXPECT_NE(refused(place).find("cannot be opened"), std::string::npos) << refused(place);
  place = made->place();
  place.descriptor = 1 << 20;
  EXPECT_NE(refused(place).find("cannot be opened"), std::string::npos) << refused(place);

  // Other descriptors of this process: a pipe, a file, memory that may become shorter.
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd in(ends[0]), out(ends[1]);
  char name[] = "/tmp/sidereal-shared-XXXXXX";
  const Fd file(::mkstemp(name));
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const Fd rigid(::memfd_create("test", MFD_CLOEXEC));
  for (const Fd* fd : {&file, &unsealed, &rigid}) {
    ASSERT_EQ(::ftruncate(fd->get(), static_cast<off_t>(made->bytes().size())), 0);
  }
  for (const Fd* fd : {&in, &out, &file, &unsealed, &rigid}) {
    place = made->place();
    place.descriptor = static_cast<uint32_t>(fd->get());
    const auto found = find_shared(place);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), StatusCode::kFailedPrecondition) << found.status();
  }
  (void)::unlink(name);
}

}  // namespace
}  // namespace sidereal::sys::posix
