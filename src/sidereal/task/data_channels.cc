#include "sidereal/task/data_channels.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sidereal/sys/clock.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/failure.pb.h"

namespace sidereal::task {

using tensor::Tensor;

namespace {

/// How long a port that was found is tried before it is asked for again.
constexpr int64_t kTry = sys::kSecond;
/// Receive requests that have ended and are kept for others, and the most calls of these.
constexpr size_t kIdleReceiveRequestsMax = 4096;
constexpr size_t kIdleCallsMax = 64;

}  // namespace

DataChannel::DataChannel(Task* task, transport::Endpoint* endpoint, Peer peer, Find find,
                         Learn learn, sys::Random* random)
    : task_(task),
      endpoint_(endpoint),
      peer_(std::move(peer)),
      find_(std::move(find)),
      learn_(std::move(learn)),
      random_(random) {}

DataChannel::~DataChannel() {
  *alive_ = false;
  channel_ = nullptr;
  for (const Waiting& one : waiting_) one.sink->done(base::cancelled("the task stops"), {});
}

void DataChannel::Sink::done(const Status& status, std::span<Tensor> fetches) {
  call_ = 0;
  ended(from_call(status, channel_->peer_.task), fetches);
}

void DataChannel::call(uint64_t incarnation, const transport::CallOptions& what,
                       std::span<const Tensor> feeds, Sink* sink) {
  sink->channel_ = this;
  // A connection that was lost may go on, unless the task has been started again meanwhile: find().
  const bool is_connected = channel_ != nullptr && channel_->connected();
  if (is_connected && waiting_.empty()) {
    const Status sent = send(incarnation, what, feeds, sink);
    if (sent.ok()) return;
    if (sent.code() != StatusCode::kResourceExhausted) return refuse(sink, sent);
  }
  waiting_.push_back({.incarnation = incarnation,
                      .what = what,
                      .extra = std::string(what.extra),
                      .feeds = {feeds.begin(), feeds.end()},
                      .sink = sink});
  if (is_connected || connecting_) return;
  deadline_ns_ =
      endpoint_->lane()->now() + endpoint_->options().connect_deadline_ms * sys::kMillisecond;
  find(incarnation);
}

Status DataChannel::send(uint64_t incarnation, const transport::CallOptions& what,
                         std::span<const Tensor> feeds, Sink* sink) {
  if (incarnation != 0 && incarnation != channel_->peer_incarnation()) {
    return wrong_incarnation(peer_.task, peer_.shown, channel_->peer_incarnation(), incarnation);
  }
  SR_ASSIGN_OR_RETURN(sink->call_, channel_->call(what, feeds, sink));
  return {};
}

void DataChannel::refuse(Sink* sink, const Status& why) {
  const bool posted =
      task_->post_urgent(endpoint_->lane()->index(), [sink, why] { sink->done(why, {}); });
  if (!posted) sink->done(why, {});
}

void DataChannel::cancel(Sink* sink) {
  if (sink->call_ != 0) {
    static_cast<void>(channel_->cancel(sink->call_));
    return;
  }
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (at->sink != sink) continue;
    waiting_.erase(at);
    return refuse(sink, base::cancelled("the call was cancelled"));
  }
}

void DataChannel::find(uint64_t incarnation) {
  connecting_ = true;
  incarnation_ = incarnation;
  find_(peer_.task, peer_.lane, incarnation,
        [this, alive = alive_](const Result<LaneAddress>& found) {
          if (!*alive) return;
          if (found.ok()) {
            take(*found);
          } else {
            fail(found.status());
          }
        });
}

void DataChannel::take(const LaneAddress& found) {
  learn_(peer_.task, found.lanes);
  if (channel_ != nullptr && channel_->accepts_calls()) {
    const uint64_t known = channel_->peer_incarnation();
    if (found.incarnation == 0 || found.incarnation == known) {
      connecting_ = false;
      return send_waiting();
    }
    channel_->give_up(base::aborted(
        "{} was restarted; whether it has done what it was sent before is unknown", peer_.shown));
  }
  connect(found);
}

void DataChannel::connect(const LaneAddress& found) {
  // Made anew: the peer may have come back at another port.
  channel_ = transport::Channel::create(
      endpoint_,
      {.task = peer_.task, .lane = static_cast<uint32_t>(found.lane), .address = found.address},
      transport::Resume::draw(*random_));
  channel_->on_room([this] { send_waiting(); });
  channel_->on_break([this](const Status& /*why*/) { broken(); });
  // Who was found is tried, also where this lane was away until after the deadline.
  channel_->connect(endpoint_->lane()->now() + kTry,
                    [this](const Status& status) { connected(status); });
}

