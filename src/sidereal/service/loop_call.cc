#include "sidereal/service/internal/loop_call.h"

#include <algorithm>
#include <utility>

#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/loop_message.h"
#include "sidereal/task/event.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/task.h"

namespace sidereal::service {

using task::from_proto;

namespace v1 = session::v1;
using tensor::Tensor;

namespace {

/// Values of steps that wait for the observer.
constexpr size_t kNewsMax = 256;

}  // namespace

LoopCall::LoopCall(std::string peer, const task::LoopOptions& options,
                   const task::LoopObserver& observer)
    : peer_(std::move(peer)), options_(options), observer_(observer) {
  result_.series.resize(options.fetches.size());
  result_.last.resize(options.fetches.size());
  last_steps_.resize(options.fetches.size(), -1);
}

void LoopCall::start(v1::Master::Stub* stub, uint64_t session) {
  stub->async()->RunLoop(&context_, this);
  begin();
  v1::LoopRequest request;
  to_proto(options_, request.mutable_head());
  request.mutable_head()->set_session(session);
  const auto& constants = options_.constants;
  if (constants.empty()) return put(std::move(request));
  put(std::move(request), 0, constants[0].second);
  for (size_t i = 1; i < constants.size(); ++i) {
    put(static_cast<int32_t>(i), constants[i].second);
  }
}

Result<task::LoopResult> LoopCall::wait(const std::function<bool()>& interrupted) {
  std::unique_lock lock(state_mutex_);
  bool is_cancelled = false;
  while (true) {
    changed_.wait_for(lock, task::kLook, [this] { return has_ended_ || !news_.empty(); });
    std::deque<News> news;
    news.swap(news_);
    const bool reads = std::exchange(is_paused_, false);
    const bool is_last = has_ended_;
    lock.unlock();
    if (reads && !is_cancelled) read_on();
    if (!is_cancelled) tell(std::move(news));
    if (is_last) return result();
    if (!is_cancelled &&
        ((interrupted && interrupted()) || (observer_.is_cancelled && observer_.is_cancelled()))) {
      is_cancelled = true;
      hang_up();
    }
    if (!is_cancelled) say_wishes();
    lock.lock();
  }
}

/// Says how many steps of each lane the observer has heard of, where the loop waits for that.
void LoopCall::say_heard(const std::vector<task::LoopPosition>& positions) {
  if (options_.ahead_max == 0) return;
  std::vector<int64_t> heard;
  for (const task::LoopPosition& position : positions) heard.push_back(position.steps);
  if (heard == heard_) return;
  v1::LoopRequest request;
  request.mutable_control()->mutable_heard()->Assign(heard.begin(), heard.end());
  heard_ = std::move(heard);
  put(std::move(request));
}

/// Says what the observer wants to become of the loop, when that has changed.
void LoopCall::say_wishes() {
  const bool stops = observer_.stops && observer_.stops();
  const bool drains = observer_.drains && observer_.drains();
  if (stops == stops_ && drains == drains_) return;
  stops_ = stops;
  drains_ = drains;
  v1::LoopRequest request;
  request.mutable_control()->set_stop(stops);
  request.mutable_control()->set_drain(drains);
  put(std::move(request));
}

void LoopCall::tell(std::deque<News> news) {
  for (News& one : news) {
    if (one.ended_lane.has_value()) {
      if (observer_.on_lane_end) observer_.on_lane_end(*one.ended_lane);
      continue;
    }
    if (!one.is_progress) {
      if (observer_.on_values) observer_.on_values(std::move(one.values));
      continue;
    }
    if (!observer_.on_progress) continue;
    task::LoopProgress total;
    {
      const std::lock_guard lock(state_mutex_);
      total = total_of(lanes_, options_.fetches.size());
      // Each is told once.
      for (task::LoopProgress& lane : lanes_) lane.passes.clear();
    }
    observer_.on_progress(total);
    say_heard(total.positions);
  }
}

void LoopCall::take(v1::LoopEvent* event) {
  const Status taken = take_event(event);
  if (!taken.ok()) {
    {
      const std::lock_guard lock(state_mutex_);
      if (status_.ok()) status_ = base::with_context(taken, peer_);
    }
    return hang_up();
  }
  if (!event->has_tail()) return;
  {
    const std::lock_guard lock(state_mutex_);
    has_tail_ = true;
    if (event->tail().has_failure()) status_ = from_proto(event->tail().failure());
    // The stream ends by itself, which nobody needs to wait for.
    has_ended_ = true;
    changed_.notify_all();
  }
  close();
}

Status LoopCall::take_event(v1::LoopEvent* event) {
  if (event->has_progress()) SR_RETURN_IF_ERROR(take_progress(event->progress()));
  if (event->has_values()) SR_RETURN_IF_ERROR(begin_values(event->values()));
  if (event->has_piece()) SR_RETURN_IF_ERROR(take_piece(event->piece()));
  if (!event->trace().empty()) {
    const std::lock_guard lock(state_mutex_);
    result_.traces.push_back(std::move(*event->mutable_trace()));
  }
  return {};
}

Status LoopCall::take_progress(const v1::LoopProgress& progress) {
  SR_RETURN_IF_ERROR(check_progress(progress, options_));
  const auto lane = static_cast<size_t>(progress.lane());
  const std::lock_guard lock(state_mutex_);
  while (lanes_.size() <= lane) {
    lanes_.emplace_back().scalars.resize(options_.fetches.size());
    series_.emplace_back(options_.fetches.size());
  }
  from_proto(progress, &lanes_[lane]);
  const size_t fetches = std::min<size_t>(options_.fetches.size(), progress.scalars_size());
  for (size_t i = 0; i < fetches; ++i) {
    const auto& numbers = progress.scalars(static_cast<int>(i)).series();
    std::vector<double>& series = series_[lane][i];
    series.insert(series.end(), numbers.begin(), numbers.end());
  }
  // The latest says all.
  if (news_.empty() || !news_.back().is_progress) {
    news_.emplace_back().is_progress = true;
    changed_.notify_all();
  }
  if (progress.is_last()) {
    news_.emplace_back().ended_lane = progress.lane();
    changed_.notify_all();
  }
  return {};
}

Status LoopCall::begin_values(const v1::LoopValues& head) {
  if (coming_) return base::data_loss("values of a step before those of the one before it");
  const auto known = static_cast<int32_t>(options_.fetches.size() + options_.kept_columns.size());
  Coming coming;
  coming.values.lane = head.lane();
  coming.values.step = head.step();
  coming.values.rows = head.rows();
  for (const int32_t index : head.indices()) {
    if (index < 0 || index >= known) return base::data_loss("a value of fetch {} of a loop", index);
    coming.values.values.emplace_back(index, Tensor());
  }
  coming.missing = coming.values.values.size();
  coming.joiner = std::make_unique<PieceJoiner>(static_cast<int32_t>(coming.missing));
  if (coming.missing > 0) coming_ = std::move(coming);
  return {};
}

Status LoopCall::take_piece(const v1::TensorPiece& piece) {
  if (!coming_) return base::data_loss("a piece of no step's values");
  SR_ASSIGN_OR_RETURN(auto value, coming_->joiner->add(piece));
  if (!value) return {};
  coming_->values.values[static_cast<size_t>(value->first)].second = std::move(value->second);
  if (--coming_->missing > 0) return {};
  keep(std::move(coming_->values));
  coming_.reset();
  return {};
}

/// Takes the last values for the result, the others for the observer.
void LoopCall::keep(task::LoopValues values) {
  const std::lock_guard lock(state_mutex_);
  std::erase_if(values.values, [&](auto& one) {
    const auto fetch = static_cast<size_t>(one.first);
    if (fetch >= options_.fetches.size() || options_.fetches[fetch].keep != task::Keep::kLast) {
      return false;
    }
    if (values.step > last_steps_[fetch]) {
      last_steps_[fetch] = values.step;
      result_.last[fetch] = std::move(one.second);
    }
    return true;
  });
  if (values.values.empty()) return;
  news_.emplace_back().values = std::move(values);
  changed_.notify_all();
}

bool LoopCall::reads_on() {
  const std::lock_guard lock(state_mutex_);
  is_paused_ = news_.size() >= kNewsMax && !has_ended_;
  return !is_paused_;
}

void LoopCall::ended(const grpc::Status& status) {
  const std::lock_guard lock(state_mutex_);
  if (!has_tail_ && status_.ok()) {
    status_ = status.ok() ? base::unavailable("{} ended a loop without a result", peer_)
                          : from_grpc(status, peer_);
  }
  has_ended_ = true;
  changed_.notify_all();
}

/// Once it has ended.
Result<task::LoopResult> LoopCall::result() {
  const std::lock_guard lock(state_mutex_);
  SR_RETURN_IF_ERROR(status_);
  result_.progress = total_of(lanes_, options_.fetches.size());
  for (const auto& lane : series_) {
    for (size_t i = 0; i < lane.size(); ++i) {
      result_.series[i].insert(result_.series[i].end(), lane[i].begin(), lane[i].end());
    }
  }
  return std::move(result_);
}

}  // namespace sidereal::service
