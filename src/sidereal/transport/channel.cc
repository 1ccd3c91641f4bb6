#include "sidereal/transport/channel.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/transport/link.h"

namespace sidereal::transport {
namespace {

constexpr int64_t kRetryFirstNs = 5 * sys::kMillisecond;
constexpr int64_t kRetryMaxNs = 500 * sys::kMillisecond;
constexpr int64_t kRefusedRetryNs = 5 * sys::kSecond;
constexpr const char* kNoAnswer = "no answer";
constexpr int64_t kLookUpNs = 10 * sys::kSecond;

/// What is known to both the lane and whoever answers a look-up.
struct Question {
  std::mutex mutex;
  lane::Lane* lane = nullptr;  // nullptr: nobody wants the answer any more; changed under the mutex
};

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

class Channel::Impl final : public Link::Owner, public lane::IoHandler, public lane::StopHook {
 public:
  Impl(Endpoint* endpoint, Peer peer)
      : endpoint_(endpoint), peer_(std::move(peer)), link_(endpoint, this, false) {
    lane()->add_stop_hook(this);
  }
  ~Impl() override {
    close();
    lane()->remove_stop_hook(this);
  }

  void connect(int64_t deadline_ns, base::Function<void(const Status&)> done);
  void keep_connected(base::Function<void(const Status&)> hear);
  Result<uint64_t> call(const CallOptions& what, std::span<const tensor::Tensor> feeds,
                        CallSink* sink);
  bool cancel(uint64_t call_id);
  void close();

  [[nodiscard]] bool connected() const { return state_ == State::kConnected; }
  [[nodiscard]] int pending() const { return pending_count_; }
  [[nodiscard]] const Peer& peer() const { return peer_; }
  [[nodiscard]] const Link& link() const { return link_; }
  [[nodiscard]] const wire::HelloAck& ack() const { return ack_; }
  void on_break(base::Function<void(const Status&)> hook) { break_hook_ = std::move(hook); }
  void on_room(base::Function<void()> hook) { room_hook_ = std::move(hook); }

 private:
  enum class State { kIdle, kConnecting, kShaking, kConnected };

  struct Pending {
    CallSink* sink = nullptr;  // nullptr: free
    uint32_t generation = 1;
    int64_t deadline = 0;
    int64_t started = 0;
  };

  [[nodiscard]] lane::Lane* lane() const { return endpoint_->lane(); }
  /// "/job:ps/task:0 at 127.0.0.1:2222".
  [[nodiscard]] std::string peer_text() const {
    return fmt::format("{} at {}", peer_.task, peer_.address.to_string());
  }

  // Connecting.
  void attempt();
  void look_up();
  void drop_question();
  void dial(const sys::Address& number);
  void on_io(const sys::Event& event) override;
  void on_lane_stop() override { close(); }
  void say_hello();
  void retry(const std::string& why);
  void retry_after(int64_t pause_ns);
  void refused(const Status& why);
  void drop_stream();
  void finish_connect(const Status& outcome);
  Status shaken(std::string_view meta);

  // Link::Owner.
  Status on_frame(const wire::FrameHeader& header, std::string_view meta) override;
  Result<bool> on_begin(const wire::FrameHeader& header) override;
  Result<tensor::Tensor> allocate(const wire::FrameHeader& header, int position,
                                  const wire::SlotEntry& slot) override;
  void on_no_place(const wire::FrameHeader& header, const Status& why) override;
  void on_message(const wire::FrameHeader& header, std::span<const wire::SlotEntry> slots,
                  std::string_view extra, std::span<tensor::Tensor> tensors) override;
  void on_flushed() override;
  void on_broken(const Status& why) override;
  void lost(const Status& why);

  // Pending calls.
  Pending* find(uint64_t call_id);
  void say_aside(uint64_t call_id, const Aside& aside);
  void tell_cancelled(uint64_t call_id);
  void complete(uint64_t call_id, const Status& status, std::span<tensor::Tensor> fetches = {});
  void fail_all(const Status& why);
  void watch_deadline(int64_t deadline);
  void expire();
  [[nodiscard]] Status expired_status(const Pending& call) const;

  Endpoint* endpoint_;
  Peer peer_;
  Link link_;
  State state_ = State::kIdle;
  wire::HelloAck ack_;
  base::Function<void(const Status&)> break_hook_;
  base::Function<void()> room_hook_;
  bool wants_room_ = false;

