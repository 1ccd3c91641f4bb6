#include "sidereal/transport/channel.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/transport/channel_impl.h"

namespace sidereal::transport {

// ---- What the peer says ----------------------------------------------------------------------

Status Channel::Impl::on_frame(const wire::FrameHeader& header, std::string_view meta) {
  switch (header.method) {
    case wire::Method::kHelloAck:
      if (state_ != State::kShaking) return base::data_loss("HelloAck after the handshake");
      return shaken(meta);
    case wire::Method::kError: {
      const Status error = wire::error_status(header, meta);
      if (header.call_id != 0) {
        SR_RETURN_IF_ERROR(check_answer(header));
        note_answer(header);
        if ((header.flags & wire::kDerived) != 0) say_aside(header.call_id, {.derived = true});
        complete(header.call_id, error);
        return {};
      }
      if (state_ == State::kShaking) {
        refused(error);
      } else {
        link_.close();
        gone(base::unavailable("lost {}: {}", peer_text(), base::message_of(error)));
      }
      return {};
    }
    case wire::Method::kGoodbye:
      link_.close();
      if (state_ == State::kShaking) {
        retry("it said goodbye");
      } else {
        gone(base::unavailable("lost {}: it is shutting down", peer_text()));
      }
      return {};
    default:
      return base::data_loss("{} from a server", wire::name_of(header.method));
  }
}

Result<bool> Channel::Impl::on_begin(const wire::FrameHeader& header) {
  if (header.method != wire::Method::kReply || !connected()) {
    return base::data_loss("{} from a server", wire::name_of(header.method));
  }
  SR_RETURN_IF_ERROR(check_answer(header));
  is_inside_ = true;
  if (find(header.call_id) == nullptr) {
    endpoint_->metrics().replies_late.add();
    return false;
  }
  receiving_ = header.call_id;
  return true;
}

Result<tensor::Tensor> Channel::Impl::allocate(const wire::FrameHeader& header, int position,
                                               const wire::SlotEntry& slot) {
  const Pending* call = find(header.call_id);
  // A sink that is asked for memory may cancel its call.
  if (call == nullptr) return base::cancelled("the call has ended");
  return call->sink->allocate(position, slot.dtype, slot.shape);
}

void Channel::Impl::on_no_place(const wire::FrameHeader& header, const Status& why) {
  receiving_ = 0;
  if (find(header.call_id) != nullptr) complete(header.call_id, why);
}

void Channel::Impl::on_message(const wire::FrameHeader& header, std::span<const wire::SlotEntry>,
                               std::string_view extra, std::span<tensor::Tensor> tensors) {
  receiving_ = 0;
  if (!extra.empty()) say_aside(header.call_id, {.extra = extra});
  complete(header.call_id, {}, tensors);
}

void Channel::Impl::say_aside(uint64_t call_id, const Aside& aside) {
  const Pending* call = find(call_id);
  if (call != nullptr) call->sink->on_aside(aside);
}

void Channel::Impl::on_broken(const Status& why) {
  if (state_ != State::kShaking) return lost(why);
  if (why.code() == StatusCode::kUnauthenticated) return refused(why);
  const bool may_want_tls = endpoint_->tls() == nullptr && !resuming_;
  retry(base::message_of(why) + (may_want_tls ? "; does it want a secret or certificates?" : ""));
}

void Channel::Impl::on_received(const wire::FrameHeader& header) { note_answer(header); }

void Channel::Impl::on_flushed() {
  if (!waiting_.empty()) send_waiting();
  if (!wants_room_ ||
      link_.send_bytes() > static_cast<size_t>(endpoint_->options().send_buffer_bytes_max) / 2) {
    return;
  }
  wants_room_ = false;
  if (room_hook_) room_hook_();
}

void Channel::Impl::lost(const Status& why) {
  const Status error = base::unavailable("lost {}: {}", peer_text(), base::message_of(why));
  return resumes() ? lose(error) : gone(error);
}

/// The connection is lost, and its calls with it.
void Channel::Impl::gone(const Status& why) {
  end_resuming();
  state_ = State::kIdle;
  wants_room_ = false;
  fail_all(why);
  if (break_hook_) break_hook_(why);
  if (!kept_ || state_ != State::kIdle) return;
  retry_ns_ = kRetryFirstNs;
  retry_after(0);
  hear_(why);
}

// ---- Calls -----------------------------------------------------------------------------------

Result<uint64_t> Channel::Impl::call(const CallOptions& what, std::span<const tensor::Tensor> feeds,
                                     CallSink* sink) {
  if (!accepts_calls()) return base::unavailable("not connected to {}", peer_text());
  const size_t bytes = link_.send_bytes() + waiting_bytes_;
  if (bytes > static_cast<size_t>(endpoint_->options().send_buffer_bytes_max)) {
    wants_room_ = true;
    return base::resource_exhausted(
        "{} bytes already wait to be sent to {}; send_buffer_bytes_max is {}", bytes, peer_text(),
        endpoint_->options().send_buffer_bytes_max);
  }
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(calls_.size()));
    calls_.emplace_back();
  }
  const uint32_t at = free_.back();
  Pending& call = calls_[at];
  wire::FrameHeader header;
  header.method = wire::Method::kCall;
  header.kind = what.kind;
  header.call_id = id_of(at);
  header.program = what.program;
  header.step = what.step;
  header.session = what.session;
  const Status sent = resumes() ? save(header, feeds, what)
                                : link_.send(&header, {feeds, what.slots, what.forms, what.extra});
  if (!sent.ok()) return base::with_context(sent, fmt::format("call to {}", peer_text()));
  free_.pop_back();
  call.sink = sink;
  call.started = lane()->recent_now();
  call.deadline = what.deadline_ns != 0
                      ? what.deadline_ns
                      : call.started + endpoint_->options().call_deadline_ms * sys::kMillisecond;
  ++pending_count_;
  endpoint_->metrics().calls.add();
  watch_deadline(call.deadline);
  return header.call_id;
}

