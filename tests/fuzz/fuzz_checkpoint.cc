#include <memory>
#include <string>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/sys/sim/disk.h"
#include "tests/fuzz/fuzz.h"

/// The input is an index file without its checksum. Its data files hold zeros.
SR_FUZZ_TARGET(checkpoint) {
  using sidereal::ckpt::CheckpointReader;
  std::string bytes(input);
  const uint64_t checksum = sidereal::base::hash64(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  const auto index = sidereal::ckpt::decode(bytes, "the input");
  if (!index.ok()) return;
  const auto again = sidereal::ckpt::decode(sidereal::ckpt::encode(*index), "the same");
  SR_CHECK(again.ok() && *again == *index, "what is written is not what was read");

  const auto disk = std::make_shared<sidereal::sys::sim::SimDisk>(1);
  for (const auto& file : index->files) {
    constexpr uint64_t kBytesMax = 1 << 16;
    if (file.bytes > kBytesMax) return;
    auto made = disk->create("d/" + file.name);
    if (!made.ok()) return;
    const std::string zeros(file.bytes, '\0');
    SR_CHECK((*made)->write(0, std::as_bytes(std::span(zeros))).ok());
  }
  if (!sidereal::ckpt::write_index(disk.get(), "d/x", *index, 1).ok()) return;
  const auto reader = CheckpointReader::open(disk, "d/x");
  if (!reader.ok()) return;
  for (const auto& stored : (*reader)->list()) {
    const auto whole = (*reader)->read(stored.name);
    SR_CHECK(!whole.ok() || whole->shape() == stored.shape);
    static_cast<void>((*reader)->verify(stored.name));
    sidereal::ckpt::Slice part = sidereal::ckpt::whole_slice(stored.shape);
    for (auto& range : part) range = {.start = range.count / 2, .count = range.count > 0 ? 1 : 0};
    static_cast<void>((*reader)->read(stored.name, part));
  }
}
