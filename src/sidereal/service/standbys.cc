#include "sidereal/service/standbys.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <set>
#include <utility>

#include "sidereal/base/log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/voting.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/sys/posix/process.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/origin.h"

namespace sidereal::service {

namespace v1 = session::v1;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// How often groups of sessions are looked for, and a task that cannot be reached is asked again.
constexpr milliseconds kLook{100};
/// For a copy to come, once it has begun to.
constexpr std::chrono::minutes kTakeLimit{10};
/// How often those that keep standbys of a task are asked whether it was deposed.
constexpr std::chrono::seconds kAskDeposed{1};
/// How long pushes wait for standbys that are not in sync before that is said.
constexpr std::chrono::seconds kSayWaits{2};
/// How long a start waits for its lease before it is said what for.
constexpr std::chrono::seconds kSayNoLease{5};
/// How long groups are kept for their sessions after a fill.
constexpr std::chrono::minutes kJoinLimit{2};

int64_t pushes_of(const std::vector<resources::PushedSoFar>& pushed) {
  int64_t out = 0;
  for (const resources::PushedSoFar& one : pushed) out += one.number;
  return out;
}

}  // namespace

/// A TakeCopy call.
class Standbys::Source {
 public:
  Source(Standbys* standbys, FollowedAddress host)
      : standbys_(*standbys),
        host_(std::move(host)),
        stub_(v1::Worker::NewStub(make_channel(host_.address, *standbys->options_.credentials))) {}
  ~Source() { hang_up(); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[nodiscard]] const std::string& host() const { return host_.task; }
  /// What the host has of the task: set by ask().
  [[nodiscard]] const v1::TakeCopyReply& has() const { return has_; }
  [[nodiscard]] int64_t pushes() const {
    int64_t out = 0;
    for (const v1::HeldCopy& one : has_.copies()) {
      for (const v1::PushedSoFar& pushed : one.pushed()) out += pushed.number();
    }
    return out;
  }

  /// kUnavailable while the host is not there.
  Status ask() { return ask(kTakeLimit, /*only_asks=*/false); }
  /// Whether this start was deposed: the later one, or 0.
  Result<uint64_t> ask_whether_deposed() {
    SR_RETURN_IF_ERROR(ask(standbys_.options_.ask_limit, /*only_asks=*/true));
    return has_.deposed_by();
  }
  bool read(v1::TakeCopyReply* reply) { return reader_->Read(reply); }
  /// Why nothing more is read; ok: all was.
  Status end() {
    const grpc::Status status = reader_->Finish();
    reader_ = nullptr;
    forget();
    return from_grpc(status, host_.task + " at " + host_.address);
  }

 private:
  Status ask(milliseconds limit, bool only_asks) {
    hang_up();
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(std::chrono::system_clock::now() + limit);
    {
      const std::lock_guard lock(standbys_.mutex_);
      if (standbys_.stops_) return base::cancelled("the task is stopping");
      standbys_.asking_.push_back(context_.get());
    }
    const StandbysOptions& options = standbys_.options_;
    v1::TakeCopyRequest request;
    request.set_version(kSessionVersion);
    request.set_task(options.task->name());
    request.set_life(options.task->incarnation());
    request.set_only_asks(only_asks);
    reader_ = stub_->TakeCopy(context_.get(), request);
    if (reader_->Read(&has_)) return {};
    const Status ended = end();
    return ended.ok() ? base::internal("{} has said nothing", host_.task) : ended;
  }
  void forget() {
    const std::lock_guard lock(standbys_.mutex_);
    std::erase(standbys_.asking_, context_.get());
  }
  void hang_up() {
    if (reader_ == nullptr) return forget();
    context_->TryCancel();
    static_cast<void>(end());
  }

  Standbys& standbys_;
  const FollowedAddress host_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::TakeCopyReply>> reader_;
  v1::TakeCopyReply has_;
};

Result<std::unique_ptr<Standbys>> Standbys::create(StandbysOptions options) {
  if (options.cluster->is_known()) {
    SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec::Tasks tasks,
                        options.cluster->now().spec.tasks(options.job));
    if (options.replicas > static_cast<int>(tasks.size())) {
      return base::invalid_argument(
          "replicas is {}, and job '{}' has {} tasks, each of which has one copy at most; start "
          "more tasks, or fewer replicas",
          options.replicas, options.job, tasks.size());
    }
    options.task->hold_off(
        base::unavailable("{} takes its variables from its standbys", options.task->name()));
  }
  return std::unique_ptr<Standbys>(new Standbys(std::move(options)));
}

Standbys::~Standbys() { stop(); }

void Standbys::start() {
  thread_ = std::thread([this] { run(); });
}

