#include "sidereal/service/internal/follower_task.h"

#include <algorithm>

#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/task.h"

namespace sidereal::service {

namespace v1 = session::v1;
using resources::LogPosition;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::Tensor;

namespace {

/// A stream that has brought nothing for so long is broken: a lane says four times a second that
/// nothing is new, but while it computes one step.
constexpr milliseconds kSilence{10'000};
/// Before a stream that has ended is opened again.
constexpr milliseconds kAgain{250};
/// How often a waiting caller is asked whether it still is one.
constexpr milliseconds kAsk{100};
constexpr int kLanesMax = task::Task::kLanesMax;
/// Starts of a task that are known to be deposed, at most.
constexpr size_t kDeposedKept = 256;
constexpr int64_t kWindowBytes = int64_t{8} << 20;
/// For cancelled streams to end, which depends on this process alone.
constexpr std::chrono::seconds kEndWait{10};

}  // namespace

/// A FollowChanges call.
class Follower::Task::Call final : public ClientStream<v1::FollowRequest, v1::FollowReply> {
 public:
  Call(std::shared_ptr<Task> task, int lane) : task_(std::move(task)), lane_(lane) {}

  void start(v1::FollowHead head) {
    task_->stub_->async()->FollowChanges(&context_, this);
    begin();
    v1::FollowRequest request;
    *request.mutable_head() = std::move(head);
    put(std::move(request));
  }
  using ClientStream::hang_up;
  /// Once it was started.
  void ask(uint64_t mark) {
    v1::FollowRequest request;
    request.set_taken(taken_);
    request.set_mark(mark);
    put(std::move(request));
  }

 private:
  void take(v1::FollowReply* reply) override {
    taken_ += reply->entry().size();
    uint64_t applied = 0;
    if (!task_->take(lane_, this, reply, &applied)) return hang_up();
    v1::FollowRequest request;
    request.set_taken(taken_);
    request.set_applied(applied);
    put(std::move(request));
  }
  void ended(const grpc::Status& status) override {
    task_->ended(lane_, this, from_grpc(status, task_->of_.task + " at " + task_->of_.address));
  }

  const std::shared_ptr<Task> task_;
  const int lane_;
  std::atomic<uint64_t> taken_ = 0;
};

void Follower::Task::look() {
  std::vector<std::pair<std::shared_ptr<Call>, v1::FollowHead>> starting;
  std::vector<std::shared_ptr<Call>> silent;
  const steady_clock::time_point now = steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (holders_ > 0) return;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      if (lane.call != nullptr) {
        if (now - lane.heard < kSilence) continue;
        broke(base::deadline_exceeded("{} at {} has said nothing for {} s", of_.task, of_.address,
                                      kSilence.count() / 1000));
        silent.push_back(lane.call);
        continue;
      }
      if (now < lane.again) continue;
      v1::FollowHead head;
      head.set_version(kSessionVersion);
      head.set_task(of_.task);
      head.set_state_group(options_.state_group);
      head.set_lane(static_cast<int32_t>(i));
      const std::optional<LogPosition> position = replica_.position(static_cast<int>(i));
      if (position.has_value() && !lane.wants_all) {
        head.set_incarnation(position->incarnation);
        head.set_cut(position->cut);
      }
      head.set_cut_us(std::chrono::microseconds(options_.cut).count());
      head.set_window_bytes(kWindowBytes);
      head.set_synchronous(options_.is_synchronous);
      for (const std::string& name : options_.names) head.add_names(name);
      lane.call = std::make_shared<Call>(shared_from_this(), static_cast<int>(i));
      lane.heard = now;
      lane.is_started = false;
      lane.is_in_sync = false;
      ++open_;
      starting.emplace_back(lane.call, std::move(head));
    }
  }
  for (auto& [call, head] : starting) call->start(std::move(head));
  for (const auto& call : silent) call->hang_up();
  uint64_t mark = 0;
  {
    const std::lock_guard lock(mutex_);
    mark = wanted_mark_;
    for (Lane& lane : lanes_) lane.is_started = lane.call != nullptr;
  }
  if (mark == 0) return;
  for (const auto& [call, head] : starting) call->ask(mark);
}