void DataChannel::connected(const Status& status) {
  if (!status.ok() && endpoint_->lane()->now() < deadline_ns_ &&
      (status.code() == StatusCode::kUnavailable ||
       status.code() == StatusCode::kDeadlineExceeded)) {
    // It may have come back elsewhere since it was found.
    return find(incarnation_);
  }
  if (!status.ok()) return fail(status);
  connecting_ = false;
  send_waiting();
}

/// Calls that waited for room are not among those that ended with the connection.
void DataChannel::broken() {
  if (waiting_.empty() || connecting_) return;
  connecting_ = true;
  deadline_ns_ =
      endpoint_->lane()->now() + endpoint_->options().connect_deadline_ms * sys::kMillisecond;
  // Not from within the connection's own callback.
  endpoint_->lane()->run_after(0, [this, alive = alive_] {
    if (*alive && !waiting_.empty()) return find(waiting_.front().incarnation);
    if (*alive) connecting_ = false;
  });
}

void DataChannel::fail(const Status& status) {
  connecting_ = false;
  for (const Waiting& one : std::exchange(waiting_, {})) one.sink->done(status, {});
}

void DataChannel::send_waiting() {
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    first.what.extra = first.extra;
    const Status sent = send(first.incarnation, first.what, first.feeds, first.sink);
    if (sent.code() == StatusCode::kResourceExhausted) return;
    if (!sent.ok()) refuse(first.sink, sent);
    waiting_.pop_front();
  }
}

/// The calls of one receive request, one for each tensor group: an answer comes when all that it
/// brings is there. It keeps itself while they are under way; then it serves for another receive
/// request.
class DataChannels::LaneReceiveRequest final : public ReceiveRequest {
 public:
  explicit LaneReceiveRequest(DataChannels* owner) : owner_(owner) {}

  void start(DataChannel* channel, const ports::TensorSource& source, uint64_t step,
             std::span<const Wanted> wanted, Requester* requester,
             base::RefPtr<LaneReceiveRequest> self) {
    channel_ = channel;
    requester_ = requester;
    step_ = step;
    status_ = {};
    self_ = std::move(self);
    missing_ = wanted.size();
    calls_.resize(std::max(calls_.size(), wanted.size()));
    for (size_t i = 0; i < wanted.size(); ++i) {
      calls_[i].receive_request = this;
      calls_[i].wanted = wanted[i];
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto extra = encode_tensors(source.incarnation, wanted[i].key);
      channel->call(source.incarnation,
                    {.step = step,
                     .kind = static_cast<uint16_t>(DataCall::kTensors),
                     .deadline_ns = transport::kNoDeadline,
                     .extra = {extra.data(), extra.size()}},
                    {}, &calls_[i]);
    }
  }

  void cancel() override {
    if (self_ == nullptr) return;
    const base::RefPtr<LaneReceiveRequest> keep = self_;
    requester_ = nullptr;
    for (Call& call : calls_) channel_->cancel(&call);
  }

 private:
  struct Call final : DataChannel::Sink {
    Result<Tensor> allocate(int /*position*/, tensor::DType dtype,
                            const tensor::Shape& shape) override {
      if (receive_request->requester_ != nullptr)
        return receive_request->requester_->allocate(dtype, shape);
      return base::cancelled("nobody wants the tensor any more");
    }
    void ended(const Status& status, std::span<Tensor> fetches) override {
      receive_request->end(wanted, status, fetches);
    }
    LaneReceiveRequest* receive_request = nullptr;
    Wanted wanted;
  };

  void end(const Wanted& wanted, const Status& status, std::span<Tensor> values) {
    if (status_.ok()) status_ = status;
    const bool is_whole = values.size() == wanted.count;
    if (status.ok() && is_whole && requester_ != nullptr) {
      requester_->arrived(step_, wanted.key, values);
    } else if (status.ok() && !is_whole && status_.ok()) {
      status_ = base::data_loss("an answer of {} tensors to a receive request for {}",
                                values.size(), wanted.count);
    }
    if (--missing_ > 0) return;
    if (requester_ != nullptr) requester_->ended(step_, this, status_);
    const base::RefPtr<LaneReceiveRequest> self = std::move(self_);
    if (calls_.size() > kIdleCallsMax) return;
    if (owner_->idle_receive_requests_.size() < kIdleReceiveRequestsMax)
      owner_->idle_receive_requests_.put(self);
  }

  DataChannels* const owner_;
  DataChannel* channel_ = nullptr;
  Requester* requester_ = nullptr;  // nullptr: nobody wants to hear of it any more
  uint64_t step_ = 0;
  std::vector<Call> calls_;  // More than are under way, maybe.
  size_t missing_ = 0;
  Status status_;
  base::RefPtr<LaneReceiveRequest> self_;
};