void Standbys::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stops_, true)) return;
    for (grpc::ClientContext* const one : asking_) one->TryCancel();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  std::vector<Hosted> ending;
  std::vector<std::function<void()>> gone;
  std::unique_ptr<PrimaryLease> lease;
  {
    const std::lock_guard lock(mutex_);
    lease.swap(lease_);
    ending.swap(hosted_);
    gone.swap(gone_);
  }
  for (const auto& then : gone) then();
}

/// False: it is to stop.
bool Standbys::wait(milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return stops_ || !gone_.empty(); });
  return !stops_;
}

void Standbys::run() {
  const bool was_known = options_.cluster->is_known();
  while (!options_.cluster->is_known()) {
    if (!wait(kLook)) return;
  }
  host();
  if (!get_lease()) return;
  if (was_known) fill();
  if (!look_at_lease()) return;
  options_.task->let_in();
  const steady_clock::time_point began = steady_clock::now();
  steady_clock::time_point asked = began;
  const std::vector<std::unique_ptr<Source>> keepers = hosts();
  for (const auto& keeper : keepers) keepers_.push_back(keeper->host());
  bool has_let_go = false;
  while (wait(kLook) && look_at_lease()) {
    look_for_groups();
    if (has_gone() || steady_clock::now() - asked >= kAskDeposed) {
      asked = steady_clock::now();
      ask_whether_deposed(keepers);
      say_whether_pushes_wait();
    } else if (has_said_waits_) {
      say_whether_pushes_wait();  // That they go on is not missed.
    }
    if (has_let_go || steady_clock::now() - began < kJoinLimit) continue;
    has_let_go = true;
    options_.task->stop_keeping_groups();
  }
}

/// Waits until this start counts, where the cluster has voters. False: it never will.
bool Standbys::get_lease() {
  const auto voters = options_.cluster->now().spec.tasks(kVoterJob);
  if (!voters.ok()) return true;
  PrimaryLeaseOptions options{.task = options_.task,
                              .lease = options_.lease,
                              .credentials = options_.credentials,
                              .source = options_.source};
  for (const auto& [index, address] : *voters) {
    options.voters.push_back({.task = cluster::task_name(kVoterJob, index), .address = address});
  }
  const steady_clock::time_point began = steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    lease_ = std::make_unique<PrimaryLease>(std::move(options));
  }
  bool has_said = false;
  while (wait(kLook) && look_at_lease()) {
    if (lease_->holds()) return true;
    if (steady_clock::now() - began < kSayNoLease) continue;
    const std::string why =
        fmt::format("{} waits for a majority of voters to say that it counts: {}",
                    options_.task->name(), lease_->why_not());
    options_.task->hold_off(base::unavailable("{}", why));
    if (!std::exchange(has_said, true)) base::log_warning("{}", why);
  }
  return false;
}

/// False: another start counts in place of this one.
bool Standbys::look_at_lease() {
  const std::optional<uint64_t> by = lease_ == nullptr ? std::nullopt : lease_->deposed_by();
  if (by.has_value() && !is_deposed_) {
    depose("voters", *by, fmt::format("its start {:016x} counts, say the voters", *by));
  }
  return !is_deposed_;
}

/// Those that keep standbys of this task.
std::vector<std::unique_ptr<Standbys::Source>> Standbys::hosts() {
  std::vector<std::unique_ptr<Source>> out;
  for (const FollowedAddress& host : neighbours(1)) {
    out.push_back(std::make_unique<Source>(this, host));
  }
  return out;
}

void Standbys::when_asked(std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!stops_) {
      gone_.push_back(std::exchange(then, nullptr));
      changed_.notify_all();
    }
  }
  if (then != nullptr) then();
}

bool Standbys::has_gone() const {
  const std::lock_guard lock(mutex_);
  return !gone_.empty();
}

/// Asks all that keep standbys of this task, and then tells those that have waited for it.
void Standbys::ask_whether_deposed(const std::vector<std::unique_ptr<Source>>& hosts) {
  std::vector<std::function<void()>> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(gone_);
  }
  for (const std::unique_ptr<Source>& host : hosts) {
    if (is_deposed_) break;
    const Result<uint64_t> by = host->ask_whether_deposed();
    // One that cannot be reached is asked again.
    if (by.ok() && *by != 0) {
      depose(host->host(), *by,
             fmt::format("its start {:016x} has what {} kept of this one", *by, host->host()));
    }
  }
  for (const auto& then : gone) then();
}