Channel::Impl::Pending* Channel::Impl::find(uint64_t call_id) {
  const auto at = static_cast<uint32_t>(call_id);
  if (at >= calls_.size() || calls_[at].sink == nullptr || calls_[at].generation != call_id >> 32) {
    return nullptr;
  }
  return &calls_[at];
}

void Channel::Impl::complete(uint64_t call_id, const Status& status,
                             std::span<tensor::Tensor> fetches) {
  Pending* call = find(call_id);
  if (call == nullptr) return endpoint_->metrics().replies_late.add();
  if (receiving_ == call_id) {
    // Its memory is the caller's again: nothing may be written to it any more.
    link_.skip_payload();
    receiving_ = 0;
  }
  CallSink* sink = std::exchange(call->sink, nullptr);
  if (resumes()) drop_saved(call_id);
  if (++call->generation == 0) call->generation = 1;
  free_.push_back(static_cast<uint32_t>(call_id));
  --pending_count_;
  endpoint_->metrics().call_ns.record(lane()->loop_now() - call->started);
  if (!status.ok()) endpoint_->metrics().calls_failed.add();
  sink->done(status, fetches);
}

bool Channel::Impl::cancel(uint64_t call_id) {
  if (find(call_id) == nullptr) return false;
  tell_cancelled(call_id);
  complete(call_id, base::cancelled("a call to {} was cancelled", peer_text()));
  return true;
}

void Channel::Impl::tell_cancelled(uint64_t call_id) {
  // A reply that is on its way says that there is nothing left to cancel.
  if (receiving_ == call_id) return;
  if (resumes() && !note_given_up(call_id)) return;
  if (!connected()) return;
  wire::FrameHeader header;
  header.method = wire::Method::kCancel;
  header.call_id = call_id;
  link_.send(header);
}

void Channel::Impl::fail_all(const Status& why) {
  receiving_ = 0;
  // Calls that the sinks start on the way belong to another connection: there is none yet, so
  // call() refuses them, and the table does not grow here.
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].sink == nullptr) continue;
    const uint64_t call_id = id_of(i);
    if (resumes()) (void)note_given_up(call_id);
    complete(call_id, why);
  }
  waiting_.clear();
}

// One timer at the earliest deadline. A call that ends leaves it: it then finds the next.
void Channel::Impl::watch_deadline(int64_t deadline) {
  if (deadline >= timer_deadline_) return;
  lane()->cancel_timer(deadline_timer_);
  timer_deadline_ = deadline;
  deadline_timer_ = lane()->run_at(deadline, [this] { expire(); });
}

Status Channel::Impl::expired_status(const Pending& call) const {
  return base::deadline_exceeded("{} did not answer within {:.1f} s", peer_text(),
                                 seconds(call.deadline - call.started));
}

void Channel::Impl::expire() {
  timer_deadline_ = INT64_MAX;
  const int64_t now = lane()->now();
  int64_t next = INT64_MAX;
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].sink == nullptr) continue;
    if (calls_[i].deadline <= now) {
      const uint64_t call_id = id_of(i);
      tell_cancelled(call_id);
      complete(call_id, expired_status(calls_[i]));
    } else {
      next = std::min(next, calls_[i].deadline);
    }
  }
  if (next != INT64_MAX) watch_deadline(next);
}

// ---- Channel ---------------------------------------------------------------------------------

Resume Resume::draw(sys::Random& random) {
  // Never both 0, which is nobody.
  return {.client_high = random.next() | 1, .client_low = random.next()};
}

std::unique_ptr<Channel> Channel::create(Endpoint* endpoint, Peer peer, const Resume& resume) {
  return std::unique_ptr<Channel>(
      new Channel(std::make_unique<Impl>(endpoint, std::move(peer), resume)));
}

Channel::Channel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Channel::~Channel() = default;

void Channel::connect(int64_t deadline_ns, base::Function<void(const Status&)> done) {
  impl_->connect(deadline_ns, std::move(done));
}

Result<uint64_t> Channel::call(const CallOptions& what, std::span<const tensor::Tensor> feeds,
                               CallSink* sink) {
  return impl_->call(what, feeds, sink);
}

bool Channel::cancel(uint64_t call_id) { return impl_->cancel(call_id); }
void Channel::close() { impl_->close(); }
void Channel::give_up(const Status& why) { impl_->give_up(why); }
bool Channel::connected() const { return impl_->connected(); }
bool Channel::accepts_calls() const { return impl_->accepts_calls(); }
int64_t Channel::resumed() const { return impl_->resumed(); }
int64_t Channel::bytes_in() const { return impl_->link().bytes_in(); }
int64_t Channel::bytes_out() const { return impl_->link().bytes_out(); }
int Channel::pending() const { return impl_->pending(); }
const Peer& Channel::peer() const { return impl_->peer(); }
uint64_t Channel::peer_incarnation() const { return impl_->ack().incarnation; }
uint32_t Channel::peer_lane_count() const { return impl_->ack().lane_count; }
void Channel::keep_connected(base::Function<void(const Status&)> hear) {
  impl_->keep_connected(std::move(hear));
}
void Channel::on_room(base::Function<void()> hook) { impl_->on_room(std::move(hook)); }
void Channel::on_break(base::Function<void(const Status&)> hook) {
  impl_->on_break(std::move(hook));
}

}  // namespace sidereal::transport
