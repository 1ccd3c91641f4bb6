#include "sidereal/transport/link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::transport {
namespace {

constexpr wire::Limits kHandshakeLimits = {
    .meta_bytes_max = 4096, .payload_bytes_max = 0, .slots_max = 0};
constexpr size_t kDirectBytesMin = 16 << 10;  // shorter payload rests go through staging
constexpr size_t kSmallWindow = 4 << 10;      // read ahead between long payloads
constexpr uint64_t kLongPayload = 32 << 10;   // frames that make the window small
constexpr size_t kCopyBytesMax = 4 << 10;     // payloads copied next to their header
constexpr size_t kSlicesMax = 128;
constexpr int kReadsPerEvent = 4;
constexpr size_t kFlushBytesMax = 8 << 20;  // per flush, so that reading goes on
constexpr std::array<std::byte, wire::kPayloadAlign> kZeros{};

std::string_view as_text(const std::byte* data, size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

/// A bool is 0 or 1: anything else in memory of that type is undefined behaviour later.
bool has_bad_bool(const tensor::Tensor& t) {
  if (t.dtype() != tensor::DType::kBool) return false;
  unsigned all = 0;
  const size_t bytes = t.nbytes();
  for (size_t i = 0; i < bytes; ++i) all |= std::to_integer<unsigned>(t.raw()[i]);
  return all > 1;
}

}  // namespace

Link::Link(Endpoint* endpoint, Owner* owner, bool is_server)
    : endpoint_(endpoint), owner_(owner), is_server_(is_server), window_(Endpoint::kStagingBytes) {}

Link::~Link() { shut(); }

Status Link::open(std::unique_ptr<sys::Stream> stream) {
  SR_CHECK(stream_ == nullptr);
  interest_ = {};
  SR_RETURN_IF_ERROR(endpoint_->lane()->watch(*stream, this, interest_));
  stream_ = std::move(stream);
  limits_ = kHandshakeLimits;
  expect_ = Expect::kHead;
  head_bytes_ = 0;
  carry_.clear();
  wants_write_ = paused_ = skip_ = false;
  tick_ns_ = endpoint_->options().keepalive_timeout_ms * sys::kMillisecond / 4;
  last_tick_ = last_life_ = endpoint_->lane()->now();
  asked_at_ = 0;
  timer_ = endpoint_->lane()->run_after(tick_ns_, [this] { tick(); });
  return {};
}

void Link::set_trusted() { limits_ = endpoint_->limits(); }

void Link::close() {
  if (!is_open()) return;
  (void)write_out();  // a last try: a peer that does not take it learns from the close
  shut();
}

void Link::shut() {
  if (!is_open()) return;
  ++epoch_;
  lane::Lane* lane = endpoint_->lane();
  lane->cancel_timer(timer_);
  lane->cancel_flush(this);
  lane->unwatch(*stream_);
  stream_.reset();
  outbox_.clear();
  incoming_.tensors.clear();
  carry_.clear();
}

void Link::fail(const Status& why) {
  if (!is_open()) return;
  shut();
  owner_->on_broken(why);
}

void Link::malformed(const Status& why) {
  if (!is_open()) return;
  endpoint_->metrics().malformed.add();
  if (is_server_) {
    send_error(0, why);
    (void)write_out();
  }
  fail(base::with_context(why, "it sent a wrong frame"));
}

// ---- Sending ---------------------------------------------------------------------------------

void Link::send(wire::FrameHeader header, std::string_view meta) {
  if (!is_open()) return;
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  std::byte* out = outbox_.append(wire::kHeaderBytes + meta.size());
  wire::encode_header(header, out);
  if (!meta.empty()) std::memcpy(out + wire::kHeaderBytes, meta.data(), meta.size());
  endpoint_->metrics().frames_out.add();
  endpoint_->lane()->flush_later(this);
}

Status Link::send(wire::FrameHeader header, std::span<const tensor::Tensor> tensors,
                  std::span<const uint32_t> slots) {
  for (const tensor::Tensor& t : tensors) {
    if (t.dtype() != tensor::DType::kString) continue;
    return base::unimplemented("strings ({}) do not travel between tasks in this release",
                               t.to_string());
  }
  const wire::FrameSize size = wire::size_of(tensors);
  const wire::Limits& limits = endpoint_->limits();
  if (tensors.size() > limits.slots_max || size.meta_bytes > limits.meta_bytes_max) {
    return base::invalid_argument("{} tensors do not fit one message; slots_max is {}",
                                  tensors.size(), limits.slots_max);
  }
  if (size.payload_bytes > limits.payload_bytes_max) {
    return base::invalid_argument("{} bytes do not fit one message; frame_bytes_max is {}",
                                  size.payload_bytes, limits.payload_bytes_max);
  }
  SR_DCHECK(slots.empty() || slots.size() == tensors.size());
  header.slot_count = static_cast<uint32_t>(tensors.size());
  header.meta_bytes = static_cast<uint32_t>(size.meta_bytes);
  header.payload_bytes = size.payload_bytes;
  std::byte* out = outbox_.append(wire::kHeaderBytes + size.meta_bytes);
  wire::encode_header(header, out);
  out += wire::kHeaderBytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    out += wire::encode_slot(slots.empty() ? static_cast<uint32_t>(i) : slots[i], tensors[i], out);
  }
  for (const tensor::Tensor& t : tensors) {
    if (!t.defined()) continue;
    const size_t bytes = t.nbytes();
    const size_t pad = wire::padded(bytes) - bytes;
    if (bytes <= kCopyBytesMax) {
      if (bytes == 0) continue;
      std::byte* copy = outbox_.append(bytes + pad);
      std::memcpy(copy, t.raw(), bytes);
      std::memset(copy + bytes, 0, pad);
    } else {
      outbox_.append_shared(t.raw(), bytes, t.buffer());
      outbox_.append_shared(kZeros.data(), pad, nullptr);
    }
  }
  endpoint_->metrics().frames_out.add();
  endpoint_->lane()->flush_later(this);
  return {};
}

