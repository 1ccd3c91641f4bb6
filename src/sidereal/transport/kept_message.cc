#include "sidereal/transport/kept_message.h"

#include <utility>

namespace sidereal::transport {
namespace {

constexpr size_t kSpareMax = 1024;
constexpr size_t kExtraKept = 1 << 10;  // capacity that an empty one keeps
constexpr size_t kTensorsKept = 64;

}  // namespace

void KeptMessage::assign(std::span<const tensor::Tensor> values,
                         std::span<const uint32_t> their_slots,
                         std::span<const wire::Form> their_forms, std::string_view beside) {
  tensors.assign(values.begin(), values.end());
  slots.assign(their_slots.begin(), their_slots.end());
  forms.assign(their_forms.begin(), their_forms.end());
  extra.assign(beside);
}

void KeptMessage::assign_error(const Status& error, bool derived) {
  clear();
  header.method = wire::Method::kError;
  header.status = static_cast<uint32_t>(error.code());
  if (derived) header.flags |= wire::kDerived;
  extra = wire::cut_text(base::message_of(error), wire::kErrorBytesMax);
}

void KeptMessage::clear() {
  tensors.clear();
  slots.clear();
  forms.clear();
  extra.clear();
  if (extra.capacity() > kExtraKept) extra = {};
  if (tensors.capacity() > kTensorsKept) {
    tensors = {};
    slots = {};
    forms = {};
  }
  bytes = 0;
}

std::unique_ptr<KeptMessage> KeptMessages::take() {
  if (spare_.empty()) return std::make_unique<KeptMessage>();
  std::unique_ptr<KeptMessage> out = std::move(spare_.back());
  spare_.pop_back();
  return out;
}

void KeptMessages::give(std::unique_ptr<KeptMessage> message) {
  message->clear();
  if (spare_.size() < kSpareMax) spare_.push_back(std::move(message));
}

}  // namespace sidereal::transport
