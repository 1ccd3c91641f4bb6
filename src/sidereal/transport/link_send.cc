#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/transport/link.h"

/// The sending half of Link.
namespace sidereal::transport {
namespace {

constexpr size_t kCopyBytesMax = 4 << 10;  // payloads copied next to their header
constexpr size_t kSlicesMax = 128;
constexpr size_t kFlushBytesMax = 8 << 20;  // per flush, so that reading goes on
// Errors before the handshake, which strangers may see.
constexpr size_t kFirstErrorBytesMax = 4096;
// A connection with fewer waiting bytes than these is not what fills the lane.
constexpr size_t kShareMin = 64 << 10;
constexpr std::array<std::byte, wire::kPayloadAlign> kZeros{};

}  // namespace

void Link::count_outbox() {
  const size_t now = outbox_.bytes();
  endpoint_->count_send_bytes(static_cast<int64_t>(now) - static_cast<int64_t>(counted_));
  counted_ = now;
}

void Link::send(wire::FrameHeader header, std::string_view meta) {
  if (!is_open()) return;
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  std::byte* out = outbox_.append(wire::kHeaderBytes + meta.size());
  wire::encode_header(header, out);
  if (!meta.empty()) std::memcpy(out + wire::kHeaderBytes, meta.data(), meta.size());
  count_outbox();
  endpoint_->metrics().frames_out.add();
  endpoint_->lane()->flush_later(this);
}

Status Link::send(wire::FrameHeader* header, const Message& message) {
  const auto& [tensors, slots, forms, extra] = message;
  SR_DCHECK(slots.empty() || slots.size() == tensors.size());
  SR_DCHECK(forms.empty() || forms.size() == tensors.size());
  const bool summed = endpoint_->options().frame_checksums != 0;
  const wire::FrameSize size = wire::size_of(tensors, forms);
  const bool ordered =
      header->method == wire::Method::kCall && (header->flags & wire::kNumbered) != 0;
  const uint64_t meta_bytes = size.meta_bytes + extra.size() + (ordered ? wire::kOrderBytes : 0) +
                              (summed ? sizeof(wire::Checksums) : 0);
  const wire::Limits& limits = endpoint_->limits();
  if (tensors.size() > limits.slots_max || meta_bytes > limits.meta_bytes_max) {
    return base::invalid_argument(
        "{} tensors and {} other bytes do not fit one message; slots_max "
        "is {}, all that describes them may have {} bytes",
        tensors.size(), extra.size(), limits.slots_max, limits.meta_bytes_max);
  }
  if (size.payload_bytes > limits.payload_bytes_max) {
    return base::invalid_argument("{} bytes do not fit one message; frame_bytes_max is {}",
                                  size.payload_bytes, limits.payload_bytes_max);
  }
  header->flags |= (summed ? wire::kSummed : 0) | (extra.empty() ? 0 : wire::kExtra);
  header->slot_count = static_cast<uint32_t>(tensors.size());
  header->meta_bytes = static_cast<uint32_t>(meta_bytes);
  header->payload_bytes = size.payload_bytes;
  std::byte* const head = outbox_.append(wire::kHeaderBytes + meta_bytes);
  wire::encode_header(*header, head);
  std::byte* out = head + wire::kHeaderBytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    out += wire::encode_slot(slots.empty() ? static_cast<uint32_t>(i) : slots[i], tensors[i], out,
                             forms.empty() ? wire::Form::kWhole : forms[i]);
  }
  if (ordered) {
    wire::encode_order(*header, out);
    out += wire::kOrderBytes;
  }
  if (!extra.empty()) std::memcpy(out, extra.data(), extra.size());
  out += extra.size();
  wire::Checksums sums;
  if (summed) {
    endpoint_->checksum().clear();
    endpoint_->checksum().add(head, static_cast<size_t>(out - head));
    sums.head = endpoint_->checksum().value();
    endpoint_->checksum().clear();
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    append_payload(tensors[i], forms.empty() ? wire::Form::kWhole : forms[i], summed);
  }
  if (summed) {
    sums.payload = endpoint_->checksum().value();
    wire::encode_checksums(sums, out);
  }
  count_outbox();
  endpoint_->metrics().frames_out.add();
  endpoint_->lane()->flush_later(this);
  return {};
}

void Link::append_payload(const tensor::Tensor& value, wire::Form form, bool summed) {
  if (!value.defined()) return;
  if (value.dtype() == tensor::DType::kString) return append_strings(value, summed);
  const bool is_narrow = form != wire::Form::kWhole && value.dtype() == tensor::DType::kFloat32;
  const size_t bytes = is_narrow ? value.nbytes() / 2 : value.nbytes();
  if (bytes == 0) return;
  const size_t pad = wire::padded(bytes) - bytes;
  const std::byte* sent = value.raw();
  if (is_narrow || bytes <= kCopyBytesMax) {
    std::byte* copy = outbox_.append(bytes + pad);
    if (is_narrow) {
      wire::narrow(form, value.data<const float>().data(),
                   static_cast<size_t>(value.num_elements()), copy);
    } else {
      std::memcpy(copy, value.raw(), bytes);
    }
    std::memset(copy + bytes, 0, pad);
    sent = copy;
  } else {
    outbox_.append_shared(value.raw(), bytes, value.buffer());
    outbox_.append_shared(kZeros.data(), pad, nullptr);
  }
  if (summed) endpoint_->checksum().add(sent, bytes);
}