void Link::send_error(uint64_t call_id, const Status& error) {
  wire::FrameHeader header;
  header.method = wire::Method::kError;
  header.call_id = call_id;
  header.status = static_cast<uint32_t>(error.code());
  std::string text = base::message_of(error);
  text.resize(std::min<size_t>(text.size(), kHandshakeLimits.meta_bytes_max));
  send(header, text);
}

Status Link::write_out() {
  std::array<sys::ConstIoSlice, kSlicesMax> slices;
  size_t flushed = 0;
  while (outbox_.bytes() > 0) {
    if (flushed >= kFlushBytesMax) {
      endpoint_->lane()->flush_later(this);
      break;
    }
    const size_t count = outbox_.peek(slices);
    const Result<sys::IoCount> sent = stream_->writev({slices.data(), count});
    if (!sent.ok()) return sent.status();
    if (sent->would_block) {
      wants_write_ = true;
      break;
    }
    outbox_.consume(sent->bytes);
    flushed += sent->bytes;
  }
  if (flushed > 0) {
    endpoint_->metrics().bytes_out.add(static_cast<int64_t>(flushed));
    bytes_out_ += static_cast<int64_t>(flushed);
    if (paused_) last_life_ = endpoint_->lane()->loop_now();
  }
  return {};
}

void Link::flush() {
  if (!is_open() || wants_write_) return;
  const Status written = write_out();
  if (!written.ok()) return fail(written);
  update_pause();
  update_interest();
}

void Link::update_pause() {
  if (!is_server_) return;
  const auto max = static_cast<size_t>(endpoint_->options().send_buffer_bytes_max);
  if (outbox_.bytes() > max) {
    paused_ = true;
  } else if (paused_ && outbox_.bytes() <= max / 2) {
    paused_ = false;
    last_life_ = endpoint_->lane()->loop_now();
    // Bytes that were read before the pause come first. Already in staging while reading_.
    if (!reading_ && !carry_.empty()) {
      std::vector<std::byte> held = std::move(carry_);
      carry_.clear();
      consume(as_text(held.data(), held.size()));
    }
  }
}

void Link::update_interest() {
  if (!is_open()) return;
  const bool readable = !paused_;
  if (interest_.readable == readable && interest_.writable == wants_write_) return;
  interest_ = {.readable = readable, .writable = wants_write_};
  const Status status = endpoint_->lane()->rewatch(*stream_, interest_);
  if (!status.ok()) fail(status);
}

// ---- Receiving -------------------------------------------------------------------------------

void Link::on_io(const sys::Event& event) {
  if (event.writable || (event.failed && paused_)) {
    wants_write_ = false;
    const uint64_t epoch = epoch_;
    flush();
    if (epoch != epoch_) return;
  }
  if (event.failed && paused_) return fail(base::unavailable("connection reset"));
  if (event.readable || event.failed) read();
}

// How far to read ahead into staging. Between long payloads only a little, because what lands in
// staging is copied once more; a head that is known to be longer must fit.
size_t Link::window() const {
  const size_t room = Endpoint::kStagingBytes - carry_.size();
  const size_t wanted = head_bytes_ > carry_.size() ? head_bytes_ - carry_.size() : 0;
  return std::min(room, std::max(window_, wanted));
}