/// Once, when they have waited for long.
void Standbys::say_whether_pushes_wait() {
  const steady_clock::time_point now = steady_clock::now();
  if (options_.task->missing_standbys() == 0) {
    waits_since_.reset();
    has_said_waits_ = false;
    return;
  }
  if (!waits_since_.has_value()) waits_since_ = now;
  if (has_said_waits_ || now - *waits_since_ < kSayWaits) return;
  has_said_waits_ = true;
  base::emit(options_.source, base::Event::kPushesWait,
             {{"task", options_.task->name()}, {"standbys", base::join(keepers_, " ")}});
}

void Standbys::depose(const std::string& told_by, uint64_t by, const std::string& why) {
  is_deposed_ = true;
  const std::string& name = options_.task->name();
  // Before anything that takes time.
  options_.task->depose(
      task::with_origin(base::aborted("{} was deposed: {}; this is {:016x}; make a new session",
                                      name, why, options_.task->incarnation()),
                        {.task = name, .is_restarted = true}));
  base::emit(options_.source, base::Event::kTaskDeposed,
             {{"task", name}, {"by", fmt::format("{:016x}", by)}, {"told_by", told_by}});
  options_.deposed();
}

/// The tasks before this one (-1), or after it (1), that have to do with it.
std::vector<FollowedAddress> Standbys::neighbours(int direction) const {
  std::vector<FollowedAddress> out;
  const auto tasks = options_.cluster->now().spec.tasks(options_.job);
  if (!tasks.ok()) return out;
  const std::vector<std::pair<int, std::string>> all(tasks->begin(), tasks->end());
  const auto own = std::ranges::find(all, options_.index, &std::pair<int, std::string>::first);
  if (own == all.end()) return out;
  const auto count = static_cast<int>(all.size());
  for (int i = 1; i < std::min(options_.replicas, count); ++i) {
    const auto place = static_cast<int>(own - all.begin()) + direction * i;
    const auto& [index, address] = all[static_cast<size_t>((place + count) % count)];
    out.push_back({.task = cluster::task_name(options_.job, index), .address = address});
  }
  return out;
}

std::shared_ptr<Follower> Standbys::follow(const FollowedAddress& of,
                                           const std::string& group) const {
  auto made =
      Follower::create({of}, options_.credentials, {.state_group = group, .is_synchronous = true});
  if (made.ok()) return *std::move(made);
  base::log_warning("{} has no standby here: {}", of.task, base::message_of(made.status()));
  return nullptr;
}

void Standbys::host() {
  const std::vector<FollowedAddress> of = neighbours(-1);
  if (static_cast<int>(of.size()) + 1 < options_.replicas) {
    base::log_warning("{} was started with replicas={}, and its job has {} tasks only",
                      options_.task->name(), options_.replicas, of.size() + 1);
  }
  for (const FollowedAddress& one : of) {
    std::shared_ptr<Follower> shared = follow(one, "");
    if (shared == nullptr) continue;
    const std::lock_guard lock(mutex_);
    hosted_.push_back({.of = one, .by_group = {{"", std::move(shared)}}});
  }
}

/// Follows groups that have begun, and forgets what there is of those that have ended.
void Standbys::look_for_groups() {
  std::vector<std::shared_ptr<Follower>> ended;
  const std::lock_guard lock(mutex_);
  for (Hosted& hosted : hosted_) {
    const std::vector<std::string> names = hosted.by_group.at("")->groups();
    for (auto it = hosted.by_group.begin(); it != hosted.by_group.end();) {
      const bool stays = it->first.empty() || std::ranges::find(names, it->first) != names.end();
      if (!stays) ended.push_back(std::move(it->second));
      it = stays ? std::next(it) : hosted.by_group.erase(it);
    }
    for (const std::string& name : names) {
      if (name.empty() || hosted.by_group.contains(name)) continue;
      std::shared_ptr<Follower> made = follow(hosted.of, name);
      if (made != nullptr) hosted.by_group[name] = std::move(made);
    }
  }
}

std::vector<Standbys::Copy> Standbys::hold(const std::string& task, uint64_t life) {
  std::vector<Copy> out;
  const std::lock_guard lock(mutex_);
  for (const Hosted& hosted : hosted_) {
    if (hosted.of.task != task) continue;
    for (const auto& [group, follower] : hosted.by_group) {
      std::unique_ptr<Follower::Held> held = follower->hold(life);
      if (held->is_whole()) out.push_back({.state_group = group, .held = std::move(held)});
    }
  }
  return out;
}

uint64_t Standbys::deposed_by(const std::string& task, uint64_t life) const {
  const std::lock_guard lock(mutex_);
  for (const Hosted& hosted : hosted_) {
    if (hosted.of.task == task) return hosted.by_group.at("")->deposed_by(life);
  }
  return 0;
}

