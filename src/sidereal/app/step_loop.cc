#include "sidereal/app/step_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "sidereal/app/lane_trace.h"
#include "sidereal/base/check.h"

namespace sidereal::app {

using tensor::Tensor;

namespace {

// Between instructions of a long step, sockets get a look this often.
constexpr int64_t kPollEveryNs = 200 * sys::kMicrosecond;
// Data that does not come for so long is an error: a dead disk, a hung file server.
constexpr int64_t kDataDeadlineNs = 300 * sys::kSecond;
constexpr int64_t kAucWindowRows = 200'000;
constexpr size_t kPoolBytesMax = size_t{4} << 30;

int find_name(const std::vector<std::string>& names, const std::string& name) {
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

const Tensor* find_column(const data::Batch& batch, const std::string& name) {
  if (const Tensor* column = batch.find(name)) return column;
  const Tensor* standard = nullptr;
  if (name == "label") standard = &batch.label;
  if (name == "dense") standard = &batch.dense;
  if (name == "ids") standard = &batch.ids;
  if (name == "weights") standard = &batch.weights;
  return standard != nullptr && standard->defined() ? standard : nullptr;
}

}  // namespace

/// One step in flight with the batch it uses.
struct StepLoop::Flight {
  Flight(const exec::BoundProgram* bound, exec::BufferPool* pool, ports::Exchange* exchange)
      : step(bound, pool, exchange) {}
  exec::Step step;
  data::Batch batch;
  int32_t track = 0;  ///< In traces.
};

/// Hands a call's outcome from the transport to the step, then goes back to the free list.
class StepLoop::Sink final : public transport::CallSink {
 public:
  explicit Sink(StepLoop* loop) : loop_(loop) {}

  void use(ports::CallCompletion* completion) { completion_ = completion; }
  Result<Tensor> allocate(int position, tensor::DType dtype, const tensor::Shape& shape) override {
    return completion_->allocate(position, dtype, shape);
  }
  void done(const Status& status, std::span<Tensor> fetches) override {
    std::exchange(completion_, nullptr)->done(status, fetches);
    loop_->free_sinks_.emplace_back(this);
  }

 private:
  StepLoop* loop_;
  ports::CallCompletion* completion_ = nullptr;
};

/// Wakes the lane when the reader has a batch.
class StepLoop::DataReady final : public lane::IoHandler, public sys::Pollable {
 public:
  DataReady(lane::Lane* lane, int fd) : lane_(lane), fd_(fd) {}
  ~DataReady() override { set_watched(false); }

  [[nodiscard]] int handle() const override { return fd_; }
  /// Watching is on only while the loop waits for data: a ready batch would keep the lane awake.
  void set_watched(bool watched) {
    if (watched == watched_) return;
    if (watched) {
      if (!lane_->watch(*this, this, {.readable = true}).ok()) return;
    } else {
      lane_->unwatch(*this);
    }
    watched_ = watched;
  }
  void on_io(const sys::Event&) override { set_watched(false); }