namespace {

/// Gets the answer of a call whose answer says nothing.
class Unheard final : public DataChannel::Sink {
 public:
  void ended(const Status& /*status*/, std::span<Tensor> /*fetches*/) override { delete this; }
};

/// What an answer says beside its tensors.
class Tail {
 public:
  /// What was pushed goes to `answered`; the rest is kept.
  void take(std::string_view bytes, AnsweredPushes* answered) {
    Pushed pushed;
    status_ = take_pushed(&bytes, &pushed);
    if (status_.ok()) answered->note(pushed);
    rest_ = std::string(bytes);
  }
  /// Adds it, if anything.
  void add_to(ProgramResult* result) const {
    if (!status_.ok()) result->status = status_;
    if (!status_.ok() || rest_.empty()) return;
    session::v1::ProgramTail tail;
    if (!tail.ParseFromString(rest_)) {
      result->status = base::data_loss("the end of an answer cannot be read");
      return;
    }
    from_proto(&tail, result);
  }

 private:
  Status status_;
  std::string rest_;
};

/// A part of a step on another task.
class DataPart final : public DataChannels::Part,
                       public DataChannel::Sink,
                       public std::enable_shared_from_this<DataPart> {
 public:
  DataPart(DataChannels* channels, Task* task, int lane, std::string peer, uint64_t incarnation,
           uint64_t step, std::function<void(ProgramResult)> done)
      : channels_(channels),
        task_(task),
        lane_(lane),
        peer_(std::move(peer)),
        incarnation_(incarnation),
        step_(step),
        done_(std::move(done)) {}

  void start(ProgramCall call) {
    const bool posted =
        task_->post_urgent(lane_, [self = shared_from_this(), call = std::move(call)] {
          self->self_ = self;
          const std::string extra =
              encode_run({.trace = call.trace, .number = call.number, .closure = call.closure});
          self->channel()->call(self->incarnation_,
                                {.program = call.program,
                                 .step = call.step,
                                 .session = call.session,
                                 .kind = static_cast<uint16_t>(DataCall::kRun),
                                 .deadline_ns = transport::kNoDeadline,
                                 .extra = extra},
                                call.feeds, self.get());
        });
    if (!posted) give({.status = base::cancelled("{} is stopping", task_->name())});
  }

  void cancel() override { tell(DataCall::kCancelStep); }

  void end() override {
    // Without an answer to wait for any more, its own call ends at once.
    tell(DataCall::kEndStep);
  }

  void lose(const Status& why) override {
    static_cast<void>(task_->post_urgent(lane_, [self = shared_from_this(), why] {
      if (self->answered_) return;
      self->give({.status = why, .derived = self->ended_});
      self->channel()->cancel(self.get());
    }));
  }

  void on_aside(const transport::Aside& aside) override {
    tail_.take(aside.extra, &task_->answered_pushes(lane_));
    derived_ = aside.derived;
  }

  void ended(const Status& status, std::span<Tensor> fetches) override {
    ProgramResult result;
    result.status = status;
    result.derived = derived_ || (ended_ && !status.ok());
    result.fetches.assign(std::make_move_iterator(fetches.begin()),
                          std::make_move_iterator(fetches.end()));
    tail_.add_to(&result);
    give(std::move(result));
    answered_ = true;
    const std::shared_ptr<DataPart> last = std::move(self_);
  }

 private:
  DataChannel* channel() { return channels_->to(peer_, lane_hint(step_)); }

  void tell(DataCall kind) {
    static_cast<void>(task_->post_urgent(lane_, [self = shared_from_this(), kind] {
      DataChannel* const channel = self->channel();
      channel->call(
          self->incarnation_,
          {.step = self->step_, .kind = static_cast<uint16_t>(kind), .is_repeatable = true}, {},
          new Unheard);
      if (kind != DataCall::kEndStep) return;
      self->ended_ = true;
      if (!self->answered_) channel->cancel(self.get());
    }));
  }

  void give(ProgramResult result) {
    const auto done = std::exchange(done_, nullptr);
    if (done) done(std::move(result));
  }

  DataChannels* const channels_;
  Task* const task_;
  const int lane_;
  const std::string peer_;
  const uint64_t incarnation_;
  const uint64_t step_;
  std::function<void(ProgramResult)> done_;
  Tail tail_;
  bool derived_ = false;
  bool ended_ = false;
  bool answered_ = false;
  std::shared_ptr<DataPart> self_;  // While its call is under way.
};

/// A program that another task runs alone. It keeps itself while it is under way.
class LaneRun final : public Peers::Run, public DataChannel::Sink {
 public:
  LaneRun(DataChannel* channel, Peers::RunDone* done, AnsweredPushes* answered)
      : channel_(channel), done_(done), answered_(answered) {}