// Long strings are sent from where they are: the buffer of the views keeps their bytes.
void Link::append_strings(const tensor::Tensor& value, bool summed) {
  const auto strings = value.data<const std::string_view>();
  if (strings.empty()) return;
  const size_t length_bytes = strings.size() * sizeof(uint64_t);
  std::byte* lengths = outbox_.append(length_bytes);
  size_t total = length_bytes;
  for (size_t i = 0; i < strings.size(); ++i) {
    const uint64_t length = strings[i].size();
    std::memcpy(lengths + i * sizeof(length), &length, sizeof(length));
    total += length;
  }
  if (summed) endpoint_->checksum().add(lengths, length_bytes);
  for (const std::string_view string : strings) {
    if (string.empty()) continue;
    const auto* bytes = reinterpret_cast<const std::byte*>(string.data());
    if (string.size() <= kCopyBytesMax) {
      std::memcpy(outbox_.append(string.size()), bytes, string.size());
    } else {
      outbox_.append_shared(bytes, string.size(), value.buffer());
    }
    if (summed) endpoint_->checksum().add(bytes, string.size());
  }
  const size_t pad = wire::padded(total) - total;
  if (pad > 0) std::memset(outbox_.append(pad), 0, pad);
}

void Link::send_error(uint64_t call_id, const Status& error, bool derived, uint64_t number) {
  wire::FrameHeader header;
  header.method = wire::Method::kError;
  header.flags = (derived ? wire::kDerived : 0) | (number != 0 ? wire::kNumbered : 0);
  header.step = number;
  header.call_id = call_id;
  header.status = static_cast<uint32_t>(error.code());
  const std::string text = base::message_of(error);
  send(header, wire::cut_text(text, trusted_ ? wire::kErrorBytesMax : kFirstErrorBytesMax));
}

Status Link::write_out() {
  std::array<sys::ConstIoSlice, kSlicesMax> slices;
  size_t flushed = 0;
  while (outbox_.bytes() > 0 || stream_->holds_output()) {
    if (flushed >= kFlushBytesMax) {
      endpoint_->lane()->flush_later(this);
      break;
    }
    size_t count = outbox_.peek(slices);
    if (switches_output_) count = slices_before_switch(slices, count);
    const Result<sys::IoCount> sent = stream_->writev({slices.data(), count});
    if (!sent.ok()) return sent.status();
    outbox_.consume(sent->bytes);
    flushed += sent->bytes;
    if (switches_output_) SR_RETURN_IF_ERROR(try_switch_output(sent->bytes));
    const bool all_given = outbox_.bytes() == 0 || (switches_output_ && before_switch_ == 0);
    if (sent->would_block || (all_given && stream_->holds_output())) {
      wants_write_ = true;
      break;
    }
  }
  if (flushed > 0) {
    count_outbox();
    endpoint_->metrics().bytes_out.add(static_cast<int64_t>(flushed));
    bytes_out_ += static_cast<int64_t>(flushed);
    trim_later();
    if (paused_) last_life_ = endpoint_->lane()->loop_now();
  }
  return {};
}

void Link::flush() {
  if (!is_open() || !ready_) return;
  if (!wants_write_) {
    const Status written = write_out();
    if (!written.ok()) return fail(written);
  }
  const uint64_t epoch = epoch_;
  owner_->on_flushed();
  if (epoch == epoch_) update_pause();
  if (epoch == epoch_ && has_room_) resume();
  if (epoch == epoch_ && !held() && stream_->holds_input()) read();
  if (epoch == epoch_) update_interest();
}

void Link::update_pause() {
  if (!is_server_) return;
  const auto max = static_cast<size_t>(endpoint_->options().send_buffer_bytes_max);
  const bool is_lane_full =
      endpoint_->send_bytes() > static_cast<uint64_t>(endpoint_->options().lane_send_bytes_max);
  const size_t waiting = outbox_.bytes();
  if (waiting > max || (is_lane_full && waiting > kShareMin)) {
    if (!std::exchange(paused_, true)) last_life_ = endpoint_->lane()->loop_now();
  } else if (paused_ && waiting <= max / 2 && (!is_lane_full || waiting <= kShareMin / 2)) {
    paused_ = false;
    last_life_ = endpoint_->lane()->loop_now();
    asked_at_ = 0;
    // Bytes that were read before the pause come first. Already in staging while reading_.
    if (!reading_) consume_carried();
  }
}

void Link::update_interest() {
  if (!is_open()) return;
  sys::Interest wanted = {.readable = !held(), .writable = wants_write_};
  if (!ready_) wanted = stream_->connecting_interest();
  if (interest_ == wanted) return;
  interest_ = wanted;
  const Status status = endpoint_->lane()->rewatch(*stream_, interest_);
  if (!status.ok()) fail(status);
}

}  // namespace sidereal::transport
