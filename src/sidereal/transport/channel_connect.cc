#include <algorithm>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/transport/channel_impl.h"

/// How a Channel finds its peer and shakes hands.
namespace sidereal::transport {
namespace {

constexpr int64_t kRetryMaxNs = 500 * sys::kMillisecond;
constexpr int64_t kRefusedRetryNs = 5 * sys::kSecond;
constexpr const char* kNoAnswer = "no answer";
/// A timer that fires so late was held up.
constexpr int64_t kAwayNs = 100 * sys::kMillisecond;
/// So often it waits longer for that.
constexpr int kTimesAwayMax = 8;
constexpr int64_t kLookUpNs = 10 * sys::kSecond;

}  // namespace

void Channel::Impl::connect(int64_t deadline_ns, base::Function<void(const Status&)> done) {
  SR_CHECK(state_ == State::kIdle && !connect_done_ && !kept_, "connect() on {}, which is in use",
           peer_text());
  connect_done_ = std::move(done);
  connect_started_ = lane()->now();
  connect_deadline_ =
      deadline_ns != 0
          ? deadline_ns
          : connect_started_ + endpoint_->options().connect_deadline_ms * sys::kMillisecond;
  connect_patience_ = connect_deadline_ - connect_started_;
  retry_ns_ = kRetryFirstNs;
  times_away_ = 0;
  was_held_up_ = false;
  last_failure_ = kNoAnswer;
  if (connect_deadline_ != kNoDeadline) {
    connect_timer_ = lane()->run_at(connect_deadline_, [this] { miss_connect_deadline(); });
  }
  // From a timer, so that `done` is never called from within connect().
  retry_after(0);
}

void Channel::Impl::miss_connect_deadline() {
  if (has_look_up_answer()) {
    // A lane that computes moves bytes and fires timers in between, but comes to nothing that was
    // posted. Time begins anew when it does.
    was_held_up_ = true;
    connect_timer_ = lane()->run_after(kAwayNs, [this] { miss_connect_deadline(); });
    return;
  }
  // A lane that comes late did something else: what the peer has sent meanwhile was not seen.
  const int64_t away = lane()->now() - connect_deadline_;
  if (away > kAwayNs && ++times_away_ <= kTimesAwayMax) {
    connect_deadline_ = lane()->now() + away;
    connect_timer_ = lane()->run_at(connect_deadline_, [this] { miss_connect_deadline(); });
    return;
  }
  finish_connect(base::unavailable("cannot reach {} within {:.1f} s: {}", peer_text(),
                                   seconds(lane()->now() - connect_started_), last_failure_));
}

void Channel::Impl::keep_connected(base::Function<void(const Status&)> hear) {
  SR_CHECK(state_ == State::kIdle && !connect_done_ && !kept_,
           "keep_connected() on {}, which is in use", peer_text());
  hear_ = std::move(hear);
  kept_ = true;
  retry_ns_ = kRetryFirstNs;
  retry_after(0);
}

void Channel::Impl::attempt() {
  ++tries_;
  if (lane()->network()->needs_look_up(peer_.address)) return look_up();
  dial(peer_.address);
}

void Channel::Impl::look_up() {
  look_up_ = std::make_shared<LookUp>();
  look_up_->lane = lane();
  await_look_up();
  lane()->network()->look_up(
      peer_.address, [this, asked = look_up_](const Result<std::vector<sys::Address>>& found) {
        const std::lock_guard lock(asked->mutex);
        if (asked->lane == nullptr) return;
        // A lane that takes nothing any more ends, or has so much to do that the timer will do.
        asked->answered = asked->lane->post([this, asked, found] {
          // Who drops the look-up does so on the lane.
          if (asked->lane == nullptr) return;
          drop_look_up();
          lane()->cancel_timer(retry_timer_);
          if (std::exchange(was_held_up_, false)) {
            lane()->cancel_timer(connect_timer_);
            connect_deadline_ = lane()->now() + connect_patience_;
            connect_timer_ = lane()->run_at(connect_deadline_, [this] { miss_connect_deadline(); });
          }
          if (!found.ok()) return retry(base::message_of(found.status()));
          dial((*found)[tries_ % found->size()]);
        });
      });
}

void Channel::Impl::await_look_up() {
  retry_timer_ = lane()->run_after(kLookUpNs, [this] {
    if (has_look_up_answer()) return await_look_up();
    retry(fmt::format("the name service does not say where {} is", peer_.address.host));
  });
}

bool Channel::Impl::has_look_up_answer() const {
  if (look_up_ == nullptr) return false;
  const std::lock_guard lock(look_up_->mutex);
  return look_up_->answered;
}

void Channel::Impl::drop_look_up() {
  if (look_up_ == nullptr) return;
  {
    const std::lock_guard lock(look_up_->mutex);
    look_up_->lane = nullptr;
  }
  look_up_.reset();
}

void Channel::Impl::dial(const sys::Address& number) {
  Result<std::unique_ptr<sys::Stream>> stream = lane()->network()->connect(number);
  if (stream.ok() && endpoint_->tls() != nullptr) {
    stream = endpoint_->tls()->connect(*std::move(stream), peer_.address.host);
  }
  if (!stream.ok()) return retry(base::message_of(stream.status()));
  watched_ = (*stream)->connecting_interest();
  const Status watched = lane()->watch(**stream, this, watched_);
  if (!watched.ok()) return retry(base::message_of(watched));
  stream_ = *std::move(stream);
  state_ = State::kConnecting;
  // A kernel whose first packets are lost tries again after ever longer times.
  const int64_t patience = endpoint_->options().keepalive_timeout_ms * sys::kMillisecond;
  try_timer_ = lane()->run_after(patience, [this, patience] {
    retry(fmt::format("it gave no sign of life for {:.1f} s", seconds(patience)));
  });
}

void Channel::Impl::on_io(const sys::Event&) {
  const Result<bool> is_connected = stream_->connected();
  if (!is_connected.ok()) {
    const Status& why = is_connected.status();
    return why.code() == StatusCode::kUnavailable ? retry(base::message_of(why)) : refused(why);
  }
  if (*is_connected) return say_hello();
  const sys::Interest wanted = stream_->connecting_interest();
  if (wanted == watched_) return;
  watched_ = wanted;
  const Status status = lane()->rewatch(*stream_, wanted);
  if (!status.ok()) retry(base::message_of(status));
}

void Channel::Impl::say_hello() {
  lane()->cancel_timer(try_timer_);
  lane()->unwatch(*stream_);
  const Status opened = link_.open(std::move(stream_));
  if (!opened.ok()) return retry(base::message_of(opened));
  state_ = State::kShaking;
  if (last_failure_ == kNoAnswer) {
    last_failure_ = "it accepted the connection but did not answer the handshake";
  }
  const Identity& me = endpoint_->identity();
  wire::FrameHeader header;
  header.method = wire::Method::kHello;
  wire::Hello hello{.cluster_id = me.cluster_id,
                    .incarnation = me.incarnation,
                    .lane = peer_.lane,
                    .task = me.task,
                    .peer_task = peer_.task};
  if (resumes()) {
    hello.client_high = resume_.client_high;
    hello.client_low = resume_.client_low;
    hello.session = session_;
    hello.confirmed = received_;
    hello.attempt = ++attempt_;
    hello.resume_ms = static_cast<uint32_t>(endpoint_->options().resume_ms);
  }
  link_.send(header, wire::encode_hello(hello));
}

void Channel::Impl::retry_after(int64_t pause_ns) {
  retry_timer_ = lane()->run_after(pause_ns, [this] { attempt(); });
}

void Channel::Impl::retry(const std::string& why) {
  last_failure_ = why;
  drop_look_up();
  drop_stream();
  link_.close();
  state_ = State::kIdle;
  // A quarter more or less, so that those who lost one peer do not all come back at once.
  const uint64_t seeds[] = {endpoint_->identity().incarnation, tries_};
  const auto noise = static_cast<int64_t>(base::hash64(seeds, sizeof(seeds)) % 512);
  retry_after(retry_ns_ * (768 + noise) / 1024);
  retry_ns_ = std::min(2 * retry_ns_, kRetryMaxNs);
}

/// The peer does not want this side, or is not whom it should be.
void Channel::Impl::refused(const Status& why) {
  const Status error = base::with_context(why, fmt::format("refused by {}", peer_text()));
  if (resuming_) {
    stop_connecting();
    return gone(error);
  }
  if (!kept_) return finish_connect(error);
  drop_stream();
  link_.close();
  state_ = State::kIdle;
  // It may be restarted with what is missing.
  retry_after(kRefusedRetryNs);
  hear_(error);
}

void Channel::Impl::stop_connecting() {
  lane()->cancel_timer(retry_timer_);
  drop_look_up();
  drop_stream();
  link_.close();
  state_ = State::kIdle;
}

void Channel::Impl::drop_stream() {
  if (stream_ == nullptr) return;
  lane()->cancel_timer(try_timer_);
  lane()->unwatch(*stream_);
  stream_.reset();
}

void Channel::Impl::finish_connect(const Status& outcome) {
  if (kept_ && outcome.ok()) {
    retry_ns_ = kRetryFirstNs;
    return hear_(outcome);
  }
  if (!connect_done_) return;
  lane()->cancel_timer(connect_timer_);
  lane()->cancel_timer(retry_timer_);
  if (!outcome.ok()) {
    drop_look_up();
    drop_stream();
    link_.close();
    state_ = State::kIdle;
  }
  base::Function<void(const Status&)> done = std::move(connect_done_);
  connect_done_ = nullptr;
  done(outcome);
}

Status Channel::Impl::shaken(std::string_view meta) {
  const uint64_t earlier_incarnation = ack_.incarnation;
  SR_ASSIGN_OR_RETURN(ack_, wire::decode_hello_ack(meta));
  if (ack_.version < wire::kVersionMin || ack_.version > wire::kVersion) {
    return base::data_loss("handshake answered with version {}", ack_.version);
  }
  if (ack_.task != peer_.task || ack_.lane != peer_.lane) {
    return base::data_loss("handshake answered by {} lane {}", ack_.task, ack_.lane);
  }
  link_.set_trusted();
  state_ = State::kConnected;
  if (resumes()) {
    resumed_by(earlier_incarnation);
  } else {
    finish_connect({});
  }
  return {};
}

void Channel::Impl::close() {
  const Status why = base::cancelled("the connection to {} was closed", peer_text());
  if (connected()) {
    wire::FrameHeader goodbye;
    goodbye.method = wire::Method::kGoodbye;
    link_.send(goodbye);
  }
  link_.close();
  drop_look_up();
  drop_stream();
  lane()->cancel_timer(deadline_timer_);
  lane()->cancel_timer(retry_timer_);
  lane()->cancel_timer(confirm_timer_);
  confirm_later_ = false;
  end_resuming();
  timer_deadline_ = INT64_MAX;
  state_ = State::kIdle;
  kept_ = false;  // hear_ may be what runs
  finish_connect(why);
  fail_all(why);
}

}  // namespace sidereal::transport