void Follower::Task::ask(uint64_t mark) {
  std::vector<std::shared_ptr<Call>> asked;
  {
    const std::lock_guard lock(mutex_);
    wanted_mark_ = std::max(wanted_mark_, mark);
    for (const Lane& lane : lanes_) {
      if (lane.call != nullptr && lane.is_started) asked.push_back(lane.call);
    }
  }
  for (const auto& call : asked) call->ask(mark);
}

/// With mutex_.
bool Follower::Task::has_marked(uint64_t mark) const {
  return is_whole() && (is_in_sync() || !options_.is_synchronous) &&
         std::ranges::all_of(lanes_, [mark](const Lane& lane) { return lane.marked >= mark; });
}

Status Follower::Task::wait(uint64_t mark, steady_clock::time_point deadline,
                            const std::function<bool()>& is_cancelled) {
  std::unique_lock lock(mutex_);
  while (!has_marked(mark)) {
    if (steady_clock::now() >= deadline) {
      SR_RETURN_IF_ERROR(why_not_whole());
      const bool waits = is_in_sync() || !options_.is_synchronous;
      Status late = base::deadline_exceeded("what {} has is not here in the time given{}", of_.task,
                                            waits ? "" : ", and it does not wait for this standby");
      return status_.ok() ? late : base::with_context(status_, base::message_of(late));
    }
    if (is_cancelled != nullptr) {
      lock.unlock();
      if (is_cancelled()) return base::cancelled("waiting for {} was cancelled", of_.task);
      lock.lock();
    }
    changed_.wait_until(lock, std::min(deadline, steady_clock::now() + kAsk));
  }
  return {};
}

/// With mutex_.
bool Follower::Task::is_in_sync() const {
  return std::ranges::all_of(
      lanes_, [](const Lane& lane) { return lane.call != nullptr && lane.is_in_sync; });
}

