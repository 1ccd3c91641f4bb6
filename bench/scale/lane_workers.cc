// Workers on a lane: connections to the data port of the ps.
#include <utility>

#include "sidereal/lane/lane.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/task/data_port.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/transport/channel.h"
#include "workers.h"

namespace sidereal::bench {

using task::DataCall;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using transport::CallOptions;
using transport::kNoDeadline;

class Lane {
 public:
  static Result<LanePtr> create(int cpu) {
    LanePtr out(new Lane());
    // Several processes share a core: to look for work longer would keep it from others.
    SR_ASSIGN_OR_RETURN(out->lane_, lane::Lane::create({.name = "workers",
                                                        .spin_us = 0,
                                                        .cpu = cpu,
                                                        .inbox_slots = 1 << 16,
                                                        .network = out->network_.get(),
                                                        .clock = out->clock_.get()}));
    out->lane_->start();
    return out;
  }
  [[nodiscard]] lane::Lane* get() const { return lane_.get(); }
  /// Does something on the lane; false when it is stopping.
  template <class Fn>
  bool post(Fn fn) {
    return lane_->post(std::move(fn));
  }
  /// Memory for what comes and is not looked at: all workers write to the same.
  Tensor scratch(int position, DType dtype, const Shape& shape) {
    const auto at = static_cast<size_t>(position);
    if (scratch_.size() <= at) scratch_.resize(at + 1);
    Tensor& held = scratch_[at];
    if (!held.defined() || held.dtype() != dtype || !(held.shape() == shape)) {
      held = Tensor::empty(dtype, shape);
    }
    return held;
  }

 private:
  std::vector<Tensor> scratch_;
  const std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  const std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::unique_ptr<lane::Lane> lane_;
};

void LaneDeleter::operator()(Lane* lane) const { delete lane; }
Result<LanePtr> make_lane(int cpu) { return Lane::create(cpu); }

namespace {

/// A connection to the ps, as that of a task.
class LaneWorker : public Worker {
 public:
  LaneWorker(Common* common, Lane* lane, WorkerOptions options)
      : common_(common),
        lane_(lane),
        options_(std::move(options)),
        steps_((options_.session << 24) | (uint64_t{1} << 63)) {}

  void start(std::function<void(Status)> done) override {
    const bool posted = lane_->post([this, done] {
      const Status made = connect(done);
      if (!made.ok()) done(made);
    });
    if (!posted) done(base::unavailable("the lane stops"));
  }
  void step() override {
    static_cast<void>(lane_->post([this] { begin_step(); }));
  }

 protected:
  /// What a call was for.
  enum class Part { kRun, kRows, kEnd };
  /// Gets the answer of one call.
  struct Sink final : transport::CallSink {
    Sink(LaneWorker* owner, Part of) : worker(owner), part(of) {}
    Result<Tensor> allocate(int position, DType dtype, const Shape& shape) override {
      return worker->lane_->scratch(position, dtype, shape);
    }
    void done(const Status& status, std::span<Tensor>) override {
      if (status.ok()) return worker->answered(part);
      worker->common_->tally.fail(base::with_context(status, worker->options_.task));
    }
    LaneWorker* worker;
    Part part;
  };

  virtual Status prepare() { return {}; }
  virtual void begin_step() = 0;
  virtual void answered(Part part) = 0;

  /// False when it failed, which the tally knows then.
  bool call(const CallOptions& what, std::span<const Tensor> feeds, Sink* sink) {
    const Result<uint64_t> id = channel_->call(what, feeds, sink);
    if (!id.ok()) common_->tally.fail(id.status());
    return id.ok();
  }
  [[nodiscard]] const Tensor& tensor_of(const Value& value) const {
    return value.is_ids ? common_->ids->next() : value.tensor;
  }

  /// Its low byte names the lane of the step: a light worker has one.
  uint64_t next_step() { return steps_ += 256; }

  Common* const common_;
  Lane* const lane_;
  const WorkerOptions options_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  int64_t began_ = 0;