uint64_t Standbys::view() const {
  const std::lock_guard lock(mutex_);
  return lease_ == nullptr ? 0 : lease_->view();
}

std::optional<TakenCopy> Standbys::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

int64_t Standbys::current() const {
  const std::lock_guard lock(mutex_);
  int64_t out = 0;
  for (const Hosted& hosted : hosted_) {
    for (const auto& [group, follower] : hosted.by_group) {
      for (const FollowedTask& task : follower->tasks()) out += task.is_in_sync ? 1 : 0;
    }
  }
  return out;
}

/// Of those that are there in time, the calls that wait to give what they have.
std::vector<std::unique_ptr<Standbys::Source>> Standbys::ask_all(
    const std::vector<FollowedAddress>& hosts) {
  const steady_clock::time_point deadline = steady_clock::now() + options_.wait;
  std::vector<std::unique_ptr<Source>> out;
  for (const FollowedAddress& host : hosts) {
    auto source = std::make_unique<Source>(this, host);
    Status asked = source->ask();
    while (asked.code() == StatusCode::kUnavailable && steady_clock::now() < deadline) {
      if (!wait(kLook)) return {};
      asked = source->ask();
    }
    if (asked.ok()) {
      out.push_back(std::move(source));
    } else {
      base::log_warning("{} begins without what {} may have of it: {}", options_.task->name(),
                        host.task, base::message_of(asked));
    }
  }
  return out;
}

void Standbys::fill() {
  const steady_clock::time_point began = steady_clock::now();
  std::vector<std::unique_ptr<Source>> sources = ask_all(neighbours(1));
  std::erase_if(sources, [](const auto& one) { return one->has().copies().empty(); });
  if (sources.empty()) {
    base::log_info("{} begins with no variables: no standby has any", options_.task->name());
  }
  // The one that has most of what was pushed.
  std::ranges::stable_sort(sources, std::greater<>(),
                           [](const auto& one) { return one->pushes(); });
  for (const std::unique_ptr<Source>& source : sources) {
    const Status taken = take_from(source.get(), began);
    if (taken.ok()) return;
    // What was made before it failed is nobody's.
    options_.task->stop_keeping_groups();
    base::log_warning("{} has not taken its variables from {}: {}", options_.task->name(),
                      source->host(), base::message_of(taken));
  }
}

Status Standbys::take_from(Source* source, steady_clock::time_point began) {
  const auto memory = static_cast<size_t>(sys::posix::process_figures().memory_limit);
  std::vector<std::unique_ptr<resources::Replica>> copies;
  for (int i = 0; i < source->has().copies_size(); ++i) {
    copies.push_back(std::make_unique<resources::Replica>(memory));
  }
  TakenCopy taken{.from = source->host()};
  v1::TakeCopyReply reply;
  while (source->read(&reply)) {
    if (reply.copy() < 0 || static_cast<size_t>(reply.copy()) >= copies.size()) {
      return base::data_loss("a piece of copy {} of {}", reply.copy(), copies.size());
    }
    SR_RETURN_IF_ERROR(copies[static_cast<size_t>(reply.copy())]->apply(reply.piece()));
  }
  SR_RETURN_IF_ERROR(source->end());
  for (size_t i = 0; i < copies.size(); ++i) {
    const std::vector<resources::PushedSoFar> pushed = copies[i]->pushed();
    // Each says what the lanes had, with the variables of all.
    if (i == 0 || pushes_of(pushed) > pushes_of(taken.pushed)) taken.pushed = pushed;
    std::vector<resources::Replica::Taken> values = copies[i]->take_all();
    for (const resources::Replica::Taken& one : values) {
      const tensor::Shape& shape = one.value.shape();
      ++taken.variables;
      if (one.table != nullptr) {
        taken.rows += one.table->size();
        taken.bytes += one.table->bytes();
      } else {
        taken.rows += shape.rank() > 0 ? shape.dim(0) : 1;
        taken.bytes += static_cast<int64_t>(one.value.nbytes());
      }
    }
    const std::string& group = source->has().copies(static_cast<int>(i)).state_group();
    SR_RETURN_IF_ERROR(options_.task->fill(group, std::move(values)));
  }
  taken.seconds = std::chrono::duration<double>(steady_clock::now() - began).count();
  base::emit(options_.source, base::Event::kStandbyTaken,
             {{"task", options_.task->name()},
              {"standby", taken.from},
              {"variables", taken.variables},
              {"rows", taken.rows},
              {"bytes", taken.bytes},
              {"seconds", taken.seconds}});
  const std::lock_guard lock(mutex_);
  taken_ = std::move(taken);
  return {};
}

}  // namespace sidereal::service
