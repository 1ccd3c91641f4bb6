#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/wire/frame.h"
#include "tests/fuzz/fuzz.h"

/// A frame's header, and what follows it read as each of the things it can be.
SR_FUZZ_TARGET(wire) {
  namespace wire = sidereal::wire;
  if (input.size() < wire::kHeaderBytes) return;
  const auto header =
      wire::decode_header(reinterpret_cast<const std::byte*>(input.data()), wire::Limits());
  const std::string_view meta = input.substr(wire::kHeaderBytes);
  static_cast<void>(wire::decode_hello(meta).ok());
  static_cast<void>(wire::decode_hello_ack(meta).ok());
  if (!header.ok()) return;
  std::vector<std::byte> bytes(wire::kHeaderBytes);
  wire::encode_header(*header, bytes.data());
  const auto again = wire::decode_header(bytes.data(), wire::Limits());
  SR_CHECK(again.ok() && *again == *header, "a header reads back otherwise");
  std::vector<wire::SlotEntry> entries;
  const auto slots = wire::decode_slots(*header, meta.substr(0, header->meta_bytes), &entries);
  if (slots.ok()) SR_CHECK(entries.size() == header->slot_count, "{} slots", entries.size());
}
