#include "sidereal/service/internal/move_stream.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <span>
#include <utility>

#include "sidereal/cluster/task_name.h"
#include "sidereal/service/internal/caller_checks.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/sys/posix/process.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// Moves to one task at once; tasks that one is from, and variables.
constexpr int64_t kMovesMax = 16;
constexpr int kSourcesMax = 1024;
constexpr int kNamesMax = 1 << 16;
/// How often a caller is told how far it is.
constexpr milliseconds kTell{50};
/// From one cut to the next: the last one is waited for while nothing is trained.
constexpr milliseconds kCut{2};
constexpr milliseconds kTakeMax{600'000};
/// Of variables that are put into a table while their stream waits, about a second.
constexpr size_t kLayOutBytesMax = size_t{1} << 30;

}  // namespace

MoveStream::MoveStream(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)), is_too_much_(++shared_->streams > kMovesMax) {}

MoveStream::~MoveStream() { --shared_->streams; }

Status MoveStream::take(v1::MoveRequest* request) {
  if (request->has_head()) return begin(request->head());
  if (!has_begun_) return base::invalid_argument("the first request has no head");
  const std::lock_guard lock(mutex_);
  if (request->take_ms() < 0) {
    return base::invalid_argument("variables are to be taken in {} ms", request->take_ms());
  }
  if (request->take_ms() > 0) {
    take_limit_ = std::min<milliseconds>(milliseconds(request->take_ms()), kTakeMax);
  }
  if (request->commit()) {
    if (!take_limit_.has_value()) {
      return base::failed_precondition("what was not taken is committed");
    }
    commits_ = true;
  }
  changed_.notify_all();
  return {};
}

Status MoveStream::begin(const v1::MoveHead& head) {
  const std::string& name = shared_->task->name();
  if (has_begun_) return base::invalid_argument("a second head");
  SR_RETURN_IF_ERROR(check_version(head.version(), name));
  SR_RETURN_IF_ERROR(check_meant(head.task(), name));
  if (is_too_much_) {
    return base::resource_exhausted("{} variables are being moved to {}, as many as it takes",
                                    kMovesMax, name);
  }
  int names = 0;
  for (const v1::MoveSource& source : head.sources()) names += source.names_size();
  if (head.sources_size() == 0 || head.sources_size() > kSourcesMax || names > kNamesMax) {
    return base::invalid_argument("{} variables of {} tasks are moved at once; {} of {} may be",
                                  names, head.sources_size(), kNamesMax, kSourcesMax);
  }
  const sys::posix::ProcessFigures memory = sys::posix::process_figures();
  for (const v1::MoveSource& source : head.sources()) {
    FollowOptions options{.state_group = head.state_group(), .cut = kCut};
    options.names = {source.names().begin(), source.names().end()};
    if (options.names.empty()) {
      return base::invalid_argument("no variable of {} is to be moved", source.task());
    }
    options.bytes_max =
        static_cast<size_t>(std::max<int64_t>(1, memory.memory_limit - memory.memory_used));
    SR_ASSIGN_OR_RETURN(auto follower,
                        Follower::create({{.task = source.task(), .address = source.address()}},
                                         shared_->credentials, options));
    sources_.push_back(
        {.task = source.task(), .names = options.names, .follower = std::move(follower)});
  }
  intake_.emplace(shared_->task, head.state_group());
  SR_RETURN_IF_ERROR(intake_->begin());
  has_begun_ = true;
  shared_->threads->run([self = shared_from_this(), this] { run(); });
  return {};
}

void MoveStream::hung_up() {
  has_gone_ = true;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void MoveStream::run() {
  const Status moved = move();
  sources_.clear();
  if (moved.ok()) intake_->commit();
  intake_->end();
  v1::MoveReply reply;
  if (moved.ok()) {
    reply.set_committed(true);
  } else {
    task::to_proto(moved, false, reply.mutable_failure());
  }
  put_last(std::move(reply));
}

Status MoveStream::move() {
  SR_RETURN_IF_ERROR(copy());
  milliseconds limit{};
  {
    const std::lock_guard lock(mutex_);
    limit = *take_limit_;
  }
  SR_RETURN_IF_ERROR(take_all(limit));
  v1::MoveReply reply;
  reply.set_taken(true);
  put(std::move(reply));
  return wait_for_commit();
}

/// Until what has come is to be taken.
Status MoveStream::copy() {
  v1::MoveReply told;
  while (true) {
    bool is_current = true;
    size_t bytes = 0;
    for (const Source& source : sources_) {
      source.follower->lay_out(kLayOutBytesMax);
      const FollowedTask now = source.follower->tasks().front();
      if (!task::VariableIntake::is_coming(now.status)) return now.status;
      is_current = is_current && now.is_whole;
      bytes += source.follower->bytes();
    }
    if (told.bytes() != static_cast<int64_t>(bytes) || told.current() != is_current) {
      told.set_bytes(static_cast<int64_t>(bytes));
      told.set_current(is_current);
      put(told);
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTell, [this] { return has_gone_ || take_limit_.has_value(); });
    if (has_gone_) return base::cancelled("the move was given up");
    if (take_limit_.has_value()) return {};
  }
}

Status MoveStream::take_all(milliseconds limit) {
  const steady_clock::time_point deadline = steady_clock::now() + limit;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    // Training stands still: a task that is gone is not waited for, nor are the others then.
    Status lost;
    const auto is_over = [&] {
      lost = first_lost(i);
      return has_gone_ || !lost.ok();
    };
    const Status here =
        sources_[i].follower->wait_until_current(std::max(left, milliseconds(0)), is_over);
    SR_RETURN_IF_ERROR(lost);
    SR_RETURN_IF_ERROR(here);
  }
  for (const Source& source : sources_) {
    source.follower->stop();
    source.follower->lay_out(SIZE_MAX);
    SR_RETURN_IF_ERROR(intake_->add(source.task, source.names, source.follower->take_all()));
  }
  return adopt();
}

/// Of the sources from number `from` on, one that is gone before all of it is here.
Status MoveStream::first_lost(size_t from) const {
  for (const Source& source : std::span(sources_).subspan(from)) {
    Status status = source.follower->tasks().front().status;
    if (!task::VariableIntake::is_coming(status)) return status;
  }
  return {};
}

Status MoveStream::adopt() {
  int tasks = 1;
  const auto own = cluster::parse_task_name(shared_->task->name());
  if (own.has_value() && shared_->cluster->is_known()) {
    const auto its = shared_->cluster->now().spec.tasks(own->job);
    if (its.ok()) tasks = std::max<int>(1, static_cast<int>(its->size()));
  }
  const auto adopted = std::make_shared<std::promise<Status>>();
  std::future<Status> end = adopted->get_future();
  intake_->adopt(tasks, [adopted](const Status& status) { adopted->set_value(status); });
  // Each lane does it between two steps, or ends; and a standby that is late is let go.
  return end.get();
}

Status MoveStream::wait_for_commit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_gone_ || commits_; });
  if (commits_) return {};
  return base::cancelled("the move was given up");
}

}  // namespace sidereal::service
