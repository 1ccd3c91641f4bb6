#include "tests/sim/worker.h"

#include <algorithm>
#include <map>
#include <utility>

namespace sidereal::sim {

using tensor::Tensor;

void Outcomes::add(const Outcomes& other) {
  ok += other.ok;
  refused += other.refused;
  late += other.late;
  cancelled += other.cancelled;
  lost += other.lost;
  unknown += other.unknown;
  no_room += other.no_room;
  resumed += other.resumed;
}

/// Pulls, pushes, thinks, and begins again. One call at a time.
class Worker::Track final : public transport::CallSink {
 public:
  Track(Worker* worker, uint64_t writer) : worker_(worker), writer_(writer) {
    seen_.resize(worker->channels_.size());
    later(worker_->random().around(worker_->scenario().think_ns));
  }

  [[nodiscard]] bool is_open() const { return call_ != 0; }

  void done(const Status& status, std::span<Tensor> fetches) override {
    call_ = 0;
    if (worker_->is_ending_) return;
    count(status);
    const int64_t late_by = worker_->lane()->now() - deadline_ - worker_->slack_ns_;
    if (late_by > 100 * sys::kMillisecond) {
      worker_->ledger()->complain("a call of writer {} ended {} ms after its deadline", writer_,
                                  late_by / sys::kMillisecond);
    }
    if (status.ok()) check(fetches);
    if (ask_ == Ask::kPush && status.ok()) ++worker_->done_;
    feed_ = Tensor();
    ask_ = ask_ == Ask::kPull && status.ok() ? Ask::kPush : Ask::kPull;
    const int64_t think = worker_->scenario().think_ns;
    later(status.ok() ? worker_->random().around(think)
                      : 10 * sys::kMillisecond + worker_->random().around(think));
  }

 private:
  /// What is known of the writer's pushes at a ps.
  struct Seen {
    uint64_t life = 0;
    uint64_t pushed = 0;  // the last push that was acknowledged in this life
  };

  void later(int64_t ns) {
    worker_->lane()->run_after(ns, [this] { begin(); });
  }

  void begin() {
    if (worker_->is_quiet_) return;
    const Scenario& scenario = worker_->scenario();
    sys::sim::Rng& rng = worker_->random();
    if (ask_ == Ask::kPull) ps_ = rng.below(worker_->channels_.size());
    transport::Channel& channel = *worker_->channels_[ps_];
    const int64_t bytes =
        rng.between(0, rng.chance(scenario.large) ? scenario.bytes_large : scenario.bytes_small);
    deadline_ =
        worker_->lane()->now() + rng.between(scenario.deadline_ns_min, scenario.deadline_ns_max);
    transport::CallOptions what{
        .session = writer_, .kind = static_cast<uint16_t>(ask_), .deadline_ns = deadline_};
    if (ask_ == Ask::kPush) {
      what.step = ++number_;
      feed_ = pattern(bytes, number_);
    } else {
      what.step = static_cast<uint64_t>(bytes);
      bytes_ = bytes;
    }
    const Result<uint64_t> call =
        channel.call(what, std::span(&feed_, ask_ == Ask::kPush ? 1 : 0), this);
    if (!call.ok()) {
      ++(call.status().code() == StatusCode::kResourceExhausted ? worker_->outcomes_.no_room
                                                                : worker_->outcomes_.lost);
      ask_ = Ask::kPull;
      return later(20 * sys::kMillisecond);
    }
    call_ = *call;
    if (rng.chance(scenario.cancelled)) {
      worker_->lane()->run_after(rng.around(20 * sys::kMillisecond), [this, id = call_] {
        if (id == call_) worker_->channels_[ps_]->cancel(id);
      });
    }
  }

  void count(const Status& status) {
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
        worker_->ledger()->complain("a call of writer {} ended with {}", writer_,
                                    status.ToString());
    }
  }

  void check(std::span<Tensor> fetches) {
    Seen& seen = seen_[ps_];
    const uint64_t life = worker_->channels_[ps_]->peer_incarnation();
    if (std::exchange(seen.life, life) != life) seen.pushed = 0;
    if (ask_ == Ask::kPush) {
      worker_->ledger()->acknowledged(writer_, number_, life);
      seen.pushed = number_;
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
    if (last < seen.pushed) {
      worker_->ledger()->complain("writer {} was told that push {} is done, and then saw push {}",
                                  writer_, seen.pushed, last);
    }
  }

  Worker* const worker_;
  const uint64_t writer_;
  Ask ask_ = Ask::kPull;
  size_t ps_ = 0;
  uint64_t call_ = 0;
  uint64_t number_ = 0;
  int64_t deadline_ = 0;
  int64_t bytes_ = 0;
  Tensor feed_;
  std::vector<Seen> seen_;  // by ps
};

Worker::Worker(sys::sim::World* world, sys::sim::Host* host, const Scenario& scenario,
               Ledger* ledger, int index, uint64_t number, const std::vector<sys::sim::Host*>& ps)
    : Process(world, host, scenario, ledger, worker_name(index)) {
  for (size_t i = 0; i < ps.size(); ++i) {
    channels_.push_back(transport::Channel::create(
        endpoint(),
        {.task = ps_name(static_cast<int>(i)), .lane = 0, .address = {ps[i]->address(), kPort}},
        scenario.resume ? transport::Resume::draw(node()->random()) : transport::Resume()));
    channels_.back()->keep_connected([](const Status&) {});
  }
  for (int i = 0; i < scenario.tracks; ++i) {
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
