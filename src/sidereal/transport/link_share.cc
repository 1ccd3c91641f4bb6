#include <algorithm>
#include <bit>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/log.h"
#include "sidereal/sys/shared_ring.h"
#include "sidereal/transport/link.h"

/// How a Link moves to memory that both ends share.
namespace sidereal::transport {
namespace {

// A connection that carries less goes on as it is: memory is for those that are used.
constexpr int64_t kShareAfterBytes = 64 << 10;
// After as long without a byte an idle connection gives its memory back.
constexpr int64_t kTrimNs = 2 * sys::kSecond;

uint64_t ring_bytes_of(const config::Options& options) {
  return std::bit_floor(static_cast<uint64_t>(options.shared_ring_bytes));
}

}  // namespace

/// The client has moved enough bytes for an offer, once.
void Link::consider_sharing() {
  if (bytes_in_ + bytes_out_ - opened_bytes_ < kShareAfterBytes) return;
  may_offer_ = false;
  if (!takes_ring(ring_bytes_of(endpoint_->options()))) {
    return endpoint_->metrics().rings_declined.add();
  }
  Result<std::unique_ptr<sys::SharedMemory>> made =
      endpoint_->lane()->network()->share(ring_bytes_of(endpoint_->options()));
  if (!made.ok()) return endpoint_->metrics().rings_declined.add();
  offered_ = *std::move(made);
  count_shared(offered_->bytes().size());
  const sys::SharedPlace& place = offered_->place();
  wire::FrameHeader header;
  header.method = wire::Method::kOffer;
  send(header, wire::encode_offer({.process = place.process,
                                   .descriptor = place.descriptor,
                                   .key_high = place.key_high,
                                   .key_low = place.key_low,
                                   .ring_bytes = place.ring_bytes}));
}

/// Whether the lane has room for one more.
bool Link::takes_ring(uint64_t ring_bytes) const {
  const auto most = static_cast<uint64_t>(endpoint_->options().lane_shared_bytes_max);
  return endpoint_->options().shared_memory != 0 && sys::is_ring_size(ring_bytes) &&
         endpoint_->shared_bytes() + sys::shared_bytes(ring_bytes) <= most;
}

/// The memory of this connection has so many bytes.
void Link::count_shared(uint64_t bytes) {
  endpoint_->count_shared_bytes(static_cast<int64_t>(bytes) -
                                static_cast<int64_t>(counted_shared_));
  counted_shared_ = bytes;
}

/// Offer, Decline and Switch. An error closes the link as malformed.
Status Link::on_sharing(const wire::FrameHeader& header, std::string_view meta) {
  const char* const name = wire::name_of(header.method);
  if (!trusted_) return base::data_loss("{} before the handshake", name);
  switch (header.method) {
    case wire::Method::kOffer:
      if (!is_server_ || was_offered_) break;
      was_offered_ = true;
      return on_offer(meta);
    case wire::Method::kDecline:
      if (offered_ == nullptr) break;
      offered_.reset();
      count_shared(0);
      endpoint_->metrics().rings_declined.add();
      return {};
    default:
      if (is_server_ ? shared_ == nullptr || input_switched_ : offered_ == nullptr) break;
      if (!is_server_) SR_RETURN_IF_ERROR(begin_sharing(std::move(offered_), true));
      return switch_input();
  }
  return base::data_loss("{}, which does not belong here", name);
}

/// The server does without where anything is not as it should be: the connection is fine.
Status Link::on_offer(std::string_view meta) {
  SR_ASSIGN_OR_RETURN(const wire::Offer offer, wire::decode_offer(meta));
  const bool is_wanted = stream_->is_local() &&
                         offer.ring_bytes <= ring_bytes_of(endpoint_->options()) &&
                         takes_ring(offer.ring_bytes);
  if (is_wanted) {
    Result<std::unique_ptr<sys::SharedMemory>> found =
        endpoint_->lane()->network()->find_shared({.process = offer.process,
                                                   .descriptor = offer.descriptor,
                                                   .key_high = offer.key_high,
                                                   .key_low = offer.key_low,
                                                   .ring_bytes = offer.ring_bytes});
    if (found.ok()) return begin_sharing(*std::move(found), false);
    base::log_debug("memory_not_shared reason=\"{}\"", base::message_of(found.status()));
  }
  endpoint_->metrics().rings_declined.add();
  wire::FrameHeader header;
  header.method = wire::Method::kDecline;
  send(header);
  return {};
}

/// Says that all further frames go through the memory, and sees to it once this is on its way.
Status Link::begin_sharing(std::unique_ptr<sys::SharedMemory> memory, bool offered) {
  memory->hide();
  lane::Lane* const lane = endpoint_->lane();
  lane->unwatch(*stream_);
  auto shared = std::make_unique<sys::SharedStream>(std::move(stream_), std::move(memory), offered);
  shared_ = shared.get();
  stream_ = std::move(shared);
  count_shared(shared_->memory().bytes().size());
  endpoint_->metrics().rings.add();
  SR_RETURN_IF_ERROR(lane->watch(*stream_, this, interest_));
  wire::FrameHeader header;
  header.method = wire::Method::kSwitch;
  send(header);
  before_switch_ = outbox_.bytes();
  switches_output_ = true;
  return {};
}

/// The last frame over the connection itself has come.
Status Link::switch_input() {
  input_switched_ = true;
  shared_->switch_input();
  return endpoint_->lane()->rewatch(*stream_, interest_);
}

/// Of the `count` slices those that go before the switch, the last one cut; returns how many.
size_t Link::slices_before_switch(std::span<sys::ConstIoSlice> slices, size_t count) const {
  size_t left = before_switch_;
  for (size_t i = 0; i < count; ++i) {
    if (left == 0) return i;
    slices[i].bytes = std::min(slices[i].bytes, left);
    left -= slices[i].bytes;
  }
  return count;
}

/// Once the last frame over the connection itself has left.
Status Link::try_switch_output(size_t sent) {
  before_switch_ -= sent;
  if (before_switch_ > 0 || stream_->holds_output()) return {};
  switches_output_ = false;
  shared_->switch_output();
  trim_later();
  return endpoint_->lane()->rewatch(*stream_, interest_);
}

/// Looks after the memory of a connection that was just used.
void Link::trim_later() {
  if (shared_ == nullptr || trims_) return;
  trims_ = true;
  trimmed_bytes_ = bytes_in_ + bytes_out_;
  trim_timer_ = endpoint_->lane()->run_after(kTrimNs, [this] {
    trims_ = false;
    // Not while the peer has something to read.
    if (bytes_in_ + bytes_out_ != trimmed_bytes_ || !shared_->trim()) trim_later();
  });
}

void Link::end_sharing() {
  if (shared_ != nullptr) {
    endpoint_->lane()->cancel_timer(trim_timer_);
    endpoint_->metrics().rings.add(-1);
    shared_ = nullptr;
  }
  offered_.reset();
  count_shared(0);
  may_offer_ = was_offered_ = input_switched_ = switches_output_ = trims_ = false;
  before_switch_ = 0;
}

}  // namespace sidereal::transport