 private:
  lane::Lane* lane_;
  int fd_;
  bool watched_ = false;
};

StepLoop::StepLoop(transport::Endpoint* endpoint, StepLoopOptions options)
    : endpoint_(endpoint),
      options_(std::move(options)),
      pool_(kPoolBytesMax),
      auc_(kAucWindowRows) {}

Result<std::unique_ptr<StepLoop>> StepLoop::create(
    transport::Endpoint* endpoint, StepLoopOptions options,
    std::unique_ptr<data::PrefetchingReader> reader) {
  std::unique_ptr<StepLoop> loop(new StepLoop(endpoint, std::move(options)));
  loop->reader_ = std::move(reader);
  SR_RETURN_IF_ERROR(loop->prepare());
  return loop;
}

Status StepLoop::prepare() {
  if (options_.steps_in_flight < 1 || options_.steps_in_flight > 64) {
    return base::invalid_argument("steps_in_flight is {}; it must be from 1 to 64",
                                  options_.steps_in_flight);
  }
  SR_ASSIGN_OR_RETURN(bound_, exec::BoundProgram::bind(*options_.program, *options_.kernels, {}));
  const program::Program& program = bound_->program();
  loss_fetch_ = find_name(program.fetch_names, options_.loss);
  probability_fetch_ = find_name(program.fetch_names, options_.probability);
  for (const auto& [location, peer] : options_.peers) {
    channels_.push_back(
        transport::Channel::create(endpoint_, peer, transport::Resume::draw(*options_.random)));
    channels_.back()->on_break([this](const Status& why) {
      if (broken_.ok()) broken_ = why;
    });
  }
  for (const program::CallSpec* call : program::all_calls(program)) {
    transport::Channel* channel = nullptr;
    for (size_t i = 0; i < options_.peers.size(); ++i) {
      if (options_.peers[i].first == call->location) channel = channels_[i].get();
    }
    if (channel == nullptr) {
      return base::internal("no peer for calls to {}", ir::to_string(call->location));
    }
    channel_of_call_.push_back(channel);
    program_of_call_.push_back(call->program);
  }
  // Two more than compute at once, so that acknowledgements are rarely waited for.
  for (int64_t i = 0; i < options_.steps_in_flight + 2; ++i) {
    idle_.push_back(std::make_unique<Flight>(bound_.get(), &pool_, this));
    idle_.back()->track = static_cast<int32_t>(i);
    idle_.back()->step.set_stop_signal(options_.stop.get());
  }
  data_ready_ = std::make_unique<DataReady>(endpoint_->lane(), reader_->ready_fd());
  return {};
}

StepLoop::~StepLoop() {
  if (running_) endpoint_->lane()->remove_driver(this);
  // Closing ends every pending call, and only then may the steps die.
  for (auto& channel : channels_) channel->close();
  channels_.clear();
}

void StepLoop::start(base::Function<void(const Status&)> on_end) {
  on_end_ = std::move(on_end);
  to_connect_ = channels_.size();
  if (channels_.empty()) connected({});
  for (auto& channel : channels_) {
    channel->connect(0, [this](const Status& status) {
      --to_connect_;
      connected(status);
    });
  }
}

void StepLoop::connected(const Status& status) {
  if (!status.ok()) return finish(status);
  if (to_connect_ > 0 || ended_) return;
  running_ = true;
  endpoint_->lane()->add_driver(this);
}

void StepLoop::cancel(const Status& why) { finish(why); }

void StepLoop::finish(const Status& status) {
  if (ended_) return;
  ended_ = true;
  data_ready_->set_watched(false);
  reader_->stop();
  if (on_end_) std::exchange(on_end_, nullptr)(status);
}

Status StepLoop::start(int call, uint64_t step, std::span<const Tensor> feeds,
                       ports::CallCompletion* completion) {
  if (free_sinks_.empty()) free_sinks_.push_back(std::make_unique<Sink>(this));
  std::unique_ptr<Sink> sink = std::move(free_sinks_.back());
  free_sinks_.pop_back();
  sink->use(completion);
  const Result<uint64_t> id = channel_of_call_[call]->call(
      {.program = program_of_call_[call], .step = step}, feeds, sink.get());
  if (!id.ok()) {
    free_sinks_.push_back(std::move(sink));
    return broken_.ok() ? id.status() : broken_;
  }
  // Until done() the transport's pending-call table holds it.
  static_cast<void>(sink.release());
  return {};
}

void StepLoop::yield() {
  const int64_t now = endpoint_->lane()->now();
  if (now - last_io_ns_ < kPollEveryNs) return;
  last_io_ns_ = now;
  endpoint_->lane()->poll_io();
}

Status StepLoop::feed(Flight* flight) {
  const std::vector<std::string>& names = bound_->program().feed_names;
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor* column = find_column(flight->batch, names[i]);
    if (column == nullptr) {
      return base::invalid_argument("the data has no column for the model's input '{}'", names[i]);
    }
    SR_RETURN_IF_ERROR(flight->step.feed(static_cast<int>(i), *column));
  }
  return {};
}

Result<bool> StepLoop::advance(Flight* flight) {
  const size_t before = flight->step.position();
  const int64_t from = endpoint_->lane()->now();
  SR_RETURN_IF_ERROR(flight->step.advance().status());
  figures_.compute_ns += endpoint_->lane()->now() - from;
  return flight->step.position() != before;
}

void StepLoop::begin(Flight* flight) {
  const uint64_t step = options_.first_step + static_cast<uint64_t>(launched_);
  const bool traced = step >= options_.trace_first && step < options_.trace_end;
  if (traced && trace_ == nullptr) trace_ = make_lane_trace(endpoint_->lane());
  flight->step.set_trace(traced ? trace_.get() : nullptr, flight->track, "step");
  flight->step.begin(step);
}

std::string StepLoop::trace(exec::ChromeOptions options) const {
  if (trace_ == nullptr) return "";
  options.offset_ns += unix_offset_ns(*endpoint_->lane());
  return exec::to_chrome(trace_->events(), options);
}

Result<bool> StepLoop::launch() {
  Flight* flight = idle_.back().get();
  const auto now = std::chrono::steady_clock::now();
  const Result<bool> got = reader_->next(&flight->batch, now);
  if (!got.ok()) {
    if (got.status().code() != StatusCode::kDeadlineExceeded) return got.status();
    data_ready_->set_watched(true);
    const int64_t waited =
        waiting_since_ns_ == 0 ? 0 : endpoint_->lane()->now() - waiting_since_ns_;
    if (waited > kDataDeadlineNs) return base::with_context(got.status(), "no data came");
    return false;
  }
  data_ready_->set_watched(false);
  figures_.read = reader_->stats();
  if (!*got) {
    input_ended_ = true;
    return true;
  }
  if (launched_ == 0) began_ns_ = endpoint_->lane()->now();
  begin(flight);
  SR_RETURN_IF_ERROR(feed(flight));
  ++launched_;
  computing_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  // No further than its pulls: were its answers here already, its pushes could overtake those of
  // the steps before it, and results would depend on how fast peers are.
  const int64_t from = endpoint_->lane()->now();
  SR_RETURN_IF_ERROR(flight->step.advance_to_wait().status());
  figures_.compute_ns += endpoint_->lane()->now() - from;
  if (options_.steps_max > 0 && launched_ >= options_.steps_max) input_ended_ = true;
  return true;
}

void StepLoop::harvest(Flight* flight) {
  ++figures_.steps;
  figures_.rows += flight->batch.rows;
  figures_.elapsed_ns = endpoint_->lane()->now() - began_ns_;
  if (loss_fetch_ >= 0) {
    const float loss = flight->step.fetch(loss_fetch_).data<const float>()[0];
    figures_.loss_sum += loss;
    ++figures_.loss_steps;
    if (options_.record_losses) figures_.losses.push_back(loss);
  }
  if (probability_fetch_ >= 0) {
    const auto scores = flight->step.fetch(probability_fetch_).data<const float>();
    const auto labels = flight->batch.label.defined() ? flight->batch.label.data<const float>()
                                                      : std::span<const float>();
    if (labels.size() == scores.size()) auc_.add(scores, labels);
    if (options_.want_scores) {
      figures_.scores.insert(figures_.scores.end(), scores.begin(), scores.end());
      figures_.labels.insert(figures_.labels.end(), labels.begin(), labels.end());
      if (flight->batch.truth.defined()) {
        const auto truths = flight->batch.truth.data<const float>();
        figures_.truths.insert(figures_.truths.end(), truths.begin(), truths.end());
      }
    }
  }
  flight->step.end();
}

StepLoopFigures StepLoop::take_figures() {
  figures_.auc = auc_.auc();
  StepLoopFigures taken = figures_;
  figures_.losses.clear();
  figures_.scores.clear();
  figures_.labels.clear();
  figures_.truths.clear();
  return taken;
}

bool StepLoop::step_once() {
  const auto step = [this]() -> Result<bool> {
    SR_RETURN_IF_ERROR(broken_);
    bool progress = false;
    while (!draining_.empty()) {
      Flight* oldest = draining_.front().get();
      SR_ASSIGN_OR_RETURN(const exec::Step::Progress state, oldest->step.advance());
      if (state != exec::Step::Progress::kDone) break;
      harvest(oldest);
      idle_.push_back(std::move(draining_.front()));
      draining_.pop_front();
      progress = true;
    }
    const auto computing = static_cast<int64_t>(computing_.size());
    const bool may_launch = !input_ended_ && computing < options_.steps_in_flight;
    if (may_launch && !idle_.empty()) {
      SR_ASSIGN_OR_RETURN(const bool launched, launch());
      return progress || launched;
    }
    if (!may_launch && !computing_.empty()) {
      Flight* oldest = computing_.front().get();
      SR_ASSIGN_OR_RETURN(const bool moved, advance(oldest));
      progress = progress || moved;
      if (oldest->step.at_tail()) {
        draining_.push_back(std::move(computing_.front()));
        computing_.pop_front();
        progress = true;
      }
    }
    return progress;
  };
  Result<bool> moved = step();
  if (!moved.ok()) {
    finish(moved.status());
    return true;
  }
  if (input_ended_ && computing_.empty() && draining_.empty()) finish({});
  return *moved;
}

bool StepLoop::poll() {
  if (ended_ || !running_) return false;
  const bool for_data = !input_ended_ && !idle_.empty() &&
                        static_cast<int64_t>(computing_.size()) < options_.steps_in_flight;
  // A wait ends where the step that ends it begins, not after its work.
  const int64_t now = endpoint_->lane()->now();
  const bool progress = step_once();
  if (!progress) {
    if (waiting_since_ns_ == 0) {
      waiting_since_ns_ = now;
      waiting_for_data_ = for_data;
    }
  } else if (waiting_since_ns_ != 0) {
    figures_.wait_ns += now - waiting_since_ns_;
    if (waiting_for_data_) figures_.data_wait_ns += now - waiting_since_ns_;
    waiting_since_ns_ = 0;
  }
  return progress;
}

}  // namespace sidereal::app
