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
// Errors before the handshake, which unauthenticated peers may see.
constexpr size_t kFirstErrorBytesMax = 4096;
// A connection with fewer waiting bytes than these is not what fills the lane.
constexpr size_t kShareMin = 64 << 10;
constexpr std::array<std::byte, wire::kPayloadAlign> kZeros{};

/// Writes the lengths of strings to `out`; returns what is behind them.
std::byte* copy_lengths(const tensor::Tensor& strings, std::byte* out) {
  for (const std::string_view string : strings.data<const std::string_view>()) {
    const uint64_t length = string.size();
    std::memcpy(out, &length, sizeof(length));
    out += sizeof(length);
  }
  return out;
}

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
  // A small message is one piece.
  const bool is_small = size.payload_bytes <= kCopyBytesMax;
  std::byte* const head =
      outbox_.append(wire::kHeaderBytes + meta_bytes + (is_small ? size.payload_bytes : 0));
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
  std::byte* payload = head + wire::kHeaderBytes + meta_bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const wire::Form form = forms.empty() ? wire::Form::kWhole : forms[i];
    const uint64_t bytes = wire::payload_bytes_of(tensors[i], form);
    if (bytes == 0) continue;
    if (!is_small) {
      append_payload(tensors[i], form, bytes, summed);
    } else {
      copy_payload(tensors[i], form, bytes, payload, summed);
      payload += wire::padded(bytes);
    }
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

/// Writes the payload of `value`, of `bytes` bytes, and its padding to `out`.
void Link::copy_payload(const tensor::Tensor& value, wire::Form form, uint64_t bytes,
                        std::byte* out, bool summed) {
  if (value.dtype() == tensor::DType::kString) {
    std::byte* at = copy_lengths(value, out);
    for (const std::string_view string : value.data<const std::string_view>()) {
      if (!string.empty()) std::memcpy(at, string.data(), string.size());
      at += string.size();
    }
  } else if (bytes < value.nbytes()) {
    wire::narrow(form, value.data<const float>().data(), static_cast<size_t>(value.num_elements()),
                 out);
  } else {
    std::memcpy(out, value.raw(), bytes);
  }
  const size_t pad = wire::padded(bytes) - bytes;
  if (pad > 0) std::memset(out + bytes, 0, pad);
  if (summed) endpoint_->checksum().add(out, bytes);
}

/// As copy_payload(), at the end of the outbox; what is long is sent from where it is.
void Link::append_payload(const tensor::Tensor& value, wire::Form form, uint64_t bytes,
                          bool summed) {
  const bool is_strings = value.dtype() == tensor::DType::kString;
  const bool is_narrow = !is_strings && bytes < value.nbytes();
  if (is_narrow || bytes <= kCopyBytesMax) {
    return copy_payload(value, form, bytes, outbox_.append(wire::padded(bytes)), summed);
  }
  if (is_strings) return append_strings(value, bytes, summed);
  outbox_.append_shared(value.raw(), bytes, value.buffer());
  outbox_.append_shared(kZeros.data(), wire::padded(bytes) - bytes, nullptr);
  if (summed) endpoint_->checksum().add(value.raw(), bytes);
}

// Long strings are sent from where they are: the buffer of the views keeps their bytes.
void Link::append_strings(const tensor::Tensor& value, uint64_t bytes, bool summed) {
  const auto strings = value.data<const std::string_view>();
  const size_t length_bytes = strings.size() * sizeof(uint64_t);
  std::byte* const lengths = outbox_.append(length_bytes);
  copy_lengths(value, lengths);
  if (summed) endpoint_->checksum().add(lengths, length_bytes);
  for (const std::string_view string : strings) {
    if (string.empty()) continue;
    const auto* text = reinterpret_cast<const std::byte*>(string.data());
    if (string.size() <= kCopyBytesMax) {
      std::memcpy(outbox_.append(string.size()), text, string.size());
    } else {
      outbox_.append_shared(text, string.size(), value.buffer());
    }
    if (summed) endpoint_->checksum().add(text, string.size());
  }
  const size_t pad = wire::padded(bytes) - bytes;
  if (pad > 0) std::memset(outbox_.append(pad), 0, pad);
}

Status Link::send(const KeptMessage& message) {
  wire::FrameHeader header = message.header;
  if (header.method != wire::Method::kError) {
    return send(&header, {message.tensors, message.slots, message.forms, message.extra});
  }
  send(header, message.extra);
  return {};
}

void Link::send_error(uint64_t call_id, const Status& error, bool derived) {
  wire::FrameHeader header;
  header.method = wire::Method::kError;
  header.flags = derived ? wire::kDerived : 0;
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
