#include "sidereal/service/internal/follow_stream.h"

#include <utility>

#include "sidereal/service/internal/caller_checks.h"
#include "sidereal/service/standbys.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;

namespace {

/// Streams of one task.
constexpr int64_t kStreamsMax = 1024;
constexpr int64_t kMicrosecond = 1000;
constexpr std::chrono::milliseconds kTellGroups{200};
constexpr int64_t kHour = int64_t{3'600'000'000};

}  // namespace

FollowStream::FollowStream(task::Task* task, std::shared_ptr<Standbys> standbys,
                           grpc::CallbackServerContext* call,
                           std::shared_ptr<std::atomic<int64_t>> count,
                           std::shared_ptr<std::atomic<int64_t>> bad_requests)
    : task_(task),
      standbys_(std::move(standbys)),
      count_(std::move(count)),
      bad_requests_(std::move(bad_requests)),
      is_too_much_(++*count_ > kStreamsMax),
      call_(call),
      peer_(call->peer()) {}

FollowStream::~FollowStream() { --*count_; }

base::EventSource FollowStream::source() const {
  return {.task = task_->name(), .incarnation = task_->incarnation()};
}

Status FollowStream::take(v1::FollowRequest* request) {
  if (request->has_head()) return begin(request->head());
  if (!began_) return base::invalid_argument("the first request has no head");
  std::shared_ptr<task::ChangesReader> reader;
  {
    const std::lock_guard lock(reader_mutex_);
    reader = reader_;
  }
  if (reader == nullptr) return {};
  reader->took(request->taken(), request->applied());
  tell_in_sync();
  if (request->mark() != 0) reader->ask(request->mark());
  return {};
}

Status FollowStream::begin(const v1::FollowHead& head) {
  if (began_) return base::invalid_argument("a second head");
  SR_RETURN_IF_ERROR(check_version(head.version(), task_->name()));
  SR_RETURN_IF_ERROR(check_meant(head.task(), task_->name()));
  if (head.cut_us() < 0 || head.cut_us() > kHour || head.window_bytes() < 0) {
    return base::invalid_argument("cuts each {} us, and a window of {} bytes", head.cut_us(),
                                  head.window_bytes());
  }
  if (is_too_much_) {
    return base::resource_exhausted("{} is followed by {} streams, as many as it takes",
                                    task_->name(), kStreamsMax);
  }
  task::ChangesWanted wanted;
  wanted.state_group = head.state_group();
  wanted.lane = head.lane();
  wanted.is_synchronous = head.synchronous();
  wanted.names = {head.names().begin(), head.names().end()};
  if (head.incarnation() != 0) {
    wanted.after = {.incarnation = head.incarnation(), .cut = head.cut()};
  }
  if (head.cut_us() > 0) wanted.cut_ns = head.cut_us() * kMicrosecond;
  if (head.window_bytes() > 0) wanted.window_bytes = static_cast<size_t>(head.window_bytes());
  began_ = true;
  lane_ = head.lane();
  tells_groups_ = head.synchronous() && head.lane() == 0 && head.state_group().empty();
  auto reader =
      task_->read_changes(wanted, std::static_pointer_cast<FollowStream>(shared_from_this()));
  if (!reader.ok()) {
    ended(reader.status());
    return {};
  }
  base::emit(source(), base::Event::kFollowerAttached, {{"follower", peer_}, {"lane", lane_}});
  bool is_late = false;
  {
    const std::lock_guard lock(reader_mutex_);
    is_late = has_gone_;
    if (!is_late && !has_ended_) reader_ = *reader;
  }
  if (is_late) (*reader)->cancel();
  return {};
}

void FollowStream::begun(uint64_t incarnation) {
  v1::FollowReply reply;
  reply.mutable_begun()->set_lanes(task_->lanes());
  reply.mutable_begun()->set_incarnation(incarnation);
  reply.mutable_begun()->set_life(task_->incarnation());
  put(std::move(reply));
}

/// A standby follows them too.
void FollowStream::add_groups(v1::FollowReply* reply) {
  const auto now = std::chrono::steady_clock::now();
  if (!tells_groups_ || (groups_told_.has_value() && now - *groups_told_ < kTellGroups)) return;
  groups_told_ = now;
  v1::FollowGroups* const groups = reply->mutable_groups();
  for (std::string& name : task_->groups()) groups->add_names(std::move(name));
}

void FollowStream::give(const std::shared_ptr<const std::string>& bytes, uint64_t end) {
  v1::FollowReply reply;
  reply.set_entry(*bytes);
  reply.set_end(end);
  add_groups(&reply);
  put(std::move(reply));
}

void FollowStream::at(uint64_t end, uint64_t mark) {
  v1::FollowReply reply;
  reply.set_end(end);
  if (mark != 0) reply.set_mark(mark);
  add_groups(&reply);
  put(std::move(reply));
}

void FollowStream::in_sync(uint64_t end) {
  {
    const std::lock_guard lock(reader_mutex_);
    is_standby_ = true;
  }
  v1::FollowReply reply;
  reply.set_end(end);
  reply.set_in_sync(true);
  put(std::move(reply));
}

/// With the answer to that: a lane does not wait for a disk.
void FollowStream::tell_in_sync() {
  {
    const std::lock_guard lock(reader_mutex_);
    if (!is_standby_ || std::exchange(has_told_in_sync_, true)) return;
  }
  base::emit(source(), base::Event::kStandbyInSync, {{"standby", peer_}, {"lane", lane_}});
}

void FollowStream::ended(const Status& status) {
  {
    const std::lock_guard lock(reader_mutex_);
    has_ended_ = true;
    reader_ = nullptr;
    // It does not read: what is being written would stay so.
    const bool is_silent = status.code() == StatusCode::kDeadlineExceeded;
    if (is_silent || status.code() == StatusCode::kOutOfRange) cut_off_ = status;
    // With its group, or the task, goes what it was a standby of.
    if (cut_off_.ok()) is_standby_ = false;
    if (is_silent && call_ != nullptr) call_->TryCancel();
  }
  v1::FollowReply reply;
  task::to_proto(status, false, reply.mutable_failure());
  put_last(std::move(reply));
}

void FollowStream::hung_up() {
  std::shared_ptr<task::ChangesReader> reader;
  bool was_standby = false;
  {
    const std::lock_guard lock(reader_mutex_);
    call_ = nullptr;
    // Once: what comes next would not wait.
    if (std::exchange(has_gone_, true)) return;
    reader = reader_;
    was_standby = is_standby_;
  }
  if (reader != nullptr && was_standby && standbys_ != nullptr) {
    // Pushes wait for it until it is known that no later start was given its copy.
    standbys_->when_asked([reader] { reader->cancel(); });
  } else if (reader != nullptr) {
    reader->cancel();
  }
  tell_of_cut();
}

/// Not where the lane ends it: a lane does not wait for a disk.
void FollowStream::tell_of_cut() {
  Status why;
  bool was_standby = false;
  {
    const std::lock_guard lock(reader_mutex_);
    why = std::exchange(cut_off_, Status());
    was_standby = std::exchange(is_standby_, false);
  }
  if (was_standby) {
    const std::string said = why.ok() ? "it has gone" : std::string(base::message_of(why));
    base::emit(source(), base::Event::kStandbyLost,
               {{"standby", peer_}, {"lane", lane_}, {"why", said}});
  }
  if (why.ok()) return;
  base::emit(source(), base::Event::kFollowerCutOff,
             {{"follower", peer_}, {"lane", lane_}, {"why", base::message_of(why)}});
}

}  // namespace sidereal::service
