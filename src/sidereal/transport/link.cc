#include "sidereal/transport/link.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::transport {
namespace {

constexpr wire::Limits kHandshakeLimits = {
    .meta_bytes_max = 4096, .payload_bytes_max = 0, .slots_max = 0};
// How far to read ahead at first: what is read and cannot be taken is kept.
constexpr size_t kFirstWindow = 16 << 10;
// A frame that has begun brings at least this much in a keepalive timeout, or ends.
constexpr int64_t kFrameBytesMin = 64 << 10;

}  // namespace

Link::Link(Endpoint* endpoint, Owner* owner, bool is_server)
    : endpoint_(endpoint),
      owner_(owner),
      is_server_(is_server),
      window_(kFirstWindow),
      outbox_(&endpoint->chunks()) {}

Link::~Link() { shut(); }

Status Link::open(std::unique_ptr<sys::Stream> stream) {
  SR_CHECK(stream_ == nullptr);
  SR_ASSIGN_OR_RETURN(ready_, stream->connected());
  interest_ = ready_ ? sys::Interest() : stream->connecting_interest();
  SR_RETURN_IF_ERROR(endpoint_->lane()->watch(*stream, this, interest_));
  stream_ = std::move(stream);
  limits_ = kHandshakeLimits;
  expect_ = Expect::kHead;
  head_bytes_ = 0;
  carry_.clear();
  wants_write_ = paused_ = skip_ = trusted_ = has_room_ = false;
  tick_ns_ = endpoint_->options().keepalive_timeout_ms * sys::kMillisecond / 4;
  last_tick_ = last_life_ = moved_ns_ = endpoint_->lane()->now();
  asked_at_ = 0;
  opened_bytes_ = bytes_in_ + bytes_out_;
  timer_ = endpoint_->lane()->run_after(tick_ns_, [this] { tick(); });
  // A stream on top of another may have read more than its own handshake.
  if (ready_ && stream_->holds_input()) endpoint_->lane()->flush_later(this);
  return {};
}

void Link::set_trusted() {
  limits_ = endpoint_->limits();
  trusted_ = true;
  may_offer_ = !is_server_ && endpoint_->options().shared_memory != 0 && stream_->is_local();
}

void Link::close() {
  if (!is_open()) return;
  // A last try: a peer that does not take it learns from the close.
  if (ready_) (void)write_out();
  shut();
}

void Link::shut() {
  if (!is_open()) return;
  ++epoch_;
  lane::Lane* lane = endpoint_->lane();
  lane->cancel_timer(timer_);
  lane->cancel_flush(this);
  lane->unwatch(*stream_);
  end_sharing();
  stream_.reset();
  outbox_.clear();
  count_outbox();
  if (incoming_.parts != nullptr) endpoint_->give_parts(std::move(incoming_.parts));
  carry_.clear();
  if (expect_ == Expect::kRoom) {
    if (has_room_) room_ = incoming_.header.payload_bytes;
    has_room_ = false;
    endpoint_->budget().forget(this);
  }
  give_back_room();
  expect_ = Expect::kHead;
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
    if (ready_) (void)write_out();
  }
  fail(base::with_context(why, "it sent a wrong frame"));
}

/// Goes on connecting; false as long as it is not done.
bool Link::make_ready() {
  const Result<bool> connected = stream_->connected();
  if (!connected.ok()) {
    fail(connected.status());
    return false;
  }
  ready_ = *connected;
  if (ready_) endpoint_->lane()->flush_later(this);
  update_interest();
  return ready_ && is_open();
}

void Link::on_io(const sys::Event& event) {
  if (!ready_ && !make_ready()) return;
  if (event.writable || (event.failed && held())) {
    wants_write_ = false;
    const uint64_t epoch = epoch_;
    flush();
    if (epoch != epoch_) return;
  }
  if (event.failed && held()) return fail(base::unavailable("connection reset"));
  if (event.readable || event.failed) read();
}

// ---- Liveness --------------------------------------------------------------------------------

/// Whether the frame that is being received, if any, does not take for ever. Who sends it byte by
/// byte shows life, but holds room that others wait for; a length that is wrong looks the same.
bool Link::moves_on(int64_t now, bool stalled) {
  const bool is_inside = expect_ == Expect::kPayload || !carry_.empty();
  if (!trusted_ || !is_inside || held() || stalled || frames_in_ != moved_frames_ ||
      bytes_in_ - moved_bytes_ >= kFrameBytesMin) {
    moved_ns_ = now;
    moved_bytes_ = bytes_in_;
    moved_frames_ = frames_in_;
    return true;
  }
  return now - moved_ns_ < 4 * tick_ns_;
}

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
  if (!moves_on(now, stalled)) {
    if (is_server_) endpoint_->metrics().refused_idle.add();
    return fail(base::unavailable("a frame that it began came no further for {:.1f} s", seconds));
  }
  if (!ready_) {
    // Whoever opened it bounds the time for that.
  } else if (expect_ == Expect::kRoom) {
    // Its pings lie unread: it learns that this side lives.
    wire::FrameHeader pong;
    pong.method = wire::Method::kPong;
    send(pong);
  } else if (paused_) {
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
