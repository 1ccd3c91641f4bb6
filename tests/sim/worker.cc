#include "tests/sim/worker.h"

#include <algorithm>
#include <map>
#include <utility>

namespace sidereal::sim {

using tensor::Tensor;

/// What one step of a track does at one lane of a ps: a pull, and a push if that went well.
class Worker::Call final : public transport::CallSink {
 public:
  Call(Worker* worker, Track* track, uint64_t writer, size_t place)
      : worker_(worker), track_(track), writer_(writer), place_(place) {}

  [[nodiscard]] bool is_open() const { return id_ != 0; }
  [[nodiscard]] bool is_well() const { return is_well_; }
  /// If it cannot even begin, it is not well, and not open.
  void begin(Ask ask, uint64_t number);
  void done(const Status& status, std::span<Tensor> fetches) override;

 private:
  void count(const Status& status);
  void check(std::span<Tensor> fetches);

  Worker* const worker_;
  Track* const track_;
  const uint64_t writer_;
  const size_t place_;
  Ask ask_ = Ask::kPull;
  uint64_t id_ = 0;
  bool is_well_ = true;
  uint64_t number_ = 0;  // of the last push
  int64_t deadline_ = 0;
  int64_t bytes_ = 0;
  Tensor feed_;
  // What is known of the writer's pushes here.
  uint64_t life_ = 0;
  uint64_t pushed_ = 0;  // the last push that was acknowledged in this life
};

/// Pulls at some places at once, thinks, pushes where that went well, thinks, and begins again.
class Worker::Track {
 public:
  Track(Worker* worker, uint64_t writer) : worker_(worker) {
    for (size_t i = 0; i < worker->channels_.size(); ++i) {
      calls_.push_back(std::make_unique<Call>(worker, this, writer, i));
    }
    later(worker_->random().around(worker_->scenario().think_ns));
  }

  [[nodiscard]] bool is_open() const {
    return std::any_of(calls_.begin(), calls_.end(), [](const auto& c) { return c->is_open(); });
  }

  /// A call of the step has ended.
  void ended() {
    if (is_beginning_ || is_open()) return;
    const size_t before = step_.size();
    std::erase_if(step_, [](const Call* call) { return !call->is_well(); });
    const bool was_pull = std::exchange(ask_, Ask::kPull) == Ask::kPull;
    if (was_pull && !step_.empty()) ask_ = Ask::kPush;
    const int64_t think = worker_->random().around(worker_->scenario().think_ns);
    later(step_.size() == before ? think : 10 * sys::kMillisecond + think);
  }

 private:
  void later(int64_t ns) {
    worker_->lane()->run_after(ns, [this] { begin(); });
  }

  void begin() {
    if (worker_->is_quiet_) return;
    if (ask_ == Ask::kPull) choose();
    is_beginning_ = true;
    for (Call* const call : step_) call->begin(ask_, ask_ == Ask::kPush ? ++number_ : 0);
    is_beginning_ = false;
    ended();
  }

  /// Some places that follow each other: mostly lanes of one ps.
  void choose() {
    sys::sim::Rng& rng = worker_->random();
    const auto most = std::min(calls_.size(), static_cast<size_t>(worker_->scenario().spread));
    const auto count = 1 + rng.below(most);
    const auto first = rng.below(calls_.size());
    step_.clear();
    for (size_t i = 0; i < count; ++i) {
      step_.push_back(calls_[(first + i) % calls_.size()].get());
    }
  }