 private:
  Status connect(const std::function<void(Status)>& done) {
    SR_ASSIGN_OR_RETURN(endpoint_,
                        transport::Endpoint::create(
                            lane_->get(), {.task = options_.task, .incarnation = options_.session},
                            {.keepalive_timeout_ms = 600'000}));
    SR_RETURN_IF_ERROR(prepare());
    channel_ = transport::Channel::create(endpoint_.get(),
                                          {.task = kPs, .lane = 0, .address = options_.data},
                                          transport::Resume::draw(*random_));
    channel_->connect(0, [done](const Status& status) { done(status); });
    return {};
  }

  const std::unique_ptr<sys::Random> random_ = sys::posix::create_random();
  uint64_t steps_;
  std::unique_ptr<transport::Channel> channel_;
};

class CallWorker final : public LaneWorker {
 public:
  using LaneWorker::LaneWorker;

 private:
  void begin_step() override {
    began_ = steady_ns();
    round_ = 0;
    number_ = next_step();
    send_round();
  }

  void send_round() {
    const std::vector<ScaleCall>& calls = options_.plan.rounds[round_];
    missing_ = calls.size();
    while (sinks_.size() < calls.size()) sinks_.push_back(std::make_unique<Sink>(this, Part::kRun));
    const std::string extra = task::encode_run({.whole = true, .number = number_});
    for (size_t i = 0; i < calls.size(); ++i) {
      feeds_.clear();
      for (const Value& value : calls[i].feeds) feeds_.push_back(tensor_of(value));
      const bool sent = call({.program = calls[i].program,
                              .step = next_step(),
                              .session = options_.session,
                              .kind = static_cast<uint16_t>(DataCall::kRun),
                              .deadline_ns = kNoDeadline,
                              .extra = extra,
                              .is_repeatable = calls[i].repeatable},
                             feeds_, sinks_[i].get());
      if (!sent) return;
    }
  }

  void answered(Part /*part*/) override {
    if (--missing_ > 0) return;
    if (++round_ < options_.plan.rounds.size()) return send_round();
    if (common_->tally.count(options_.number, began_)) begin_step();
  }

  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<Tensor> feeds_;
  size_t round_ = 0;
  size_t missing_ = 0;
  uint64_t number_ = 0;
};

class PartWorker final : public LaneWorker, public transport::CallHandler {
 public:
  using LaneWorker::LaneWorker;
  [[nodiscard]] int data_port() const override { return acceptor_->address().port; }

 private:
  Status prepare() override {
    SR_ASSIGN_OR_RETURN(acceptor_,
                        transport::Acceptor::create(endpoint_.get(), {"127.0.0.1", 0}, this));
    for (size_t i = 0; i < options_.plan.sent.size(); ++i) {
      rows_.push_back(std::make_unique<Sink>(this, Part::kRows));
    }
    return {};
  }

  void begin_step() override {
    began_ = steady_ns();
    step_ = next_step();
    missing_rows_ = rows_.size();
    has_run_ = false;
    held_.clear();
    const std::string extra = task::encode_run({});
    const bool sent = call({.program = options_.programs[0],
                            .step = step_,
                            .session = options_.session,
                            .kind = static_cast<uint16_t>(DataCall::kRun),
                            .deadline_ns = kNoDeadline,
                            .extra = extra},
                           {}, &run_);
    if (sent) ask_for_rows();
  }

  void ask_for_rows() {
    auto sink = rows_.begin();
    for (const auto& [edge, count] : options_.plan.sent) {
      const std::string extra = task::encode_tensors({.keys = {{.edge = edge, .step = step_}}});
      const bool sent = call({.step = step_,
                              .kind = static_cast<uint16_t>(DataCall::kTensors),
                              .deadline_ns = kNoDeadline,
                              .extra = extra},
                             {}, (sink++)->get());
      if (!sent) return;
    }
  }

  /// The ps asks: for ids, which are there, or gradients, which are when the rows have come.
  void on_call(const transport::Connection& from, const transport::Call& call,
               std::span<Tensor> /*feeds*/) override {
    const uint64_t id = call.header.call_id;
    if (!task::decode_tensors(call.extra, &receive_request_).ok() || call.header.step != step_) {
      return acceptor_->reply_error(from.id, id, base::aborted("not of this step"));
    }
    std::vector<const ScaleTensorGroup*> tensor_groups;
    bool is_late = false;
    for (const ports::RendezvousKey& key : receive_request_.keys) {
      const auto found = options_.plan.received.find(key.edge);
      if (found == options_.plan.received.end()) {
        return acceptor_->reply_error(from.id, id, base::not_found("edge {}", key.edge));
      }
      tensor_groups.push_back(&found->second);
      is_late = is_late || found->second.has_gradients;
    }
    if (is_late && missing_rows_ > 0) {
      held_.push_back({from.id, id, std::move(tensor_groups)});
    } else {
      give(from.id, id, tensor_groups);
    }
  }

  void give(transport::ConnectionId to, uint64_t id,
            const std::vector<const ScaleTensorGroup*>& tensor_groups) {
    std::vector<Tensor> tensors;
    for (const ScaleTensorGroup* const tensor_group : tensor_groups) {
      for (const Value& value : tensor_group->values) tensors.push_back(tensor_of(value));
    }
    acceptor_->reply(to, id, tensors);
  }

  void answered(Part part) override {
    if (part == Part::kEnd) return;
    if (part == Part::kRun) has_run_ = true;
    if (part == Part::kRows && --missing_rows_ == 0) {
      for (const Held& one : std::exchange(held_, {})) give(one.from, one.call, one.tensor_groups);
    }
    if (has_run_ && missing_rows_ == 0) end_step();
  }

  void end_step() {
    // As a master does: the step has ended, whoever may still want to ask.
    const CallOptions end = {.step = step_, .kind = static_cast<uint16_t>(DataCall::kEndStep)};
    if (!call(end, {}, &end_)) return;
    if (common_->tally.count(options_.number, began_)) begin_step();
  }

  struct Held {
    transport::ConnectionId from;
    uint64_t call;
    std::vector<const ScaleTensorGroup*> tensor_groups;
  };

  std::unique_ptr<transport::Acceptor> acceptor_;
  std::vector<std::unique_ptr<Sink>> rows_;
  Sink run_{this, Part::kRun};
  Sink end_{this, Part::kEnd};
  std::vector<Held> held_;
  task::TensorsExtra receive_request_;
  uint64_t step_ = 0;
  size_t missing_rows_ = 0;
  bool has_run_ = false;
};

}  // namespace

std::unique_ptr<Worker> call_worker(Common* common, Lane* lane, WorkerOptions options) {
  return std::make_unique<CallWorker>(common, lane, std::move(options));
}
std::unique_ptr<Worker> part_worker(Common* common, Lane* lane, WorkerOptions options) {
  return std::make_unique<PartWorker>(common, lane, std::move(options));
}

}  // namespace sidereal::bench