/// Sets `direct_bytes` to what goes straight to tensors, `carried` to the bytes put at the front of
/// staging; returns the number of slices.
size_t Link::read_slices(std::span<sys::IoSlice> slices, size_t* direct_bytes, size_t* carried) {
  size_t count = 0;
  *direct_bytes = 0;
  *carried = carry_.size();
  if (expect_ == Expect::kPayload && !skip_ && payload_left() >= kDirectBytesMin) {
    uint64_t offset = offset_;
    for (size_t i = slot_at_; i < incoming_.slots.size() && count + 3 < slices.size(); ++i) {
      const uint64_t bytes = incoming_.slots[i].nbytes;
      const uint64_t whole = wire::padded(bytes);
      if (offset < bytes) {
        slices[count++] = {incoming_.tensors[i].raw() + offset, bytes - offset};
        *direct_bytes += bytes - offset;
        offset = bytes;
      }
      if (offset < whole) {
        slices[count++] = {padding_, whole - offset};
        *direct_bytes += whole - offset;
      }
      offset = 0;
    }
  }
  std::byte* staging = endpoint_->staging().data;
  const size_t room = window();
  if (!carry_.empty()) std::memcpy(staging, carry_.data(), carry_.size());
  slices[count++] = {staging + carry_.size(), room};
  return count;
}

void Link::read() {
  std::array<sys::IoSlice, kSlicesMax> slices;
  for (int i = 0; i < kReadsPerEvent && is_open() && !paused_; ++i) {
    size_t direct = 0;
    size_t carried = 0;
    const size_t count = read_slices(slices, &direct, &carried);
    const size_t room = slices[count - 1].bytes;
    const Result<sys::IoCount> got = stream_->readv({slices.data(), count});
    if (!got.ok()) return fail(got.status());
    if (got->would_block) return;
    if (got->end) return fail(base::unavailable("it closed the connection"));
    last_life_ = endpoint_->lane()->loop_now();
    asked_at_ = 0;
    endpoint_->metrics().bytes_in.add(static_cast<int64_t>(got->bytes));
    bytes_in_ += static_cast<int64_t>(got->bytes);

    const uint64_t epoch = epoch_;
    reading_ = true;
    const size_t placed = std::min(direct, got->bytes);
    if (placed > 0) advance_payload(placed);
    const size_t staged = got->bytes - placed;
    if (epoch == epoch_ && staged + carried > 0) {
      carry_.clear();
      consume(as_text(endpoint_->staging().data, carried + staged));
    }
    reading_ = false;
    if (epoch != epoch_) return;
    if (staged == room && window_ < Endpoint::kStagingBytes) window_ *= 2;
    if (got->bytes < direct + room) break;
  }
  update_interest();
}

// What `bytes` leave over, the beginning of a head or all that follows a pause, is kept in carry_.
void Link::consume(std::string_view bytes) {
  const uint64_t epoch = epoch_;
  while (!bytes.empty() && !paused_) {
    const size_t used = expect_ == Expect::kHead ? consume_head(bytes) : consume_payload(bytes);
    if (epoch != epoch_) return;
    if (used == 0) break;
    bytes.remove_prefix(used);
    if (is_server_) update_pause();
  }
  const auto* rest = reinterpret_cast<const std::byte*>(bytes.data());
  carry_.assign(rest, rest + bytes.size());
}

/// Returns the bytes of the head (and of what needs no payload) at the front of `bytes`; 0 when it
/// is not complete or the link was closed.
size_t Link::consume_head(std::string_view bytes) {
  head_bytes_ = 0;
  if (bytes.size() < wire::kHeaderBytes) return 0;
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  Result<wire::FrameHeader> header = wire::decode_header(data, limits_);
  if (!header.ok()) {
    malformed(header.status());
    return 0;
  }
  const size_t head = wire::kHeaderBytes + header->meta_bytes;
  if (bytes.size() < head) {
    head_bytes_ = head;
    return 0;
  }
  incoming_.header = *header;
  endpoint_->metrics().frames_in.add();
  dispatch(bytes.substr(wire::kHeaderBytes, header->meta_bytes));
  return head;
}

void Link::dispatch(std::string_view meta) {
  const wire::FrameHeader& header = incoming_.header;
  switch (header.method) {
    case wire::Method::kPing: {
      wire::FrameHeader pong;
      pong.method = wire::Method::kPong;
      return send(pong);
    }
    case wire::Method::kPong:
      return;
    case wire::Method::kCall:
    case wire::Method::kReply: {
      const uint64_t epoch = epoch_;
      const Status status = begin_message(meta);
      if (epoch != epoch_) return;
      if (!status.ok()) return malformed(status);
      if (payload_done()) finish_message();
      return;
    }
    default: {
      const uint64_t epoch = epoch_;
      const Status status = owner_->on_frame(header, meta);
      if (epoch == epoch_ && !status.ok()) malformed(status);
    }
  }
}