  Worker* const worker_;
  std::vector<std::unique_ptr<Call>> calls_;  // by place
  std::vector<Call*> step_;                   // those of the step
  Ask ask_ = Ask::kPull;
  bool is_beginning_ = false;
  uint64_t number_ = 0;  // of the last push, anywhere
};

void Worker::Call::begin(Ask ask, uint64_t number) {
  const Scenario& scenario = worker_->scenario();
  sys::sim::Rng& rng = worker_->random();
  ask_ = ask;
  const int64_t bytes =
      rng.between(0, rng.chance(scenario.large) ? scenario.bytes_large : scenario.bytes_small);
  deadline_ =
      worker_->lane()->now() + rng.between(scenario.deadline_ns_min, scenario.deadline_ns_max);
  transport::CallOptions what{
      .session = writer_, .kind = static_cast<uint16_t>(ask), .deadline_ns = deadline_};
  if (ask == Ask::kPush) {
    what.step = number_ = number;
    feed_ = pattern(bytes, number);
  } else {
    what.step = static_cast<uint64_t>(bytes);
    bytes_ = bytes;
  }
  transport::Channel& channel = *worker_->channels_[place_];
  const Result<uint64_t> call =
      channel.call(what, std::span(&feed_, ask == Ask::kPush ? 1 : 0), this);
  is_well_ = call.ok();
  if (!call.ok()) {
    ++(call.status().code() == StatusCode::kResourceExhausted ? worker_->outcomes_.no_room
                                                              : worker_->outcomes_.lost);
    return;
  }
  id_ = *call;
  if (rng.chance(scenario.cancelled)) {
    worker_->lane()->run_after(rng.around(20 * sys::kMillisecond), [this, id = id_] {
      if (id == id_) worker_->channels_[place_]->cancel(id);
    });
  }
}

void Worker::Call::done(const Status& status, std::span<Tensor> fetches) {
  id_ = 0;
  if (worker_->is_ending_) return;
  count(status);
  const int64_t late_by = worker_->lane()->now() - deadline_ - worker_->slack_ns_;
  if (late_by > 100 * sys::kMillisecond) {
    worker_->ledger()->complain("a call of writer {} ended {} ms after its deadline", writer_,
                                late_by / sys::kMillisecond);
  }
  is_well_ = status.ok();
  if (status.ok()) check(fetches);
  if (ask_ == Ask::kPush && status.ok()) ++worker_->done_;
  feed_ = Tensor();
  track_->ended();
}

void Worker::Call::count(const Status& status) {
  Outcomes& all = worker_->outcomes_;
  switch (status.code()) {
    case StatusCode::kOk:
      return void(++all.ok);
    case StatusCode::kInvalidArgument:
      return void(++all.refused);
    case StatusCode::kDeadlineExceeded:
      return void(++all.late);
    case StatusCode::kCancelled:
      return void(++all.cancelled);
    case StatusCode::kUnavailable:
      return void(++all.lost);
    case StatusCode::kAborted:
      return void(++all.unknown);
    default:
      worker_->ledger()->complain("a call of writer {} ended with {}", writer_, status.ToString());
  }
}

void Worker::Call::check(std::span<Tensor> fetches) {
  const uint64_t life = worker_->channels_[place_]->peer_incarnation();
  if (std::exchange(life_, life) != life) pushed_ = 0;
  if (ask_ == Ask::kPush) {
    worker_->ledger()->acknowledged(writer_, number_, life);
    pushed_ = number_;
    return;
  }
  if (fetches.size() != 2 || fetches[0].dtype() != tensor::DType::kUInt64 ||
      fetches[1].num_elements() != bytes_) {
    return worker_->ledger()->complain("a pull of writer {} got something else", writer_);
  }
  const uint64_t last = fetches[0].data<const uint64_t>()[0];
  if (!is_pattern(fetches[1], last)) {
    worker_->ledger()->complain("an answer arrived with other bytes than it left with");
  }
  if (last < pushed_) {
    worker_->ledger()->complain("writer {} was told that push {} is done, and then saw push {}",
                                writer_, pushed_, last);
  }
}

Worker::Worker(const Context& context, sys::sim::Host* host, int index, uint64_t number,
               const std::vector<sys::sim::Host*>& ps)
    : Process(context, host, {.task = worker_name(index)}) {
  for (size_t i = 0; i < ps.size(); ++i) {
    for (int lane = 0; lane < scenario().lanes; ++lane) {
      channels_.push_back(transport::Channel::create(
          endpoint(),
          {.task = ps_name(static_cast<int>(i)),
           .lane = static_cast<uint32_t>(lane),
           .address = {ps[i]->address(), kPort + lane}},
          scenario().resume ? transport::Resume::draw(node()->random()) : transport::Resume()));
      channels_.back()->keep_connected([](const Status&) {});
    }
  }
  for (int i = 0; i < scenario().tracks; ++i) {
    tracks_.push_back(std::make_unique<Track>(this, number * 8 + static_cast<uint64_t>(i)));
  }
  node()->drive(this);
}

Worker::~Worker() {
  is_ending_ = true;
  channels_.clear();
}

Outcomes Worker::outcomes() const {
  Outcomes out = outcomes_;
  for (const auto& channel : channels_) out.resumed += channel->resumed();
  return out;
}

void Worker::check_idle() {
  for (const auto& channel : channels_) {
    if (channel->pending() > 0) {
      ledger()->complain("{} calls of {} never ended", channel->pending(), lane()->name());
    }
  }
  for (const auto& track : tracks_) {
    if (track->is_open()) ledger()->complain("a call of {} never ended", lane()->name());
  }
}

}  // namespace sidereal::sim