  std::unique_ptr<sys::Stream> stream_;  // while connecting
  sys::Interest watched_;                // what it is watched for
  std::shared_ptr<Question> question_;   // while the name service is asked
  base::Function<void(const Status&)> connect_done_;
  base::Function<void(const Status&)> hear_;  // keep_connected()
  bool kept_ = false;
  uint64_t tries_ = 0;
  int64_t connect_started_ = 0;
  int64_t connect_deadline_ = 0;
  int64_t retry_ns_ = 0;
  std::string last_failure_;
  lane::TimerId retry_timer_;
  lane::TimerId try_timer_;  // while stream_ is there
  lane::TimerId connect_timer_;

  std::vector<Pending> calls_;
  std::vector<uint32_t> free_;
  int pending_count_ = 0;
  uint64_t receiving_ = 0;  // call whose payload is being read
  lane::TimerId deadline_timer_;
  int64_t timer_deadline_ = INT64_MAX;
};

// ---- Connecting ------------------------------------------------------------------------------

void Channel::Impl::connect(int64_t deadline_ns, base::Function<void(const Status&)> done) {
  SR_CHECK(state_ == State::kIdle && !connect_done_ && !kept_, "connect() on {}, which is in use",
           peer_text());
  connect_done_ = std::move(done);
  connect_started_ = lane()->now();
  connect_deadline_ =
      deadline_ns != 0
          ? deadline_ns
          : connect_started_ + endpoint_->options().connect_deadline_ms * sys::kMillisecond;
  retry_ns_ = kRetryFirstNs;
  last_failure_ = kNoAnswer;
  if (connect_deadline_ != kNoDeadline) {
    connect_timer_ = lane()->run_at(connect_deadline_, [this] {
      finish_connect(base::unavailable("cannot reach {} within {:.1f} s: {}", peer_text(),
                                       seconds(connect_deadline_ - connect_started_),
                                       last_failure_));
    });
  }
  // From a timer, so that `done` is never called from within connect().
  retry_after(0);
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
  question_ = std::make_shared<Question>();
  question_->lane = lane();
  retry_timer_ = lane()->run_after(kLookUpNs, [this] {
    retry(fmt::format("the name service does not say where {} is", peer_.address.host));
  });
  lane()->network()->look_up(
      peer_.address, [this, question = question_](const Result<std::vector<sys::Address>>& found) {
        const std::lock_guard lock(question->mutex);
        if (question->lane == nullptr) return;
        // A lane that takes nothing any more ends, or has so much to do that the timer will do.
        (void)question->lane->post([this, question, found] {
          // Who drops the question does so on the lane.
          if (question->lane == nullptr) return;
          drop_question();
          lane()->cancel_timer(retry_timer_);
          if (!found.ok()) return retry(base::message_of(found.status()));
          dial((*found)[tries_ % found->size()]);
        });
      });
}

void Channel::Impl::drop_question() {
  if (question_ == nullptr) return;
  {
    const std::lock_guard lock(question_->mutex);
    question_->lane = nullptr;
  }
  question_.reset();
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
  link_.send(header, wire::encode_hello({.cluster_id = me.cluster_id,
                                         .incarnation = me.incarnation,
                                         .lane = peer_.lane,
                                         .task = me.task,
                                         .peer_task = peer_.task}));
}

void Channel::Impl::retry_after(int64_t pause_ns) {
  retry_timer_ = lane()->run_after(pause_ns, [this] { attempt(); });
}

void Channel::Impl::retry(const std::string& why) {
  last_failure_ = why;
  drop_question();
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
  if (!kept_) return finish_connect(error);
  drop_stream();
  link_.close();
  state_ = State::kIdle;
  // It may be restarted with what is missing.
  retry_after(kRefusedRetryNs);
  hear_(error);
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
    drop_question();
    drop_stream();
    link_.close();
    state_ = State::kIdle;
  }
  base::Function<void(const Status&)> done = std::move(connect_done_);
  connect_done_ = nullptr;
  done(outcome);
}

Status Channel::Impl::shaken(std::string_view meta) {
  SR_ASSIGN_OR_RETURN(ack_, wire::decode_hello_ack(meta));
  if (ack_.version < wire::kVersionMin || ack_.version > wire::kVersion) {
    return base::data_loss("handshake answered with version {}", ack_.version);
  }
  if (ack_.task != peer_.task || ack_.lane != peer_.lane) {
    return base::data_loss("handshake answered by {} lane {}", ack_.task, ack_.lane);
  }
  link_.set_trusted();
  state_ = State::kConnected;
  finish_connect({});
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
  drop_question();
  drop_stream();
  lane()->cancel_timer(deadline_timer_);
  lane()->cancel_timer(retry_timer_);
  timer_deadline_ = INT64_MAX;
  state_ = State::kIdle;
  kept_ = false;  // hear_ may be what runs
  finish_connect(why);
  fail_all(why);
}

// ---- What the peer says ----------------------------------------------------------------------

Status Channel::Impl::on_frame(const wire::FrameHeader& header, std::string_view meta) {
  switch (header.method) {
    case wire::Method::kHelloAck:
      if (state_ != State::kShaking) return base::data_loss("HelloAck after the handshake");
      return shaken(meta);
    case wire::Method::kError: {
      const Status error = wire::error_status(header, meta);
      if (header.call_id != 0) {
        if ((header.flags & wire::kDerived) != 0) say_aside(header.call_id, {.derived = true});
        complete(header.call_id, error);
        return {};
      }
      if (state_ == State::kShaking) {
        refused(error);
      } else {
        link_.close();
        lost(error);
      }
      return {};
    }
    case wire::Method::kGoodbye:
      link_.close();
      if (state_ == State::kShaking) {
        retry("it said goodbye");
      } else {
        lost(base::unavailable("it is shutting down"));
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
  const bool may_want_tls = endpoint_->tls() == nullptr;
  retry(base::message_of(why) + (may_want_tls ? "; does it want a secret or certificates?" : ""));
}

void Channel::Impl::on_flushed() {
  if (!wants_room_ ||
      link_.send_bytes() > static_cast<size_t>(endpoint_->options().send_buffer_bytes_max) / 2) {
    return;
  }
  wants_room_ = false;
  if (room_hook_) room_hook_();
}

void Channel::Impl::lost(const Status& why) {
  state_ = State::kIdle;
  const Status error = base::unavailable("lost {}: {}", peer_text(), base::message_of(why));
  wants_room_ = false;
  fail_all(error);
  if (break_hook_) break_hook_(error);
  if (!kept_ || state_ != State::kIdle) return;
  retry_ns_ = kRetryFirstNs;
  retry_after(0);
  hear_(error);
}

// ---- Calls -----------------------------------------------------------------------------------

Result<uint64_t> Channel::Impl::call(const CallOptions& what, std::span<const tensor::Tensor> feeds,
                                     CallSink* sink) {
  if (!connected()) return base::unavailable("not connected to {}", peer_text());
  if (link_.send_bytes() > static_cast<size_t>(endpoint_->options().send_buffer_bytes_max)) {
    wants_room_ = true;
    return base::resource_exhausted(
        "{} bytes already wait to be sent to {}; send_buffer_bytes_max is {}", link_.send_bytes(),
        peer_text(), endpoint_->options().send_buffer_bytes_max);
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
  header.call_id = (uint64_t{call.generation} << 32) | at;
  header.program = what.program;
  header.step = what.step;
  header.session = what.session;
  const Status sent = link_.send(&header, {feeds, what.slots, what.forms, what.extra});
  if (!sent.ok()) return base::with_context(sent, fmt::format("call to {}", peer_text()));
  free_.pop_back();
  call.sink = sink;
  call.started = lane()->now();
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
  if (!connected() || receiving_ == call_id) return;
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
    if (calls_[i].sink != nullptr) complete((uint64_t{calls_[i].generation} << 32) | i, why);
  }
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
      const uint64_t call_id = (uint64_t{calls_[i].generation} << 32) | i;
      tell_cancelled(call_id);
      complete(call_id, expired_status(calls_[i]));
    } else {
      next = std::min(next, calls_[i].deadline);
    }
  }
  if (next != INT64_MAX) watch_deadline(next);
}

// ---- Channel ---------------------------------------------------------------------------------

std::unique_ptr<Channel> Channel::create(Endpoint* endpoint, Peer peer) {
  return std::unique_ptr<Channel>(new Channel(std::make_unique<Impl>(endpoint, std::move(peer))));
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
bool Channel::connected() const { return impl_->connected(); }
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
