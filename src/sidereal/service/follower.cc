#include "sidereal/service/follower.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "sidereal/resources/replica.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/task.h"

namespace sidereal::service {

namespace v1 = session::v1;
using resources::LogPosition;
using resources::Replica;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::Tensor;

namespace {

/// A stream that has brought nothing for so long is broken: a lane says four times a second that
/// nothing is new, but while it computes one step.
constexpr milliseconds kSilence{10'000};
/// Before a stream that has ended is opened again.
constexpr milliseconds kAgain{250};
constexpr int kLanesMax = task::Task::kLanesMax;
constexpr int64_t kWindowBytes = int64_t{8} << 20;
/// For cancelled streams to end, which depends on this process alone.
constexpr std::chrono::seconds kEndWait{10};

}  // namespace

/// The copy of one task. Thread: any.
class Follower::Task : public std::enable_shared_from_this<Task> {
 public:
  Task(FollowedAddress of, std::shared_ptr<grpc::Channel> channel, FollowOptions options)
      : of_(std::move(of)),
        options_(std::move(options)),
        stub_(v1::Worker::NewStub(std::move(channel))),
        replica_(std::in_place, options_.bytes_max),
        lanes_(1) {}

  void look();
  void stop();
  [[nodiscard]] FollowedTask now();
  Status copy_to(const Choose& choose, std::map<std::string, Tensor>* values) const;

 private:
  class Call;
  struct Lane {
    std::shared_ptr<Call> call = nullptr;
    steady_clock::time_point again = {};  ///< Not opened before.
    steady_clock::time_point heard = {};
    /// When the task was last known to be what is here.
    std::optional<steady_clock::time_point> current = {};
    uint64_t incarnation = 0;  ///< Of the log that is read;
    uint64_t end = 0;          ///< the cut that it ends at.
    bool wants_all = false;    ///< Entries are no use: something here is not as the task has it.
  };

  /// False: the call is an old one, and its replies are dropped.
  bool take(int lane, const Call* call, v1::FollowReply* reply);
  void take_begun(const Call* call, const v1::FollowBegun& begun,
                  std::vector<std::shared_ptr<Call>>* ending);
  void take_entry(int lane, const v1::FollowReply& reply,
                  std::vector<std::shared_ptr<Call>>* ending);
  void ended(int lane, const Call* call, const Status& status);
  /// With mutex_.
  void broke(Status status) {
    status_ = std::move(status);
    is_mended_ = false;
  }
  [[nodiscard]] bool is_whole() const;
  [[nodiscard]] std::vector<std::shared_ptr<Call>> calls() const;

  const FollowedAddress of_;
  const FollowOptions options_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Replica> replica_;
  std::vector<Lane> lanes_;  // As many as the task last said; of the first one it is asked.
  Status status_;            // What broke,
  bool is_mended_ = false;   // and whether something has come since.
  size_t open_ = 0;          // Calls.
};

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
  void hang_up() { ClientStream::hang_up(); }

 private:
  void take(v1::FollowReply* reply) override {
    taken_ += reply->entry().size();
    if (!task_->take(lane_, this, reply)) return hang_up();
    v1::FollowRequest request;
    request.set_taken(taken_);
    put(std::move(request));
  }
  void ended(const grpc::Status& status) override {
    task_->ended(lane_, this, from_grpc(status, task_->of_.task + " at " + task_->of_.address));
  }

  const std::shared_ptr<Task> task_;
  const int lane_;
  uint64_t taken_ = 0;
};

void Follower::Task::look() {
  std::vector<std::pair<std::shared_ptr<Call>, v1::FollowHead>> starting;
  std::vector<std::shared_ptr<Call>> silent;
  const steady_clock::time_point now = steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
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
      const std::optional<LogPosition> position = replica_->position(static_cast<int>(i));
      if (position.has_value() && !lane.wants_all) {
        head.set_incarnation(position->incarnation);
        head.set_cut(position->cut);
      }
      head.set_cut_us(std::chrono::microseconds(options_.cut).count());
      head.set_window_bytes(kWindowBytes);
      lane.call = std::make_shared<Call>(shared_from_this(), static_cast<int>(i));
      lane.heard = now;
      ++open_;
      starting.emplace_back(lane.call, std::move(head));
    }
  }
  for (auto& [call, head] : starting) call->start(std::move(head));
  for (const auto& call : silent) call->hang_up();
}

