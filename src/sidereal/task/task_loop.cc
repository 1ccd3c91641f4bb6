#include "sidereal/task/task_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/sys/clock.h"

namespace sidereal::task {

using tensor::DType;
using tensor::Tensor;

namespace {

constexpr int64_t kTellEvery = 200 * sys::kMillisecond;
/// What steps that were cancelled get to say what they were waiting for.
constexpr int64_t kGrace = 1500 * sys::kMillisecond;
/// Numbers of series that wait to be told.
constexpr size_t kSeriesMax = size_t{1} << 16;

/// The column of a batch that is called so, or nullptr.
const Tensor* find_column(const data::Batch& batch, const std::string& name) {
  if (const Tensor* const column = batch.find(name)) return column;
  const Tensor* standard = nullptr;
  if (name == "label") standard = &batch.label;
  if (name == "dense") standard = &batch.dense;
  if (name == "ids") standard = &batch.ids;
  if (name == "weights") standard = &batch.weights;
  if (name == "sample_weight") standard = &batch.sample_weight;
  if (name == "truth") standard = &batch.truth;
  return standard != nullptr && standard->defined() ? standard : nullptr;
}

Result<Tensor> column_of(const data::Batch& batch, const std::string& name) {
  if (const Tensor* const column = find_column(batch, name)) return *column;
  std::vector<std::string> names;
  for (const auto& [key, value] : batch.columns) names.push_back(key);
  for (const char* const standard :
       {"label", "dense", "ids", "weights", "sample_weight", "truth"}) {
    if (batch.find(standard) == nullptr && find_column(batch, standard) != nullptr) {
      names.emplace_back(standard);
    }
  }
  return base::invalid_argument("the data has no column '{}'; it has {}", name,
                                base::join(names, ", "));
}

/// The number that a tensor of one element is; kInvalidArgument when it is none.
Result<double> number_of(const Tensor& value) {
  if (value.num_elements() == 1) {
    switch (value.dtype()) {
      case DType::kFloat32:
        return static_cast<double>(value.data<const float>()[0]);
      case DType::kFloat64:
        return value.data<const double>()[0];
      case DType::kInt32:
        return static_cast<double>(value.data<const int32_t>()[0]);
      case DType::kInt64:
        return static_cast<double>(value.data<const int64_t>()[0]);
      case DType::kUInt8:
        return static_cast<double>(value.data<const uint8_t>()[0]);
      case DType::kBool:
        return value.data<const bool>()[0] ? 1.0 : 0.0;
      default:
        break;
    }
  }
  return base::invalid_argument("{} is not one number, and has no mean: keep each or the last",
                                value.to_string());
}

}  // namespace

/// Where a batch has a number that is not finite, in one of the columns that are fed; "" if
/// nowhere.
std::string not_finite_in(const data::Batch& batch, std::span<const std::string> columns) {
  for (const std::string& name : columns) {
    const Result<Tensor> column = column_of(batch, name);
    if (!column.ok() || column->dtype() != DType::kFloat32) continue;
    const auto values = column->data<const float>();
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad == values.end()) continue;
    const int64_t width = column->num_elements() / std::max<int64_t>(1, batch.rows);
    return fmt::format("column '{}' has {} in row {} of its batch", name,
                       std::isnan(*bad) ? "nan" : "an infinite number",
                       (bad - values.begin()) / std::max<int64_t>(1, width));
  }
  return "";
}

/// A step in flight with the batch it uses.
struct TaskLoop::Flight {
  data::Batch batch;
  int64_t began_ns = 0;
  bool is_running = false;
  int64_t step = 0;  ///< Of this lane, from 0.
  std::vector<Tensor> fetches;
};

/// Wakes the loop when the reader has a batch.
class TaskLoop::DataReady final : public lane::IoHandler, public sys::Pollable {
 public:
  DataReady(TaskLoop* loop, int fd) : loop_(loop), fd_(fd) {}
  ~DataReady() override { set_watched(false); }

  [[nodiscard]] int handle() const override { return fd_; }
  /// Watching is on only while the loop waits for data: a ready batch would keep the lane awake.
  void set_watched(bool watched) {
    if (watched == watched_) return;
    if (watched) {
      if (!loop_->lane_->watch(*this, this, {.readable = true}).ok()) return;
    } else {
      loop_->lane_->unwatch(*this);
    }
    watched_ = watched;
  }
  void on_io(const sys::Event&) override {
    set_watched(false);
    loop_->schedule();
  }

 private:
  TaskLoop* const loop_;
  const int fd_;
  bool watched_ = false;
};

