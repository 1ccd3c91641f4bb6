#include <string>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/ir/saved_model.h"
#include "sidereal/ops/ops.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace ir = sidereal::ir;

const ir::OpRegistry& registry() {
  static const auto* const all = [] {
    auto* made = new ir::OpRegistry;
    sidereal::ops::register_all(made);
    return made;
  }();
  return *all;
}

/// Makes the checksums right, as far as sections can be told apart: no input would get past them.
std::string with_checksums(std::string bytes) {
  constexpr size_t kHeader = 8;
  constexpr size_t kSection = 20;
  uint32_t producer = 0;
  if (bytes.size() < kHeader + sizeof(producer)) return bytes;
  __builtin_memcpy(&producer, bytes.data() + kHeader, sizeof(producer));
  size_t at = kHeader + sizeof(producer) + size_t{producer};
  while (at < bytes.size() && bytes.size() - at >= kSection) {
    uint64_t size = 0;
    __builtin_memcpy(&size, bytes.data() + at + 12, sizeof(size));
    if (size > bytes.size() - at - kSection) break;
    const uint64_t sum = sidereal::base::hash64(bytes.data() + at + kSection, size);
    __builtin_memcpy(bytes.data() + at + 4, &sum, sizeof(sum));
    at += kSection + size;
  }
  return bytes;
}

}  // namespace

/// Bytes that are taken are a model that can be written, and reads as the same bytes.
SR_FUZZ_TARGET(saved_model) {
  static_cast<void>(ir::decode_saved_model(input, registry()).ok());
  const auto model = ir::decode_saved_model(with_checksums(std::string(input)), registry());
  if (!model.ok()) return;
  const auto bytes = ir::encode_saved_model(*model, registry());
  SR_CHECK(bytes.ok(), "{}", sidereal::base::message_of(bytes.status()));
  const auto again = ir::decode_saved_model(*bytes, registry());
  SR_CHECK(again.ok(), "{}", sidereal::base::message_of(again.status()));
  SR_CHECK(*ir::encode_saved_model(*again, registry()) == *bytes, "a model reads back otherwise");
}
