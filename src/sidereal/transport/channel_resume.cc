#include <algorithm>
#include <utility>

#include "sidereal/transport/channel_impl.h"

/// How the calls of a Channel outlive its connections.
///
/// Both directions are numbered. A call gets its number when it is first sent, and calls are sent
/// in the order of their numbers over each connection; so what has arrived are the calls up to some
/// number, which the peer says in its handshake, and only those behind it are sent again. Answers
/// are numbered by the peer, which keeps them until this side has confirmed them, and sends those
/// behind the last one that this side names in its handshake.
namespace sidereal::transport {
namespace {

/// Answers of so many bytes are confirmed at once, others with the next call or after so long.
/// Frames for confirmations alone cost a server with a thousand clients a tenth of its steps.
constexpr uint64_t kConfirmBytes = 64 << 10;
constexpr int64_t kConfirmNs = 250 * sys::kMillisecond;
constexpr size_t kGivenUpMax = 1024;

}  // namespace

// ---- Sending ---------------------------------------------------------------------------------

/// Sends a call, now or when there is a connection and it is its turn.
Status Channel::Impl::save(const wire::FrameHeader& header, std::span<const tensor::Tensor> feeds,
                           const CallOptions& what) {
  const uint64_t call_id = header.call_id;
  std::unique_ptr<KeptMessage>& kept = calls_[static_cast<uint32_t>(call_id)].saved;
  kept = endpoint_->kept().take();
  kept->assign(feeds, what.slots, what.forms, what.extra);
  kept->header = header;
  kept->header.flags =
      static_cast<uint16_t>(wire::kNumbered | (what.is_repeatable ? wire::kRepeatable : 0));
  if (connected() && waiting_.empty()) {
    Status sent = send_saved(call_id);
    if (!sent.ok()) drop_saved(call_id);
    return sent;
  }
  kept->bytes = wire::kHeaderBytes + wire::size_of(feeds, what.forms).payload_bytes;
  waiting_bytes_ += kept->bytes;
  waiting_.push_back(call_id);
  return {};
}

Status Channel::Impl::send_saved(uint64_t call_id) {
  KeptMessage& kept = saved(call_id);
  if (kept.header.number == 0) kept.header.number = ++number_;
  kept.header.confirmed = received_;
  SR_RETURN_IF_ERROR(link_.send(kept));
  waiting_bytes_ -= std::exchange(kept.bytes, 0);
  confirmed_ = received_;
  unconfirmed_bytes_ = 0;
  return {};
}

void Channel::Impl::send_waiting() {
  const auto most = static_cast<size_t>(endpoint_->options().send_buffer_bytes_max);
  while (connected() && !waiting_.empty() && link_.send_bytes() <= most) {
    const uint64_t call_id = waiting_.front();
    waiting_.pop_front();
    if (find(call_id) == nullptr) continue;
    const Status sent = send_saved(call_id);
    if (!sent.ok()) {
      complete(call_id, base::with_context(sent, fmt::format("call to {}", peer_text())));
    }
  }
}

void Channel::Impl::drop_saved(uint64_t call_id) {
  std::unique_ptr<KeptMessage> kept = std::move(calls_[static_cast<uint32_t>(call_id)].saved);
  waiting_bytes_ -= kept->bytes;
  endpoint_->kept().give(std::move(kept));
}

// ---- Losing a connection ---------------------------------------------------------------------

void Channel::Impl::lose(const Status& why) {
  state_ = State::kIdle;
  receiving_ = 0;
  lost_ns_ = lane()->now();
  if (!std::exchange(resuming_, true)) {
    lost_why_ = why;
    resume_timer_ = lane()->run_after(endpoint_->options().resume_ms * sys::kMillisecond,
                                      [this] { give_up_resuming(); });
  }
  last_failure_ = "no answer";
  retry_ns_ = kRetryFirstNs;
  retry_after(0);
}

void Channel::Impl::end_resuming() {
  resuming_ = false;
  lane()->cancel_timer(resume_timer_);
}

void Channel::Impl::give_up(const Status& why) {
  if (!resuming_) return;
  stop_connecting();
  gone(why);
}

void Channel::Impl::give_up_resuming() {
  stop_connecting();
  const std::string lost = base::message_of(lost_why_);
  // The same may have kept it away since.
  const std::string why = lost.ends_with(last_failure_) ? "" : ": " + last_failure_;
  gone(base::unavailable(
      "{}; it was not reached again within {:.1f} s{}; whether it has done what it was sent is "
      "unknown",
      lost, static_cast<double>(endpoint_->options().resume_ms) / 1e3, why));
}

// ---- Going on --------------------------------------------------------------------------------

/// Calls that were sent, over whatever connection, and have no answer.
std::vector<uint64_t> Channel::Impl::sent_in_order() const {
  std::vector<uint64_t> out;
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].sink != nullptr && calls_[i].saved->header.number != 0) out.push_back(id_of(i));
  }
  std::sort(out.begin(), out.end(), [this](uint64_t a, uint64_t b) {
    return saved(a).header.number < saved(b).header.number;
  });
  return out;
}