TaskLoop::TaskLoop(Task* task, int lane, TaskLoopOptions options,
                   std::unique_ptr<data::PrefetchingReader> reader, LoopListener* listener)
    : task_(task),
      lane_number_(lane),
      lane_(task->lane(lane)),
      options_(std::move(options)),
      reader_(std::move(reader)),
      listener_(listener),
      turns_(base::RefPtr<StepTurns>::make(options_.in_order,
                                           static_cast<size_t>(options_.steps_in_flight),
                                           [this] { schedule(); })),
      auc_(options_.auc_window_rows) {
  // Some more than compute at once, so that acknowledgements are rarely waited for.
  const int64_t flights = options_.steps_in_flight + (options_.in_order ? 2 : 0);
  for (int64_t i = 0; i < flights; ++i) {
    flights_.push_back(std::make_unique<Flight>());
    idle_.push_back(flights_.size() - 1);
  }
  progress_.scalars.resize(options_.fetches.size());
  progress_.positions.resize(1);
  pass_.lane = options_.index;
  latest_.resize(options_.fetches.size());
  for (std::vector<double>& numbers : latest_) numbers.reserve(LoopScalar::kLatest);
  series_.resize(options_.fetches.size());
  last_.resize(options_.fetches.size());
}
TaskLoop::~TaskLoop() = default;

void TaskLoop::start(LoopSteps* steps, std::shared_ptr<const void> owner) {
  steps_ = steps;
  owner_ = std::move(owner);
  lane_->add_stop_hook(this);
  if (reader_ != nullptr) data_ready_ = std::make_unique<DataReady>(this, reader_->ready_fd());
  bytes_in_before_ = lane_->metrics().bytes_in.value();
  bytes_out_before_ = lane_->metrics().bytes_out.value();
  if (options_.steps_max == 0) input_ended_ = true;
  set_timer(kTellEvery);
  schedule();
}

void TaskLoop::set_timer(int64_t delay_ns) {
  // Timers fire in the middle of steps, too.
  timer_ = lane_->run_after(delay_ns, [this] {
    timer_fired_ = true;
    schedule();
  });
}

void TaskLoop::on_lane_stop() {
  end(base::cancelled("{} is stopping", task_->name()));
  running_ -= std::min(running_, steps_->abandon(status_));
  settle();
  leave();
}

/// Where the lane comes from outside: it may be the last to know of the loop.
void TaskLoop::leave() {
  if (told_end_ && !is_in_run_) const std::shared_ptr<const void> last = std::move(owner_);
}

/// Not from within: steps end and pass their turn in the middle of what their lane does with them.
void TaskLoop::schedule() {
  if (scheduled_ || told_end_) return;
  scheduled_ = task_->post(lane_number_, [this] {
    scheduled_ = false;
    run();
    leave();
  });
  if (!scheduled_) settle();
}

void TaskLoop::run() {
  is_in_run_ = true;
  if (std::exchange(timer_fired_, false)) tick();
  harvest_all();
  while (may_launch()) {
    const Result<bool> launched = launch();
    if (!launched.ok()) end(launched.status());
    if (!launched.ok() || !*launched) break;
  }
  if (input_ended_) turns_->add_no_more();
  if (!ended_ && input_ended_ && order_.empty()) end({});
  is_in_run_ = false;
  settle();
}

bool TaskLoop::may_launch() {
  if (ended_ || input_ended_ || idle_.empty()) return false;
  if (options_.in_order && turns_->size() >= static_cast<size_t>(options_.steps_in_flight)) {
    return false;
  }
  if (series_waiting_ >= kSeriesMax && !tell(false)) return false;
  return !is_too_far_ahead() && listener_->has_room();
}

/// Whether the client must hear of steps first. It is told well before, so that it rarely must.
bool TaskLoop::is_too_far_ahead() {
  if (options_.ahead_max == 0) return false;
  if (progress_.steps - steps_told_ >= std::max<int64_t>(1, options_.ahead_max / 4)) tell(false);
  return launched_ - heard_ >= options_.ahead_max;
}

/// False when there is none now, or none any more.
Result<bool> TaskLoop::next_batch(Flight* flight) {
  if (reader_ == nullptr) return true;
  const Result<bool> got = reader_->next(&flight->batch, std::chrono::steady_clock::now());
  if (!got.ok() && got.status().code() == StatusCode::kDeadlineExceeded) {
    if (waits_for_data_since_ns_ == 0) waits_for_data_since_ns_ = lane_->now();
    data_ready_->set_watched(true);
    return false;
  }
  data_ready_->set_watched(false);
  if (waits_for_data_since_ns_ != 0) {
    const int64_t waited = lane_->now() - std::exchange(waits_for_data_since_ns_, 0);
    if (progress_.steps > 0 || running_ > 0) progress_.waited_for_data_ns += waited;
  }
  SR_RETURN_IF_ERROR(got.status());
  read_ = reader_->stats();
  if (!*got) input_ended_ = data_ended_ = true;
  return *got;
}