bool Follower::Task::take(int lane, const Call* call, v1::FollowReply* reply, uint64_t* applied) {
  std::vector<std::shared_ptr<Call>> ending;
  {
    const std::lock_guard lock(mutex_);
    // The task had more lanes before.
    if (static_cast<size_t>(lane) >= lanes_.size()) return false;
    Lane& at = lanes_[static_cast<size_t>(lane)];
    if (at.call.get() != call) return false;
    at.heard = steady_clock::now();
    if (reply->has_failure()) {
      broke(base::with_context(task::from_proto(reply->failure()), of_.task));
      return true;
    }
    if (reply->has_groups()) {
      groups_ = {reply->groups().names().begin(), reply->groups().names().end()};
    }
    if (reply->has_begun()) {
      if (heir_of(reply->begun().life()) != 0) {
        broke(base::aborted("{} was started again, and the start before is there yet", of_.task));
        return false;
      }
      life_ = reply->begun().life();
      take_begun(call, reply->begun(), &ending);
      if (static_cast<size_t>(lane) < lanes_.size()) {
        Lane& begun = lanes_[static_cast<size_t>(lane)];
        begun.incarnation = reply->begun().incarnation();
        begun.mark = 0;
      }
    } else {
      take_entry(lane, *reply, &ending);
    }
    if (static_cast<size_t>(lane) < lanes_.size()) {
      Lane& now = lanes_[static_cast<size_t>(lane)];
      const std::optional<LogPosition> position = replica_.shown_position(lane);
      // Where an entry was refused the stream ends, and what comes yet must not be acknowledged.
      if (position.has_value() && position->incarnation == now.incarnation && !now.wants_all) {
        *applied = position->cut;
      }
      now.is_in_sync |= reply->in_sync();
    }
    is_whole_.store(is_whole(), std::memory_order_release);
    if (is_whole_) was_whole_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  for (const auto& one : ending) one->hang_up();
  return true;
}

/// With mutex_.
void Follower::Task::take_begun(const Call* call, const v1::FollowBegun& begun,
                                std::vector<std::shared_ptr<Call>>* ending) {
  const auto count = static_cast<size_t>(std::clamp(begun.lanes(), 1, kLanesMax));
  if (count < lanes_.size()) {
    // It was started anew with fewer: nothing of what is here is of this start.
    for (const Lane& one : lanes_) {
      if (one.call.get() != call && one.call != nullptr) ending->push_back(one.call);
    }
    replica_.forget();
  }
  lanes_.resize(count);
}

/// With mutex_.
void Follower::Task::take_entry(int lane, const v1::FollowReply& reply,
                                std::vector<std::shared_ptr<Call>>* ending) {
  Lane& at = lanes_[static_cast<size_t>(lane)];
  at.end = reply.end();
  if (reply.mark() != 0) {
    at.mark = reply.mark();
    at.mark_end = reply.end();
  }
  if (!reply.entry().empty()) {
    const Status applied = replica_.apply(reply.entry());
    if (!applied.ok()) {
      broke(base::with_context(applied, of_.task));
      at.wants_all = true;
      ending->push_back(at.call);
      return;
    }
  }
  const std::optional<LogPosition> position = replica_.shown_position(lane);
  if (!position.has_value() || position->incarnation != at.incarnation) return;
  is_mended_ = true;
  if (position->cut >= at.mark_end) at.marked = std::max(at.marked, at.mark);
  if (position->cut != at.end) return;
  at.wants_all = false;
  at.current = at.heard;
}

void Follower::Task::ended(int lane, const Call* call, const Status& status) {
  const std::lock_guard lock(mutex_);
  --open_;
  changed_.notify_all();
  if (static_cast<size_t>(lane) >= lanes_.size()) return;
  Lane& at = lanes_[static_cast<size_t>(lane)];
  if (at.call.get() != call) return;
  at.call = nullptr;
  at.is_in_sync = false;
  at.again = steady_clock::now() + kAgain;
  if (!status.ok() && status.code() != StatusCode::kCancelled) broke(status);
}

/// With mutex_.
bool Follower::Task::is_whole() const {
  std::optional<uint64_t> incarnation;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::optional<LogPosition> position = replica_.shown_position(static_cast<int>(i));
    if (!position.has_value() || !lanes_[i].current.has_value()) return false;
    if (position->incarnation != incarnation.value_or(position->incarnation)) return false;
    incarnation = position->incarnation;
  }
  return true;
}

/// With mutex_.
Status Follower::Task::why_not_whole() const {
  if (is_whole()) return {};
  if (status_.ok()) return base::unavailable("{} is not here as a whole", of_.task);
  return base::unavailable("{} is not here as a whole: {}: {}", of_.task,
                           base::code_name(status_.code()), base::message_of(status_));
}

Status Follower::Task::check_whole() const {
  if (is_whole_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return why_not_whole();
}

FollowedTask Follower::Task::now() const {
  const std::lock_guard lock(mutex_);
  return figures();
}

FollowedTask Follower::Task::take_news() {
  const std::lock_guard lock(mutex_);
  FollowedTask out = figures();
  if (is_mended_) status_ = {};
  return out;
}

/// With mutex_.
FollowedTask Follower::Task::figures() const {
  const steady_clock::time_point now = steady_clock::now();
  FollowedTask out{
      .task = of_.task, .is_whole = is_whole(), .is_in_sync = is_in_sync(), .status = status_};
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    const std::optional<LogPosition> position = replica_.position(static_cast<int>(i));
    if (position.has_value() && lane.end > position->cut) {
      out.cuts_behind = std::max(out.cuts_behind, lane.end - position->cut);
    }
    if (!lane.current.has_value()) continue;
    out.behind =
        std::max(out.behind, std::chrono::duration_cast<milliseconds>(now - *lane.current));
  }
  return out;
}

