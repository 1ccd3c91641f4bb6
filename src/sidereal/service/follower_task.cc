#include "sidereal/service/internal/follower_task.h"

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

/// How often a waiting caller is asked whether it still is one.
constexpr milliseconds kAsk{100};
constexpr int64_t kWindowBytes = int64_t{8} << 20;
/// For cancelled streams to end, which depends on this process alone.
constexpr std::chrono::seconds kEndWait{10};

/// For task::TaskCopy.
int64_t now_ns() {
  return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

/// A FollowChanges call.
class Follower::Task::Call final : public task::CopyStream,
                                   public ClientStream<v1::FollowRequest, v1::FollowReply> {
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

/// Those of a copy are all calls.
Follower::Task::Calls Follower::Task::calls_of(const task::TaskCopy::Streams& streams) {
  Calls out;
  for (const auto& one : streams) out.push_back(std::static_pointer_cast<Call>(one));
  return out;
}

void Follower::Task::look() {
  std::vector<std::pair<std::shared_ptr<Call>, v1::FollowHead>> starting;
  Calls silent;
  const int64_t now = now_ns();
  {
    const std::lock_guard lock(mutex_);
    silent = calls_of(copy_.silent(now));
    for (const int lane : copy_.due(now)) {
      v1::FollowHead head;
      head.set_version(kSessionVersion);
      head.set_task(of_.task);
      head.set_state_group(options_.state_group);
      head.set_lane(lane);
      auto call = std::make_shared<Call>(shared_from_this(), lane);
      if (const std::optional<LogPosition> after = copy_.open(lane, call, now)) {
        head.set_incarnation(after->incarnation);
        head.set_cut(after->cut);
      }
      head.set_cut_us(std::chrono::microseconds(options_.cut).count());
      head.set_window_bytes(kWindowBytes);
      head.set_synchronous(options_.is_synchronous);
      for (const std::string& name : options_.names) head.add_names(name);
      starting.emplace_back(std::move(call), std::move(head));
    }
  }
  for (auto& [call, head] : starting) call->start(std::move(head));
  for (const auto& call : silent) call->hang_up();
  uint64_t mark = 0;
  {
    const std::lock_guard lock(mutex_);
    mark = copy_.started();
  }
  if (mark == 0) return;
  for (const auto& [call, head] : starting) call->ask(mark);
}

void Follower::Task::ask(uint64_t mark) {
  Calls asked;
  {
    const std::lock_guard lock(mutex_);
    asked = calls_of(copy_.ask(mark));
  }
  for (const auto& call : asked) call->ask(mark);
}

Status Follower::Task::wait(uint64_t mark, steady_clock::time_point deadline,
                            const std::function<bool()>& is_cancelled) {
  std::unique_lock lock(mutex_);
  while (!copy_.is_here(mark)) {
    if (steady_clock::now() >= deadline) {
      SR_RETURN_IF_ERROR(copy_.why_not_whole());
      const bool waits = copy_.is_in_sync() || !options_.is_synchronous;
      Status late = base::deadline_exceeded("what {} has is not here in the time given{}", of_.task,
                                            waits ? "" : ", and it does not wait for this standby");
      const Status& broken = copy_.status();
      return broken.ok() ? late : base::with_context(broken, base::message_of(late));
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

bool Follower::Task::take(int lane, const Call* call, v1::FollowReply* reply, uint64_t* applied) {
  task::TaskCopy::Taken taken;
  const int64_t now = now_ns();
  {
    const std::lock_guard lock(mutex_);
    if (reply->has_failure()) {
      return copy_.failed(lane, call, task::from_proto(reply->failure()), now);
    }
    task::LaneSays said{.entry = reply->entry(),
                        .end = reply->end(),
                        .mark = reply->mark(),
                        .is_in_sync = reply->in_sync()};
    if (reply->has_begun()) {
      const v1::FollowBegun& begun = reply->begun();
      said.begun = {
          .lanes = begun.lanes(), .incarnation = begun.incarnation(), .life = begun.life()};
    }
    taken = copy_.take(lane, call, said, now);
    if (!taken.is_read) return false;
    if (reply->has_groups()) {
      groups_ = {reply->groups().names().begin(), reply->groups().names().end()};
    }
    if (taken.applied != 0) *applied = taken.applied;
    is_whole_.store(copy_.is_whole(), std::memory_order_release);
    if (is_whole_) was_whole_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  for (const auto& one : calls_of(taken.ending)) one->hang_up();
  return true;
}

void Follower::Task::ended(int lane, const Call* call, const Status& status) {
  const std::lock_guard lock(mutex_);
  copy_.ended(lane, call, status, now_ns());
  changed_.notify_all();
}

Status Follower::Task::check_whole() const {
  if (is_whole_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return copy_.why_not_whole();
}

FollowedTask Follower::Task::now() const {
  const std::lock_guard lock(mutex_);
  return figures();
}

FollowedTask Follower::Task::take_news() {
  const std::lock_guard lock(mutex_);
  FollowedTask out = figures();
  copy_.forget_what_is_mended();
  return out;
}

/// With mutex_.
FollowedTask Follower::Task::figures() const {
  return {.task = of_.task,
          .is_whole = copy_.is_whole(),
          .is_in_sync = copy_.is_in_sync(),
          .status = copy_.status(),
          .cuts_behind = copy_.cuts_behind(),
          .behind = std::chrono::duration_cast<milliseconds>(
              std::chrono::nanoseconds(copy_.behind_ns(now_ns())))};
}

Status Follower::Task::copy_to(const Choose& choose, std::map<std::string, Tensor>* values) const {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(copy_.why_not_whole());
  const resources::Replica& replica = copy_.replica();
  for (const std::string& name : choose(replica.names())) {
    const Result<Tensor> value = replica.value(name);
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
  explicit HeldTask(std::shared_ptr<Task> task) : task_(std::move(task)) {}
  ~HeldTask() override {
    const std::lock_guard lock(task_->mutex_);
    task_->copy_.let_go();
  }
  HeldTask(const HeldTask&) = delete;
  HeldTask& operator=(const HeldTask&) = delete;

  [[nodiscard]] bool is_whole() const override {
    const std::lock_guard lock(task_->mutex_);
    return task_->copy_.is_whole();
  }
  [[nodiscard]] std::vector<resources::PushedSoFar> pushed() const override {
    const std::lock_guard lock(task_->mutex_);
    return task_->copy_.replica().pushed();
  }
  std::optional<std::string> next(size_t bytes_max) override {
    const std::lock_guard lock(task_->mutex_);
    if (!pieces_.has_value()) pieces_.emplace(&task_->copy_.replica());
    return pieces_->next(bytes_max);
  }

 private:
  const std::shared_ptr<Task> task_;
  std::optional<resources::ReplicaPieces> pieces_;
};

std::unique_ptr<Follower::Held> Follower::Task::hold(const std::shared_ptr<Task>& task,
                                                     uint64_t life) {
  Calls ending;
  {
    const std::lock_guard lock(task->mutex_);
    ending = calls_of(task->copy_.hold(life));
  }
  auto held = std::make_unique<HeldTask>(task);
  for (const auto& call : ending) call->hang_up();
  return held;
}

uint64_t Follower::Task::deposed_by(uint64_t life) const {
  const std::lock_guard lock(mutex_);
  return copy_.heir_of(life);
}

void Follower::Task::stop() {
  Calls open;
  {
    const std::lock_guard lock(mutex_);
    open = calls_of(copy_.streams());
  }
  for (const auto& call : open) call->hang_up();
  std::unique_lock lock(mutex_);
  static_cast<void>(changed_.wait_for(lock, kEndWait, [this] { return copy_.open_count() == 0; }));
}

}  // namespace sidereal::service
