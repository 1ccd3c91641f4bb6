#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/transport/link.h"

/// The receiving half of Link.
namespace sidereal::transport {
namespace {

constexpr size_t kDirectBytesMin = 16 << 10;  // shorter payload rests go through staging
constexpr size_t kSmallWindow = 4 << 10;      // read ahead between long payloads
constexpr uint64_t kLongPayload = 32 << 10;   // frames that make the window small
constexpr uint64_t kFreeBytesMax = 16 << 10;  // payloads that ask for no room
constexpr size_t kSlicesMax = 128;
constexpr int kReadsPerEvent = 4;
// Messages after which what was made of them leaves before more is handled: about as many as take
// as long as a write.
constexpr int kEarlyMessages = 32;
constexpr size_t kCarryKept = 4 << 10;  // memory that an idle connection keeps

std::string_view as_text(const std::byte* data, size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

/// How far is read ahead at most, unless a head is longer.
constexpr size_t kWindowBytesMax = size_t{512} << 10;

/// A bool is 0 or 1: anything else in memory of that type is undefined behaviour later.
bool has_bad_bool(const tensor::Tensor& t) {
  if (t.dtype() != tensor::DType::kBool) return false;
  unsigned all = 0;
  const size_t bytes = t.nbytes();
  for (size_t i = 0; i < bytes; ++i) all |= std::to_integer<unsigned>(t.raw()[i]);
  return all > 1;
}

}  // namespace

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
    for (size_t i = slot_at_; i < incoming_.parts->slots.size() && count + 3 < slices.size(); ++i) {
      const uint64_t bytes = incoming_.parts->slots[i].nbytes;
      const uint64_t whole = wire::padded(bytes);
      if (offset < bytes) {
        slices[count++] = {incoming_.parts->places[i] + offset, bytes - offset};
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
  for (int i = 0; i < kReadsPerEvent && is_open() && !held(); ++i) {
    size_t direct = 0;
    size_t carried = 0;
    const size_t count = read_slices(slices, &direct, &carried);
    const size_t room = slices[count - 1].bytes;
    const Result<sys::IoCount> got = stream_->readv({slices.data(), count});
    if (!got.ok()) return fail(got.status());
    if (got->would_block) break;
    if (got->end) return fail(base::unavailable("it closed the connection"));
    last_life_ = endpoint_->lane()->loop_now();
    asked_at_ = 0;
    endpoint_->metrics().bytes_in.add(static_cast<int64_t>(got->bytes));
    bytes_in_ += static_cast<int64_t>(got->bytes);
    // The system is not asked for what lies in shared memory anyway.
    if (i == 0) endpoint_->lane()->came_to(shared_ == nullptr ? this : nullptr);

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
    if (staged == room && window_ < kWindowBytesMax) window_ *= 2;
    if (got->bytes < direct + room && !stream_->holds_input()) break;
  }
  if (!held() && stream_->holds_input()) endpoint_->lane()->flush_later(this);
  if (may_offer_) consider_sharing();
  update_interest();
}

bool Link::look() {
  if (!ready_ || held()) return false;
  const int64_t before = bytes_in_;
  read();
  return bytes_in_ != before || !is_open();
}

void Link::consume_carried() {
  if (carry_.empty()) return;
  std::vector<std::byte> held = std::move(carry_);
  carry_.clear();
  consume(as_text(held.data(), held.size()));
}

// ---- Room for long payloads ------------------------------------------------------------------

void Link::on_room() {
  has_room_ = true;
  endpoint_->lane()->flush_later(this);  // not from within whatever gave room back
}

/// The payload that waited is received now.
void Link::resume() {
  has_room_ = false;
  room_ = incoming_.header.payload_bytes;
  last_life_ = endpoint_->lane()->loop_now();
  asked_at_ = 0;
  const uint64_t epoch = epoch_;
  const Status status = place_message();
  if (epoch != epoch_) return;
  if (!status.ok()) return malformed(status);
  if (payload_done()) finish_message();
  if (epoch == epoch_ && !paused_) consume_carried();
}

// What `bytes` leave over, the beginning of a head or all that follows a pause, is kept in carry_.
void Link::consume(std::string_view bytes) {
  const uint64_t epoch = epoch_;
  const bool was_switched = input_switched_;
  int handled = 0;
  size_t from = bytes.size();
  while (!bytes.empty() && !held()) {
    const size_t used = expect_ == Expect::kHead ? consume_head(bytes) : consume_payload(bytes);
    if (epoch != epoch_) return;
    if (used == 0) break;
    bytes.remove_prefix(used);
    // What has come over the connection behind the switch are bells.
    if (input_switched_ && !was_switched) bytes = {};
    if (is_server_) update_pause();
    if (expect_ != Expect::kHead || ++handled < kEarlyMessages) continue;
    // The peer goes on with these while the rest, unless it is less, is handled.
    if (outbox_.bytes() == 0 || wants_write_ || bytes.size() < from - bytes.size()) continue;
    const Status written = write_out();
    if (!written.ok()) return fail(written);
    handled = 0;
    from = bytes.size();
  }
  const auto* rest = reinterpret_cast<const std::byte*>(bytes.data());
  carry_.assign(rest, rest + bytes.size());
  if (carry_.empty() && carry_.capacity() > kCarryKept) carry_ = {};
}

/// Returns the bytes of the head (and of what needs no payload) at the front of `bytes`; 0 when it
/// is not complete or the link was closed.
size_t Link::consume_head(std::string_view bytes) {
  head_bytes_ = 0;
  if (bytes.size() < wire::kHeaderBytes) return 0;
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  const Status status = wire::decode_header(data, limits_, &incoming_.header);
  if (!status.ok()) {
    malformed(status);
    return 0;
  }
  const size_t head = wire::kHeaderBytes + incoming_.header.meta_bytes;
  if (bytes.size() < head) {
    head_bytes_ = head;
    return 0;
  }
  endpoint_->metrics().frames_in.add();
  ++frames_in_;
  dispatch(bytes.substr(wire::kHeaderBytes, incoming_.header.meta_bytes));
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
      if (expect_ == Expect::kPayload && payload_done()) finish_message();
      return;
    }
    default: {
      const uint64_t epoch = epoch_;
      const bool is_sharing = header.method == wire::Method::kOffer ||
                              header.method == wire::Method::kDecline ||
                              header.method == wire::Method::kSwitch;
      const Status status = is_sharing ? on_sharing(header, meta) : owner_->on_frame(header, meta);
      if (epoch == epoch_ && !status.ok()) malformed(status);
    }
  }
}

Status Link::begin_message(std::string_view meta) {
  incoming_.parts = endpoint_->take_parts();
  wire::Meta rest;
  SR_RETURN_IF_ERROR(wire::decode_meta(incoming_.header, meta, &incoming_.parts->slots, &rest));
  incoming_.header.number = rest.number;
  incoming_.header.confirmed = rest.confirmed;
  incoming_.parts->extra.assign(rest.extra);
  incoming_.sums = rest.sums;
  const uint64_t bytes = incoming_.header.payload_bytes;
  if (bytes <= kFreeBytesMax) return place_message();
  if (!endpoint_->budget().take(bytes, this)) {
    expect_ = Expect::kRoom;
    last_life_ = endpoint_->lane()->loop_now();
    return {};
  }
  room_ = bytes;
  return place_message();
}

Status Link::place(size_t position) {
  const wire::SlotEntry& slot = incoming_.parts->slots[position];
  tensor::Tensor& value = incoming_.parts->tensors[position];
  if (slot.dtype == tensor::DType::kString) {
    // Pages that no byte comes for are never touched.
    tensor::Buffer::Ptr memory = tensor::Buffer::try_allocate_zeroed(slot.nbytes);
    if (memory == nullptr) {
      return base::resource_exhausted("there is no memory for strings of {} bytes", slot.nbytes);
    }
    incoming_.parts->places[position] = memory->data();
    value = tensor::Tensor(tensor::DType::kUInt8, {static_cast<int64_t>(slot.nbytes)},
                           std::move(memory));
    return {};
  }
  const uint64_t epoch = epoch_;
  Result<tensor::Tensor> made =
      owner_->allocate(incoming_.header, static_cast<int>(position), slot);
  if (!made.ok()) return std::move(made).status();
  if (epoch != epoch_) return {};  // Closed meanwhile.
  SR_CHECK(made->defined() && made->dtype() == slot.dtype && made->shape() == slot.shape,
           "allocate() gave {} for {}{}", made->to_string(), tensor::name_of(slot.dtype),
           slot.shape.to_string());
  value = *std::move(made);
  // What is rounded comes to the end of its memory, and is widened from the front.
  incoming_.parts->places[position] = value.raw() + (value.nbytes() - slot.nbytes);
  return {};
}

/// Finds memory for the message whose head was read, and begins to receive into it.
Status Link::place_message() {
  incoming_.parts->tensors.resize(incoming_.parts->slots.size());
  incoming_.parts->places.assign(incoming_.parts->slots.size(), nullptr);
  expect_ = Expect::kPayload;
  slot_at_ = 0;
  offset_ = payload_at_ = 0;
  skip_ = false;
  const uint64_t epoch = epoch_;
  SR_ASSIGN_OR_RETURN(bool wanted, owner_->on_begin(incoming_.header));
  if (epoch != epoch_) return {};
  for (size_t i = 0; wanted && i < incoming_.parts->slots.size(); ++i) {
    if (incoming_.parts->slots[i].dead) continue;
    const Status placed = place(i);
    if (epoch != epoch_) return {};
    if (placed.ok()) continue;
    owner_->on_no_place(incoming_.header, placed);
    if (epoch != epoch_) return {};
    wanted = false;
  }
  if (!wanted) skip_payload();
  if (incoming_.header.payload_bytes >= kLongPayload) window_ = kSmallWindow;
  if (!skip_) skip_empty_slots();
  return {};
}

void Link::skip_payload() {
  if (expect_ != Expect::kPayload) return;
  skip_ = true;
  incoming_.parts->tensors.clear();
  give_back_room();
}

bool Link::payload_done() const { return payload_left() == 0; }

void Link::skip_empty_slots() {
  while (slot_at_ < incoming_.parts->slots.size() &&
         offset_ == wire::padded(incoming_.parts->slots[slot_at_].nbytes)) {
    ++slot_at_;
    offset_ = 0;
  }
}

void Link::advance_payload(size_t bytes) {
  payload_at_ += bytes;
  while (!skip_ && bytes > 0) {
    const uint64_t left = wire::padded(incoming_.parts->slots[slot_at_].nbytes) - offset_;
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
  while (!skip_ && at < used) {
    const uint64_t nbytes = incoming_.parts->slots[slot_at_].nbytes;
    if (offset_ < nbytes) {
      const size_t n = std::min<uint64_t>(nbytes - offset_, used - at);
      std::memcpy(incoming_.parts->places[slot_at_] + offset_, bytes.data() + at, n);
      at += n;
      offset_ += n;
    }
    const size_t pad = std::min<uint64_t>(wire::padded(nbytes) - offset_, used - at);
    at += pad;
    offset_ += pad;
    skip_empty_slots();
  }
  payload_at_ += used;
  if (payload_done()) finish_message();
  return used;
}

/// Makes the tensor of a slot whose payload has come what it should be.
Status Link::finish_tensor(size_t position) {
  tensor::Tensor& value = incoming_.parts->tensors[position];
  const wire::SlotEntry& slot = incoming_.parts->slots[position];
  if (slot.dtype == tensor::DType::kString) {
    SR_ASSIGN_OR_RETURN(value, wire::strings_of(slot, value.buffer()));
  } else if (slot.form != wire::Form::kWhole) {
    wire::widen(slot.form, incoming_.parts->places[position],
                static_cast<size_t>(value.num_elements()), value.data<float>().data());
  } else if (has_bad_bool(value)) {
    return base::data_loss("a bool that is neither 0 nor 1");
  }
  return {};
}

Status Link::finish_tensors() {
  if ((incoming_.header.flags & wire::kSummed) != 0) {
    wire::Checksum& sum = endpoint_->checksum();
    sum.clear();
    for (size_t i = 0; i < incoming_.parts->slots.size(); ++i) {
      sum.add(incoming_.parts->places[i], incoming_.parts->slots[i].nbytes);
    }
    if (sum.value() != incoming_.sums.payload) {
      return base::data_loss("the payload of a {} frame was changed on its way (checksum)",
                             wire::name_of(incoming_.header.method));
    }
  }
  for (size_t i = 0; i < incoming_.parts->slots.size(); ++i) {
    if (incoming_.parts->slots[i].dead) continue;
    SR_RETURN_IF_ERROR(finish_tensor(i));
  }
  return {};
}

void Link::finish_message() {
  expect_ = Expect::kHead;
  ++frames_in_;
  head_bytes_ = 0;
  const uint64_t epoch = epoch_;
  if (!skip_) {
    const Status status = finish_tensors();
    if (!status.ok()) return malformed(status);
  }
  // Not the link's any more, which the owner may close.
  std::unique_ptr<MessageParts> parts = std::move(incoming_.parts);
  owner_->on_received(incoming_.header);
  if (!skip_ && epoch == epoch_) {
    owner_->on_message(incoming_.header, parts->slots, parts->extra, parts->tensors);
  }
  endpoint_->give_parts(std::move(parts));
  if (epoch == epoch_) give_back_room();
}

void Link::give_back_room() {
  if (room_ > 0) endpoint_->budget().give_back(std::exchange(room_, 0));
}

}  // namespace sidereal::transport