Status Link::begin_message(std::string_view meta) {
  SR_RETURN_IF_ERROR(wire::decode_slots(incoming_.header, meta, &incoming_.slots));
  incoming_.tensors.clear();
  incoming_.tensors.resize(incoming_.slots.size());
  expect_ = Expect::kPayload;
  slot_at_ = 0;
  offset_ = payload_at_ = 0;
  skip_ = false;
  const uint64_t epoch = epoch_;
  SR_ASSIGN_OR_RETURN(const bool wanted,
                      owner_->on_slots(incoming_.header, incoming_.slots, incoming_.tensors));
  if (epoch != epoch_) return {};
  if (!wanted) skip_payload();
  if (incoming_.header.payload_bytes >= kLongPayload) window_ = kSmallWindow;
  if (!skip_) skip_empty_slots();
  return {};
}

void Link::skip_payload() {
  if (expect_ != Expect::kPayload) return;
  skip_ = true;
  incoming_.tensors.clear();
}

bool Link::payload_done() const { return payload_left() == 0; }

void Link::skip_empty_slots() {
  while (slot_at_ < incoming_.slots.size() &&
         offset_ == wire::padded(incoming_.slots[slot_at_].nbytes)) {
    ++slot_at_;
    offset_ = 0;
  }
}

void Link::advance_payload(size_t bytes) {
  payload_at_ += bytes;
  while (!skip_ && bytes > 0) {
    const uint64_t left = wire::padded(incoming_.slots[slot_at_].nbytes) - offset_;
    const uint64_t step = std::min<uint64_t>(left, bytes);
    offset_ += step;
    bytes -= step;
    skip_empty_slots();
  }
  if (payload_done()) finish_message();
}

size_t Link::consume_payload(std::string_view bytes) {
  const size_t used = std::min<uint64_t>(bytes.size(), payload_left());
  size_t at = 0;
  uint64_t offset = offset_;
  for (size_t i = slot_at_; !skip_ && at < used; ++i, offset = 0) {
    const uint64_t nbytes = incoming_.slots[i].nbytes;
    if (offset < nbytes) {
      const size_t n = std::min<uint64_t>(nbytes - offset, used - at);
      std::memcpy(incoming_.tensors[i].raw() + offset, bytes.data() + at, n);
      at += n;
      offset += n;
    }
    at += std::min<uint64_t>(wire::padded(nbytes) - offset, used - at);
  }
  advance_payload(used);
  return used;
}

void Link::finish_message() {
  expect_ = Expect::kHead;
  head_bytes_ = 0;
  if (skip_) return;
  for (const tensor::Tensor& t : incoming_.tensors) {
    if (t.defined() && has_bad_bool(t)) {
      return malformed(base::data_loss("a bool that is neither 0 nor 1"));
    }
  }
  const uint64_t epoch = epoch_;
  owner_->on_message(incoming_.header, incoming_.slots, incoming_.tensors);
  if (epoch == epoch_) incoming_.tensors.clear();
}

// ---- Liveness --------------------------------------------------------------------------------

// Four ticks make the keepalive timeout: after one without a byte a ping is sent, and two more
// without an answer end the link.
void Link::tick() {
  lane::Lane* lane = endpoint_->lane();
  const int64_t now = lane->now();
  // This lane itself did not run: the peer's answer may be waiting unread, so ask afresh.
  const bool stalled = now - last_tick_ > 2 * tick_ns_;
  last_tick_ = now;
  if (stalled) {
    asked_at_ = 0;
    last_life_ = std::max(last_life_, now - tick_ns_);
  }
  const double seconds = static_cast<double>(endpoint_->options().keepalive_timeout_ms) / 1e3;
  if (paused_) {
    if (now - last_life_ >= 4 * tick_ns_) {
      return fail(base::unavailable("it took no bytes for {:.1f} s", seconds));
    }
  } else if (asked_at_ != 0) {
    if (now - asked_at_ >= 2 * tick_ns_) {
      return fail(base::unavailable("it gave no sign of life for {:.1f} s", seconds));
    }
  } else if (now - last_life_ >= tick_ns_) {
    asked_at_ = now;
    wire::FrameHeader ping;
    ping.method = wire::Method::kPing;
    send(ping);
  }
  timer_ = lane->run_after(tick_ns_, [this] { tick(); });
}

}  // namespace sidereal::transport