Status TaskLoop::feed(const data::Batch& batch) {
  feeds_.clear();
  for (const std::string& name : options_.columns) {
    SR_ASSIGN_OR_RETURN(feeds_.emplace_back(), column_of(batch, name));
  }
  feeds_.insert(feeds_.end(), options_.constants.begin(), options_.constants.end());
  return {};
}

/// Process numbers of the steps of one flight, which do not overlap: those of others may.
int32_t TaskLoop::trace_process(size_t flight) const {
  constexpr int32_t kPartsOfAStep = 1024;
  constexpr size_t kFlights = 1024;
  const size_t place = static_cast<size_t>(options_.index) * flights_.size() + flight;
  return options_.trace_process + static_cast<int32_t>(place % kFlights) * kPartsOfAStep;
}

Result<bool> TaskLoop::launch() {
  const size_t number = idle_.back();
  Flight& flight = *flights_[number];
  SR_ASSIGN_OR_RETURN(const bool got, next_batch(&flight));
  if (!got) return false;
  SR_RETURN_IF_ERROR(feed(flight.batch));
  flight.began_ns = lane_->now();
  flight.is_running = true;
  flight.step = launched_++;
  if (flight.step == 0) began_ns_ = flight.began_ns;
  if (options_.steps_max >= 0 && launched_ >= options_.steps_max) input_ended_ = true;
  idle_.pop_back();
  order_.push_back(number);
  ++running_;
  const uint64_t step =
      options_.first_number + static_cast<uint64_t>(flight.step) * options_.number_stride;
  const bool is_traced = step >= options_.trace_first && step < options_.trace_end;
  steps_->start({.flight = number,
                 .number = step,
                 .trace = is_traced ? trace_process(number) : 0,
                 .turns = turns_,
                 .feeds = &feeds_});
  feeds_.clear();
  return true;
}

void TaskLoop::ended(size_t flight, const Status& status, std::span<Tensor> fetches,
                     const std::string& waits_for, std::string trace) {
  Flight& mine = *flights_[flight];
  mine.is_running = false;
  --running_;
  if (status.ok()) {
    mine.fetches.assign(std::make_move_iterator(fetches.begin()),
                        std::make_move_iterator(fetches.end()));
  }
  if (waits_for_.empty()) waits_for_ = waits_for;
  if (!trace.empty()) listener_->take_trace(options_.index, std::move(trace));
  if (!status.ok()) end(status);
  schedule();
  leave();
}

/// In the order of the steps, so that sums do not depend on how fast peers are.
void TaskLoop::harvest_all() {
  while (!order_.empty() && !flights_[order_.front()]->is_running) {
    Flight& flight = *flights_[order_.front()];
    if (!ended_) {
      const Status kept = harvest(&flight);
      if (!kept.ok()) end(kept);
    }
    flight.fetches.clear();
    idle_.push_back(order_.front());
    order_.pop_front();
  }
}

Status TaskLoop::harvest(Flight* flight) {
  ++progress_.steps;
  progress_.rows += flight->batch.rows;
  if (flight->batch.pass != pass_.pass) end_pass(flight->batch.pass);
  progress_.positions[0] = {
      .steps = progress_.steps, .pass = flight->batch.pass, .rows = flight->batch.pass_rows};
  progress_.elapsed_ns = lane_->now() - began_ns_;
  LoopValues values;
  values.lane = options_.index;
  values.step = flight->step;
  values.rows = flight->batch.rows;
  for (size_t i = 0; i < flight->fetches.size(); ++i) {
    const Status kept = keep_fetch(i, flight->fetches[i], &values);
    if (!kept.ok()) return base::with_context(kept, "fetch '" + options_.fetches[i].name + "'");
    if (options_.fetches[i].keep == Keep::kFinite) SR_RETURN_IF_ERROR(check_finite(i, *flight));
  }
  const auto fetches = static_cast<int32_t>(options_.fetches.size());
  for (size_t i = 0; i < options_.kept_columns.size(); ++i) {
    SR_ASSIGN_OR_RETURN(Tensor column, column_of(flight->batch, options_.kept_columns[i]));
    values.values.emplace_back(fetches + static_cast<int32_t>(i), std::move(column));
  }
  if (!values.values.empty()) listener_->take_values(std::move(values));
  return options_.auc_fetch < 0 ? Status() : add_to_auc(*flight);
}