  void start(const transport::CallOptions& what, std::span<const Tensor> feeds,
             std::shared_ptr<LaneRun> self) {
    self_ = std::move(self);
    step_ = what.step;
    channel_->call(0, what, feeds, this);
  }
  void cancel() override {
    if (self_ == nullptr) return;
    channel_->call(0,
                   {.step = step_,
                    .kind = static_cast<uint16_t>(DataCall::kCancelStep),
                    .is_repeatable = true},
                   {}, new Unheard);
  }
  void drop() override {
    if (self_ != nullptr) channel_->cancel(this);
  }
  Result<Tensor> allocate(int position, tensor::DType dtype, const tensor::Shape& shape) override {
    return done_->allocate(position, dtype, shape);
  }
  void on_aside(const transport::Aside& aside) override { tail_.take(aside.extra, answered_); }
  void ended(const Status& status, std::span<Tensor> fetches) override {
    const std::shared_ptr<LaneRun> last = std::move(self_);
    ProgramResult result{.status = status};
    tail_.add_to(&result);
    done_->done(result, fetches);
  }

 private:
  DataChannel* const channel_;
  Peers::RunDone* const done_;
  AnsweredPushes* const answered_;
  uint64_t step_ = 0;
  Tail tail_;
  std::shared_ptr<LaneRun> self_;
};

}  // namespace

DataChannels::DataChannels(Task* task, transport::Endpoint* endpoint, DataChannel::Find find,
                           std::function<std::string(const std::string& task)> describe,
                           sys::Random* random)
    : task_(task),
      endpoint_(endpoint),
      find_(std::move(find)),
      describe_(std::move(describe)),
      random_(random),
      next_run_(random->next()) {}
DataChannels::~DataChannels() = default;

DataChannel* DataChannels::to(std::string_view task, int lane) {
  auto known = tasks_.find(absl::string_view(task.data(), task.size()));
  if (known == tasks_.end()) known = tasks_.try_emplace(std::string(task)).first;
  ToTask& peer = known->second;
  if (peer.lanes > 0) lane %= peer.lanes;
  std::unique_ptr<DataChannel>& channel = peer.by_lane[lane];
  if (channel == nullptr) {
    const std::string& name = known->first;
    channel = std::make_unique<DataChannel>(
        task_, endpoint_, DataChannel::Peer{.task = name, .lane = lane, .shown = describe_(name)},
        find_, [this](const std::string& found, int lanes) { learn(found, lanes); }, random_);
  }
  return channel.get();
}

void DataChannels::learn(const std::string& task, int lanes) {
  ToTask& peer = tasks_[task];
  if (std::exchange(peer.lanes, lanes) == lanes) return;
  // By number: the order of the map is another one in each run.
  std::map<int, std::unique_ptr<DataChannel>> before;
  for (auto& [number, channel] : std::exchange(peer.by_lane, {})) {
    before[number] = std::move(channel);
  }
  for (auto& [number, channel] : before) {
    const bool is_first = peer.by_lane.try_emplace(number % lanes, std::move(channel)).second;
    // Calls that were made before may still be under way on it.
    if (!is_first) peer.others.push_back(std::move(channel));
  }
}

base::RefPtr<Peers::ReceiveRequest> DataChannels::ask(const ports::TensorSource& source,
                                                      uint64_t step, std::span<const Wanted> wanted,
                                                      Requester* requester) {
  base::RefPtr<LaneReceiveRequest> receive_request = idle_receive_requests_.take();
  if (receive_request == nullptr) receive_request = base::RefPtr<LaneReceiveRequest>::make(this);
  const std::string_view device = source.device;
  receive_request->start(to(device.substr(0, device.find("/device:")), lane_hint(step)), source,
                         step, wanted, requester, receive_request);
  return receive_request;
}

std::shared_ptr<Peers::Run> DataChannels::run(const std::string& task, const Call& call,
                                              std::span<const Tensor> feeds, RunDone* done) {
  auto run = std::make_shared<LaneRun>(to(task, call.lane), done,
                                       &task_->answered_pushes(endpoint_->lane()->index()));
  const std::string extra = encode_run({.trace = call.trace,
                                        .whole = true,
                                        .lane = call.lane,
                                        .number = call.number,
                                        .closure = call.closure});
  run->start({.program = call.program,
              .step = next_run_++,
              .session = call.session,
              .kind = static_cast<uint16_t>(DataCall::kRun),
              .deadline_ns = transport::kNoDeadline,
              .extra = extra,
              .is_repeatable = call.repeatable},
             feeds, run);
  return run;
}

std::shared_ptr<DataChannels::Part> DataChannels::run(const std::string& task, uint64_t incarnation,
                                                      ProgramCall call,
                                                      std::function<void(ProgramResult)> done) {
  auto part = std::make_shared<DataPart>(this, task_, endpoint_->lane()->index(), task, incarnation,
                                         call.step, std::move(done));
  part->start(std::move(call));
  return part;
}

}  // namespace sidereal::task