Status Follower::Task::copy_to(const Choose& choose, std::map<std::string, Tensor>* values) const {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(why_not_whole());
  for (const std::string& name : choose(replica_.names())) {
    const Result<Tensor> value = replica_.value(name);
    // A lookup table; or one of which only the name is here yet.
    if (!value.ok() || !value->defined()) continue;
    if (!values->try_emplace(name, value->clone()).second) {
      return base::failed_precondition("{} and another task both have '{}'", of_.task, name);
    }
  }
  return {};
}

std::vector<std::string> Follower::Task::groups() const {
  const std::lock_guard lock(mutex_);
  return groups_;
}

/// Keeps the copy of a task as it is.
class Follower::Task::HeldTask final : public Held {
 public:
  explicit HeldTask(std::shared_ptr<Task> task) : task_(std::move(task)) {
    const std::lock_guard lock(task_->mutex_);
    ++task_->holders_;
  }
  ~HeldTask() override {
    const std::lock_guard lock(task_->mutex_);
    --task_->holders_;
  }
  HeldTask(const HeldTask&) = delete;
  HeldTask& operator=(const HeldTask&) = delete;

  [[nodiscard]] bool is_whole() const override {
    const std::lock_guard lock(task_->mutex_);
    return task_->is_whole();
  }
  [[nodiscard]] std::vector<resources::PushedSoFar> pushed() const override {
    const std::lock_guard lock(task_->mutex_);
    return task_->replica_.pushed();
  }
  std::optional<std::string> next(size_t bytes_max) override {
    const std::lock_guard lock(task_->mutex_);
    if (!pieces_.has_value()) pieces_.emplace(&task_->replica_);
    return pieces_->next(bytes_max);
  }

 private:
  const std::shared_ptr<Task> task_;
  std::optional<resources::ReplicaPieces> pieces_;
};

std::unique_ptr<Follower::Held> Follower::Task::hold(const std::shared_ptr<Task>& task,
                                                     uint64_t life) {
  auto held = std::make_unique<HeldTask>(task);
  std::vector<std::shared_ptr<Call>> ending;
  {
    const std::lock_guard lock(task->mutex_);
    // The one that was followed; and the one that took it last, which may never have been.
    std::erase_if(task->deposed_, [life](const auto& one) { return one.first == life; });
    for (const uint64_t before : {task->life_, std::exchange(task->taken_by_, life)}) {
      if (before == 0 || before == life || task->heir_of(before) != 0) continue;
      if (task->deposed_.size() == kDeposedKept) task->deposed_.erase(task->deposed_.begin());
      task->deposed_.emplace_back(before, life);
    }
    for (Lane& lane : task->lanes_) {
      // What it brings from here on is dropped.
      if (lane.call != nullptr) ending.push_back(std::exchange(lane.call, nullptr));
      lane.is_in_sync = false;
    }
  }
  for (const auto& call : ending) call->hang_up();
  return held;
}

uint64_t Follower::Task::deposed_by(uint64_t life) const {
  const std::lock_guard lock(mutex_);
  return heir_of(life);
}

/// With mutex_.
uint64_t Follower::Task::heir_of(uint64_t life) const {
  const auto found = std::ranges::find(deposed_, life, &std::pair<uint64_t, uint64_t>::first);
  return found == deposed_.end() ? 0 : found->second;
}

std::vector<std::shared_ptr<Follower::Task::Call>> Follower::Task::calls() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Call>> out;
  for (const Lane& lane : lanes_) {
    if (lane.call != nullptr) out.push_back(lane.call);
  }
  return out;
}

void Follower::Task::stop() {
  for (const auto& call : calls()) call->hang_up();
  std::unique_lock lock(mutex_);
  static_cast<void>(changed_.wait_for(lock, kEndWait, [this] { return open_ == 0; }));
}

}  // namespace sidereal::service