void TaskLoop::end_pass(int64_t next) {
  if (pass_.steps > 0) progress_.passes.push_back(pass_);
  pass_ = {.lane = options_.index, .pass = next};
}

Status TaskLoop::keep_fetch(size_t i, const Tensor& value, LoopValues* values) {
  const Keep keep = options_.fetches[i].keep;
  if (keep == Keep::kEach) {
    values->values.emplace_back(static_cast<int32_t>(i), value);
  } else if (keep == Keep::kLast) {
    last_[i] = value;
  } else {
    SR_ASSIGN_OR_RETURN(const double number, number_of(value));
    LoopScalar& scalar = progress_.scalars[i];
    const auto at = static_cast<size_t>(scalar.steps) % LoopScalar::kLatest;
    if (at < latest_[i].size()) {
      latest_[i][at] = number;
    } else {
      latest_[i].push_back(number);
    }
    scalar.sum += number;
    scalar.last = number;
    ++scalar.steps;
    if (i == 0) {
      pass_.sum += number;
      ++pass_.steps;
    }
    if (keep == Keep::kSeries) {
      series_[i].push_back(number);
      ++series_waiting_;
    }
  }
  return {};
}

Status TaskLoop::check_finite(size_t i, const Flight& flight) const {
  const double number = progress_.scalars[i].last;
  if (std::isfinite(number)) return {};
  const std::string bad = not_finite_in(flight.batch, options_.columns);
  return base::invalid_argument(
      "'{}' is {} at step {}: {}", options_.fetches[i].name,
      std::isnan(number) ? "nan" : "infinite", flight.step,
      bad.empty() ? "what its batch has is finite, so the model diverges: is the learning rate too "
                    "large?"
                  : bad);
}

Status TaskLoop::add_to_auc(const Flight& flight) {
  const Tensor& scores = flight.fetches[static_cast<size_t>(options_.auc_fetch)];
  SR_ASSIGN_OR_RETURN(const Tensor labels, column_of(flight.batch, options_.auc_labels));
  if (scores.dtype() != DType::kFloat32 || labels.dtype() != DType::kFloat32 ||
      scores.num_elements() != labels.num_elements()) {
    return base::invalid_argument(
        "an AUC takes a probability and a label (float32) of each row; fetch '{}' is {}, column "
        "'{}' is {}",
        options_.fetches[static_cast<size_t>(options_.auc_fetch)].name, scores.to_string(),
        options_.auc_labels, labels.to_string());
  }
  auc_.add(scores.data<const float>(), labels.data<const float>());
  return {};
}

void TaskLoop::tick() {
  if (ended_) {
    for (const size_t flight : order_) {
      if (flights_[flight]->is_running) steps_->drop(flight);
    }
    return;
  }
  const Status in_time = check_times();
  if (!in_time.ok()) return end(in_time);
  tell(false);
  set_timer(kTellEvery);
}

Status TaskLoop::check_times() {
  const int64_t now = lane_->now();
  const auto is_over = [now](int64_t since_ns, std::chrono::milliseconds limit) {
    return limit.count() > 0 && (now - since_ns) / sys::kMillisecond >= limit.count();
  };
  for (const size_t flight : order_) {
    const Flight& oldest = *flights_[flight];
    if (!oldest.is_running || !is_over(oldest.began_ns, options_.step_timeout)) continue;
    return base::deadline_exceeded("the step did not end within {} ms",
                                   options_.step_timeout.count());
  }
  if (waits_for_data_since_ns_ != 0 && is_over(waits_for_data_since_ns_, options_.data_timeout)) {
    return base::deadline_exceeded("no data came within {} ms; {} rows were read",
                                   options_.data_timeout.count(), read_.rows_read);
  }
  return {};
}

/// False: there is no room for it.
bool TaskLoop::tell(bool is_last) {
  if (!is_last && progress_.steps == steps_told_) return true;
  progress_.rows_skipped = read_.rows_skipped;
  progress_.first_skipped = read_.first_skipped;
  progress_.fraction = read_.progress;
  progress_.computed_ns = turns_->computed_ns();
  progress_.waited_ns = std::max<int64_t>(0, progress_.elapsed_ns - progress_.computed_ns);
  progress_.bytes_in = lane_->metrics().bytes_in.value() - bytes_in_before_;
  progress_.bytes_out = lane_->metrics().bytes_out.value() - bytes_out_before_;
  if (options_.auc_fetch >= 0 && auc_.rows() > 0) progress_.auc = auc_.auc();
  if (is_last) {
    end_pass(pass_.pass);
    progress_.positions[0].is_end = data_ended_ && status_.ok();
  }
  for (size_t i = 0; i < latest_.size(); ++i) {
    LoopScalar& scalar = progress_.scalars[i];
    scalar.latest_sum = std::accumulate(latest_[i].begin(), latest_[i].end(), 0.0);
    scalar.latest_steps = static_cast<int64_t>(latest_[i].size());
  }
  if (!listener_->take_progress(options_.index, progress_, series_, is_last)) return false;
  progress_.passes.clear();
  for (std::vector<double>& numbers : series_) numbers.clear();
  series_waiting_ = 0;
  steps_told_ = progress_.steps;
  return true;
}

