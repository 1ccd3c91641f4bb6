#include "sidereal/service/primary_lease.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/membership/lease.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/voting.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/sys/posix/process.h"

namespace sidereal::service {

namespace v1 = session::v1;
using membership::Lease;
using membership::ProcessId;

namespace {

sys::posix::ProcessMark mark_of(const ProcessId& process) {
  return {.machine = process.machine, .pid = process.pid, .started = process.started};
}

ProcessId own_process() {
  const sys::posix::ProcessMark own = sys::posix::own_mark();
  return {.machine = own.machine, .pid = own.pid, .started = own.started};
}

}  // namespace

/// Outlives its owner as long as a call is under way.
class PrimaryLease::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(PrimaryLeaseOptions options)
      : options_(std::move(options)),
        clock_(sys::posix::create_clock()),
        random_(sys::posix::create_random()),
        lease_({.task = options_.task->name(),
                .life = options_.task->incarnation(),
                .process = own_process(),
                .voters = static_cast<int>(options_.voters.size()),
                .lease_ns = options_.lease.count(),
                .random = [this] { return random_->next(); }}),
        began_(clock_->now()) {
    options_.task->answer_until(0);
    for (const FollowedAddress& voter : options_.voters) {
      stubs_.push_back(v1::Worker::NewStub(make_channel(voter.address, *options_.credentials)));
    }
    refused_.resize(stubs_.size());
  }

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
      for (const auto& call : calls_) call->context.TryCancel();
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_.empty(); });  // Which were cancelled.
  }

  bool holds() {
    const std::lock_guard lock(mutex_);
    return lease_.holds(clock_->now());
  }
  std::string why_not() {
    const std::lock_guard lock(mutex_);
    const Lease::Other& other = lease_.other();
    std::string out;
    if (other.life != 0) {
      out = fmt::format("its start {:016x} counts, or has lately", other.life);
      if (other.process.pid != 0) out += fmt::format(" (process {})", other.process.pid);
    } else {
      out = fmt::format("{} of {} voters have answered", lease_.answered(), lease_.all());
      if (lease_.wait_ns() > 0) {
        out += fmt::format(", and begin to vote in {:.1f} s, when old promises have ended",
                           1e-9 * static_cast<double>(lease_.wait_ns()));
      }
    }
    for (size_t i = 0; i < refused_.size(); ++i) {
      if (refused_[i].ok()) continue;
      return out + fmt::format("; {}: {}", options_.voters[i].task, base::message_of(refused_[i]));
    }
    return out;
  }
  std::optional<uint64_t> deposed_by() {
    const std::lock_guard lock(mutex_);
    if (!lease_.is_deposed()) return std::nullopt;
    return lease_.deposed_by();
  }
  uint64_t view() {
    const std::lock_guard lock(mutex_);
    return lease_.view();
  }

 private:
  /// One question to one voter.
  struct Call {
    grpc::ClientContext context;
    v1::AskVoteRequest request;
    v1::AskVoteReply reply;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!stops_) {
      const int64_t now = clock_->now();
      tell(now);
      if (lease_.is_deposed()) return;
      if (now >= lease_.due()) ask_all(now);
      // Also when it ends, so that this is said.
      int64_t wake = lease_.due();
      if (lease_.until() > now) wake = std::min(wake, lease_.until());
      changed_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(wake - now, 1)));
    }
  }

  /// In the log, that it holds or does not.
  void tell(int64_t now) {
    const bool holds = lease_.holds(now);
    if (holds == held_) return;
    held_ = holds;
    if (holds) {
      base::emit(options_.source, base::Event::kLeaseHeld,
                 {{"task", options_.task->name()},
                  {"view", static_cast<int64_t>(lease_.view())},
                  {"seconds", 1e-9 * static_cast<double>(now - began_)}});
      return;
    }
    began_ = now;
    base::emit(options_.source, base::Event::kLeaseLost,
               {{"task", options_.task->name()},
                {"view", static_cast<int64_t>(lease_.view())},
                {"voters", base::some_of(options_.voters, 8,
                                         [](const FollowedAddress& one) { return one.task; })}});
  }

  void ask_all(int64_t now) {
    const membership::Ask ask = lease_.begin(now);
    const uint64_t round = lease_.round();
    for (size_t i = 0; i < stubs_.size(); ++i) {
      const auto call = std::make_shared<Call>();
      to_proto(ask, &call->request);
      call->request.set_version(kSessionVersion);
      // What comes later is of no use.
      call->context.set_deadline(std::chrono::system_clock::now() + options_.lease);
      calls_.push_back(call);
      stubs_[i]->async()->AskVote(
          &call->context, &call->request, &call->reply,
          [self = shared_from_this(), call, i, round](const grpc::Status& status) {
            self->answered(call, i, round, status);
          });
    }
  }

  void answered(const std::shared_ptr<Call>& call, size_t voter, uint64_t round,
                const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    std::erase(calls_, call);
    if (stops_) return changed_.notify_all();
    refused_[voter] = from_grpc(status, options_.voters[voter].address);
    if (!status.ok()) return;
    const int64_t now = clock_->now();
    lease_.take(static_cast<int>(voter), round, from_proto(call->reply), now);
    if (lease_.until() > told_) {
      told_ = lease_.until();
      options_.task->answer_until(told_);
    }
    const Lease::Other other = lease_.other();
    if (other.life != 0 && sys::posix::has_ended(mark_of(other.process))) {
      lease_.knows_gone(other.life, now);
    }
    changed_.notify_all();
  }

  const PrimaryLeaseOptions options_;
  const std::unique_ptr<sys::Clock> clock_;
  const std::unique_ptr<sys::Random> random_;
  std::vector<std::unique_ptr<v1::Worker::Stub>> stubs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Lease lease_;
  std::vector<std::shared_ptr<Call>> calls_;  // Under way.
  std::vector<Status> refused_;               // By voter: why it said nothing when last asked.
  int64_t told_ = 0;                          // Till when the task answers.
  int64_t began_ = 0;                         // To wait for the lease.
  bool held_ = false;
  bool stops_ = false;
  std::thread thread_;
};

PrimaryLease::PrimaryLease(PrimaryLeaseOptions options)
    : impl_(std::make_shared<Impl>(std::move(options))) {
  impl_->start();
}
PrimaryLease::~PrimaryLease() { impl_->stop(); }
bool PrimaryLease::holds() const { return impl_->holds(); }
std::string PrimaryLease::why_not() const { return impl_->why_not(); }
std::optional<uint64_t> PrimaryLease::deposed_by() const { return impl_->deposed_by(); }
uint64_t PrimaryLease::view() const { return impl_->view(); }

}  // namespace sidereal::service