/// Whether something wholly comes over the connections to a peer that is reached again and again. A
/// network may be too slow for one frame (Link), which then begins anew with every connection; for
/// those who wait that is as if nobody was reached, and as long (resume_ms).
bool Channel::Impl::comes_through() {
  const std::vector<uint64_t> sent = sent_in_order();
  const bool is_cut = std::exchange(is_inside_, false) ||
                      (!sent.empty() && saved(sent.back()).header.number > ack_.seen);
  const bool moves = std::exchange(known_seen_, ack_.seen) != ack_.seen ||
                     std::exchange(known_answers_, answers_) != answers_;
  if (!is_cut || moves)
    stuck_ns_ = 0;
  else if (stuck_ns_ == 0)
    stuck_ns_ = lost_ns_;
  return stuck_ns_ == 0 ||
         lane()->now() - stuck_ns_ <= endpoint_->options().resume_ms * sys::kMillisecond;
}

/// The handshake is done: ack_ says what the peer knows.
void Channel::Impl::resumed_by(uint64_t earlier_incarnation) {
  const uint64_t session = std::exchange(session_, ack_.session);
  const bool was_resuming = resuming_;
  end_resuming();
  if (session != 0 && ack_.incarnation != earlier_incarnation) return restarted(was_resuming);
  const bool is_known = ack_.session == session;
  if (!is_known) {
    received_ = confirmed_ = unconfirmed_bytes_ = 0;
    given_up_.clear();
  }
  if (!comes_through() && is_known) {
    link_.close();
    return gone(base::unavailable(
        "{}; it was reached again, but in {:.1f} s no message came through wholly: the network is "
        "too slow for them, or keepalive_timeout_ms too short; whether it has done what it was "
        "sent is unknown",
        base::message_of(lost_why_), seconds(lane()->now() - stuck_ns_)));
  }
  resumed_ += was_resuming && is_known ? 1 : 0;
  // Those that were never sent come behind those that were.
  std::erase_if(waiting_, [this](uint64_t id) {
    return find(id) == nullptr || saved(id).header.number != 0;
  });
  std::vector<uint64_t> again, unknown;
  for (const uint64_t call_id : sent_in_order()) {
    const wire::FrameHeader& header = saved(call_id).header;
    const bool is_repeatable = (header.flags & wire::kRepeatable) != 0;
    if (is_repeatable || (is_known && header.number > ack_.seen)) {
      again.push_back(call_id);
    } else if (!is_known) {
      unknown.push_back(call_id);
    }
  }
  waiting_.insert(waiting_.begin(), again.begin(), again.end());
  send_cancels();
  send_waiting();
  for (const uint64_t call_id : unknown) {
    complete(call_id, base::aborted("{} has forgotten this client: whether it has done the call is "
                                    "unknown",
                                    peer_text()));
  }
  if (!was_resuming) finish_connect({});
}

/// The peer has begun a new life, which knows nothing of the calls of the old one.
void Channel::Impl::restarted(bool was_resuming) {
  received_ = confirmed_ = unconfirmed_bytes_ = 0;
  given_up_.clear();
  waiting_.clear();
  if (!was_resuming) return finish_connect({});
  const Status lost = base::unavailable("lost {}: it was restarted", peer_text());
  const Status unknown =
      base::aborted("{} was restarted: whether it has done the call is unknown", peer_text());
  if (!kept_) stop_connecting();
  std::vector<std::pair<uint64_t, bool>> calls;
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].sink == nullptr) continue;
    const wire::FrameHeader& header = calls_[i].saved->header;
    calls.emplace_back(id_of(i), header.number != 0 && (header.flags & wire::kRepeatable) == 0);
  }
  for (const auto& [call_id, is_unknown] : calls) {
    if (find(call_id) != nullptr) complete(call_id, is_unknown ? unknown : lost);
  }
  if (break_hook_) break_hook_(lost);
  if (!kept_ || !connected()) return;
  hear_(lost);
  if (connected()) finish_connect({});
}

/// Calls whose end the peer may not know of.
void Channel::Impl::send_cancels() {
  for (const uint64_t call_id : given_up_) {
    wire::FrameHeader header;
    header.method = wire::Method::kCancel;
    header.call_id = call_id;
    link_.send(header);
  }
}

/// A call ends without its answer. True when it was sent, so that the peer may run it.
bool Channel::Impl::note_given_up(uint64_t call_id) {
  if (saved(call_id).header.number == 0) return false;
  if (given_up_.size() == kGivenUpMax) given_up_.erase(given_up_.begin());
  given_up_.push_back(call_id);
  return true;
}

// ---- Answers ---------------------------------------------------------------------------------

Status Channel::Impl::check_answer(const wire::FrameHeader& header) const {
  if ((header.flags & wire::kNumbered) == 0) return {};
  if (!resumes() || header.step != received_ + 1) {
    return base::data_loss("answer {} after answer {}", header.step, received_);
  }
  return {};
}

/// An answer has wholly come.
void Channel::Impl::note_answer(const wire::FrameHeader& header) {
  is_inside_ = false;
  ++answers_;
  if ((header.flags & wire::kNumbered) == 0) return;
  received_ = header.step;
  if (!given_up_.empty()) std::erase(given_up_, header.call_id);
  unconfirmed_bytes_ += wire::kHeaderBytes + header.meta_bytes + header.payload_bytes;
  if (unconfirmed_bytes_ >= kConfirmBytes) return confirm();
  if (std::exchange(confirm_later_, true)) return;
  confirm_timer_ = lane()->run_after(kConfirmNs, [this] {
    confirm_later_ = false;
    confirm();
  });
}

void Channel::Impl::confirm() {
  if (!connected() || confirmed_ == received_) return;
  confirmed_ = received_;
  unconfirmed_bytes_ = 0;
  wire::FrameHeader header;
  header.method = wire::Method::kConfirm;
  header.call_id = received_;
  link_.send(header);
}

}  // namespace sidereal::transport