bool Follower::Task::take(int lane, const Call* call, v1::FollowReply* reply) {
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
    if (reply->has_begun()) {
      take_begun(call, reply->begun(), &ending);
      if (static_cast<size_t>(lane) < lanes_.size()) {
        lanes_[static_cast<size_t>(lane)].incarnation = reply->begun().incarnation();
      }
    } else {
      take_entry(lane, *reply, &ending);
    }
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
    replica_.emplace(options_.bytes_max);
  }
  lanes_.resize(count);
}

/// With mutex_.
void Follower::Task::take_entry(int lane, const v1::FollowReply& reply,
                                std::vector<std::shared_ptr<Call>>* ending) {
  Lane& at = lanes_[static_cast<size_t>(lane)];
  at.end = reply.end();
  if (!reply.entry().empty()) {
    const Status applied = replica_->apply(reply.entry());
    if (!applied.ok()) {
      broke(base::with_context(applied, of_.task));
      at.wants_all = true;
      ending->push_back(at.call);
      return;
    }
  }
  const std::optional<LogPosition> position = replica_->position(lane);
  if (!position.has_value() || position->incarnation != at.incarnation) return;
  is_mended_ = true;
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
  at.again = steady_clock::now() + kAgain;
  if (!status.ok() && status.code() != StatusCode::kCancelled) broke(status);
}

/// With mutex_.
bool Follower::Task::is_whole() const {
  std::optional<uint64_t> incarnation;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::optional<LogPosition> position = replica_->position(static_cast<int>(i));
    if (!position.has_value() || !lanes_[i].current.has_value()) return false;
    if (position->incarnation != incarnation.value_or(position->incarnation)) return false;
    incarnation = position->incarnation;
  }
  return true;
}

FollowedTask Follower::Task::now() {
  const steady_clock::time_point now = steady_clock::now();
  const std::lock_guard lock(mutex_);
  FollowedTask out{.task = of_.task, .is_whole = is_whole(), .status = status_};
  if (is_mended_) status_ = {};
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    const std::optional<LogPosition> position = replica_->position(static_cast<int>(i));
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
  if (!is_whole()) {
    Status why = base::unavailable("{} is not here as a whole", of_.task);
    return status_.ok() ? why : base::with_context(status_, base::message_of(why));
  }
  for (const std::string& name : choose(replica_->names())) {
    const Result<Tensor> value = replica_->value(name);
    // A lookup table; or one of which only the name is here yet.
    if (!value.ok() || !value->defined()) continue;
    if (!values->try_emplace(name, value->clone()).second) {
      return base::failed_precondition("{} and another task both have '{}'", of_.task, name);
    }
  }
  return {};
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

Result<std::unique_ptr<Follower>> Follower::create(const std::vector<FollowedAddress>& tasks,
                                                   const security::SecurityOptions& security,
                                                   const FollowOptions& options) {
  if (tasks.empty()) return base::invalid_argument("there is no task to follow");
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(security));
  std::vector<std::shared_ptr<Task>> made;
  for (const FollowedAddress& one : tasks) {
    made.push_back(std::make_shared<Task>(one, make_channel(one.address, *credentials), options));
  }
  return std::unique_ptr<Follower>(new Follower(std::move(made)));
}

Follower::~Follower() {
  for (const auto& task : tasks_) task->stop();
}

void Follower::look() {
  for (const auto& task : tasks_) task->look();
}

std::vector<FollowedTask> Follower::tasks() {
  std::vector<FollowedTask> out;
  for (const auto& task : tasks_) out.push_back(task->now());
  return out;
}

Result<std::map<std::string, Tensor>> Follower::values(const Choose& choose) const {
  std::map<std::string, Tensor> out;
  for (const auto& task : tasks_) SR_RETURN_IF_ERROR(task->copy_to(choose, &out));
  return out;
}

}  // namespace sidereal::service
