#include <string>
#include <string_view>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/resources/change_entry.h"
#include "sidereal/resources/replica.h"
#include "sidereal/tensor/tensor.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace resources = sidereal::resources;

std::string with_checksum(std::string_view input) {
  std::string out(input);
  const uint64_t checksum = sidereal::base::hash64(out);
  return out.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
}

/// What an entry says, as bytes.
std::string again(const resources::Entry& entry) {
  resources::EntryWriter out(entry.head);
  for (const resources::Section& section : entry.sections) out.put(section);
  return std::move(out).finish();
}

}  // namespace

/// An entry of a change log without its checksum: it is refused, or is one, and a replica takes it
/// or stays as it is.
SR_FUZZ_TARGET(change_entry) {
  static_cast<void>(resources::decode_entry(input).ok());
  const std::string bytes = with_checksum(input);
  const auto entry = resources::decode_entry(bytes);
  if (!entry.ok()) return;
  const std::string written = again(*entry);
  const auto read = resources::decode_entry(written);
  SR_CHECK(read.ok() && read->head == entry->head, "an entry reads back otherwise");
  SR_CHECK(again(*read) == written, "an entry is written otherwise the second time");

  constexpr size_t kRoom = size_t{1} << 20;
  resources::Replica replica(kRoom);
  const auto position = entry->head;
  resources::EntryWriter before({.kind = resources::EntryKind::kLastPiece,
                                 .lane = position.lane,
                                 .to = {position.to.incarnation, position.from}});
  before.put_value("w", 1,
                   sidereal::tensor::Tensor::zeros(sidereal::tensor::DType::kFloat32,
                                                   sidereal::tensor::Shape{4, 2}));
  SR_CHECK(replica.apply(std::move(before).finish()).ok(), "a replica of nothing takes a snapshot");
  const auto taken = replica.apply(bytes);
  if (position.kind != resources::EntryKind::kChanges) return;
  SR_CHECK(replica.position(position.lane)->cut == (taken.ok() ? position.to.cut : position.from),
           "changes that were refused were taken");
}