void TaskLoop::end(const Status& status) {
  if (ended_) return;
  ended_ = true;
  status_ = status;
  if (data_ready_ != nullptr) data_ready_->set_watched(false);
  if (reader_ != nullptr && !status.ok()) reader_->stop();
  lane_->cancel_timer(timer_);
  timer_fired_ = false;
  for (const size_t flight : order_) {
    if (flights_[flight]->is_running) steps_->cancel(flight, status);
  }
  if (running_ > 0) set_timer(kGrace);
  schedule();
}

void TaskLoop::settle() {
  if (!ended_ || running_ > 0 || scheduled_ || told_end_ || is_in_run_) return;
  told_end_ = true;
  lane_->cancel_timer(timer_);
  lane_->remove_stop_hook(this);
  turns_->forget();
  data_ready_ = nullptr;
  LoopValues values;
  values.lane = options_.index;
  values.step = progress_.steps - 1;
  for (size_t i = 0; i < last_.size(); ++i) {
    if (last_[i].defined()) values.values.emplace_back(static_cast<int32_t>(i), last_[i]);
  }
  if (!values.values.empty()) listener_->take_values(std::move(values));
  tell(true);
  const bool was_cut_short = !status_.ok() && !waits_for_.empty();
  listener_->lane_ended(
      options_.index,
      was_cut_short ? base::make_status(status_.code(), fmt::format("{}; {} waits for {}",
                                                                    base::message_of(status_),
                                                                    task_->name(), waits_for_))
                    : status_);
}

OwnSteps::OwnSteps(Task* task, TaskLoop* loop, Options options)
    : task_(task),
      loop_(loop),
      options_(std::move(options)),
      next_step_(step_number(static_cast<uint64_t>(options_.lane), options_.first_step)),
      steps_(loop->flights()),
      fetches_(options_.fetches.size()) {}
OwnSteps::~OwnSteps() = default;

void OwnSteps::start(const Begin& step) {
  steps_[step.flight] = next_step_;
  call_.session = options_.session;
  call_.program = options_.program;
  call_.step = next_step_;
  // The lowest byte says the lane.
  next_step_ += 0x100;
  call_.feeds.clear();
  for (const size_t feed : options_.feeds) call_.feeds.push_back((*step.feeds)[feed]);
  call_.trace = step.trace;
  call_.number = step.number;
  call_.goes_on = true;
  call_.pull_prefetch_ms = options_.pull_prefetch_ms;
  call_.turns = step.turns;
  call_.stop = options_.stop;
  step.turns->add(call_.step);
  task_->run(&call_,
             [this, flight = step.flight](ProgramResult& result) { ended(flight, &result); });
}

void OwnSteps::ended(size_t flight, ProgramResult* result) {
  task_->end_step(std::exchange(steps_[flight], 0));
  Status status = result->status;
  if (status.ok() && result->fetches.size() != options_.fetches.size()) {
    status = base::internal("{} gave {} values where {} were asked for", task_->name(),
                            result->fetches.size(), options_.fetches.size());
  }
  if (status.ok()) {
    for (size_t i = 0; i < options_.fetches.size(); ++i) {
      fetches_[options_.fetches[i]] = std::move(result->fetches[i]);
    }
  } else if (!result->derived && status.code() != StatusCode::kUnavailable) {
    status = base::with_context(status, task_->name());
  }
  loop_->ended(flight, status, fetches_, result->waits_for, std::move(result->trace));
}

void OwnSteps::cancel(size_t flight, const Status& /*why*/) {
  if (steps_[flight] != 0) task_->cancel(steps_[flight]);
}
void OwnSteps::drop(size_t flight) {
  if (steps_[flight] != 0) task_->end_step(steps_[flight]);
}
/// The lane ends them itself.
size_t OwnSteps::abandon(const Status& /*why*/) { return 0; }

}  // namespace sidereal::task
