#include <algorithm>
#include <string_view>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/tensor/strings.h"
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
  static_cast<void>(wire::decode_offer(meta).ok());
  if (!header.ok()) return;
  std::vector<std::byte> bytes(wire::kHeaderBytes);
  wire::encode_header(*header, bytes.data());
  const auto again = wire::decode_header(bytes.data(), wire::Limits());
  SR_CHECK(again.ok() && *again == *header, "a header reads back otherwise");
  std::vector<wire::SlotEntry> entries;
  const auto slots = wire::decode_meta(*header, meta.substr(0, header->meta_bytes), &entries);
  if (!slots.ok()) return;
  SR_CHECK(entries.size() == header->slot_count, "{} slots", entries.size());
  std::string_view payload = meta.substr(std::min<size_t>(meta.size(), header->meta_bytes));
  for (const wire::SlotEntry& entry : entries) {
    if (payload.size() < entry.nbytes) return;
    const std::string_view bytes = payload.substr(0, entry.nbytes);
    payload.remove_prefix(std::min<size_t>(payload.size(), wire::padded(entry.nbytes)));
    if (entry.dead || entry.dtype != sidereal::tensor::DType::kString) continue;
    auto memory = sidereal::tensor::Buffer::allocate(bytes.size());
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(memory->data()));
    const auto strings = wire::strings_of(entry, memory);
    if (!strings.ok()) continue;
    SR_CHECK(wire::payload_bytes_of(*strings, wire::Form::kWhole) == entry.nbytes,
             "strings of {} bytes travel as others", entry.nbytes);
    SR_CHECK(sidereal::tensor::strings_to_bytes(*strings) == bytes, "strings read otherwise");
  }
}
