#include "sidereal/task/task.h"

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/exec/workers.h"
#include "sidereal/ports/ports.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/task/change_logs.h"
#include "sidereal/task/origin.h"
#include "sidereal/task/task_lane.h"
#include "sidereal/task/task_programs.h"

namespace sidereal::task {

using tensor::Tensor;

namespace {

/// Has waiting steps look again while there are lanes. Thread: any.
struct Waker {
  std::mutex mutex;
  std::function<void()> wake;  ///< Empty once the task stops.

  void call() {
    const std::lock_guard lock(mutex);
    if (wake) wake();
  }
};

/// Datasets whose threads wake the steps that wait for an element.
class WakingDatasets final : public ports::Datasets {
 public:
  WakingDatasets(std::shared_ptr<ports::Datasets> datasets, std::shared_ptr<Waker> waker)
      : datasets_(std::move(datasets)), waker_(std::move(waker)) {}

  Result<std::shared_ptr<ports::ElementReading>> open(std::string_view definition,
                                                      const std::vector<tensor::Tensor>& values,
                                                      std::function<void()> changed) override {
    return datasets_->open(definition, values, [changed = std::move(changed), waker = waker_] {
      changed();
      waker->call();
    });
  }

 private:
  std::shared_ptr<ports::Datasets> datasets_;
  std::shared_ptr<Waker> waker_;
};

TaskOptions waking(TaskOptions options, const std::shared_ptr<Waker>& waker) {
  if (options.datasets != nullptr) {
    options.datasets = std::make_shared<WakingDatasets>(std::move(options.datasets), waker);
  }
  return options;
}

}  // namespace

class Task::Impl final : private exec::VariableLanes {
 public:
  explicit Impl(TaskOptions options)
      : options_(waking(std::move(options), waker_)),
        programs_(
            options_, this, [waker = waker_] { waker->call(); }, push_counts_) {}

  Status create_lanes() {
    for (int index = 0; index < options_.lanes; ++index) {
      lanes_.push_back(std::make_shared<TaskLane>(&options_, index, &programs_,
                                                  [this, index] { tell_others(index); }));
      lanes_.back()->changes()->set_task(&change_logs_);
      SR_RETURN_IF_ERROR(lanes_.back()->create(
          options_.stepped.empty() ? LaneSystem{.network = network_.get(), .clock = clock_.get()}
                                   : options_.stepped[static_cast<size_t>(index)]));
    }
    return {};
  }

  void start(const std::vector<Peers*>& peers) {
    SR_CHECK(peers.size() == 1 || peers.size() == lanes_.size(), "one for all, or one for each");
    can_call_ = peers.front()->can_run();
    programs_.let_call(can_call_);
    for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i]->start(peers[peers.size() == 1 ? 0 : i]);
    const std::lock_guard lock(waker_->mutex);
    waker_->wake = [this] { tell_others(kNoLane); };
  }

  void answer_until(int64_t ns) {
    if (!programs_.answer_until(ns)) return;
    for (const auto& lane : lanes_) lane->answer_held();
  }

  void depose(const Status& why) {
    programs_.hold_off(why);
    for (const auto& lane : lanes_) lane->depose(why);
  }

  void stop() {
    if (stopped_.exchange(true)) return;
    {
      const std::lock_guard lock(waker_->mutex);
      waker_->wake = nullptr;
    }
    programs_.stop_all();
    for (const auto& lane : lanes_) lane->refuse();
    for (const auto& lane : lanes_) lane->stop();
  }

  [[nodiscard]] TaskLane* lane(int index) const {
    return lanes_[static_cast<uint32_t>(index) % lanes_.size()].get();
  }
  /// Where a step is.
  [[nodiscard]] TaskLane* home(uint64_t step) const { return lane(lane_hint(step)); }

  void close_session(uint64_t id) {
    TaskPrograms::Closed closed = programs_.close_session(id);
    for (size_t i = 0; i < closed.programs.size(); ++i) {
      lanes_[i]->close_session(id, std::move(closed.programs[i]), closed.container);
    }
  }

  /// Loops have steps of one session on several lanes.
  void when_async_pushes_done(uint64_t session, const std::function<void(const Status&)>& done) {
    struct Waiting {
      std::mutex mutex;
      size_t missing = 0;
      Status first;
    };
    const auto waiting = std::make_shared<Waiting>();
    waiting->missing = lanes_.size();
    const auto one_done = [waiting, done](const Status& status) {
      {
        const std::lock_guard lock(waiting->mutex);
        if (waiting->first.ok()) waiting->first = status;
        if (--waiting->missing > 0) return;
      }
      done(waiting->first);
    };
    for (const auto& lane : lanes_) lane->when_async_pushes_done(session, one_done);
  }

  Status reset(const std::vector<std::string>& containers) {
    programs_.reset(containers);
    bool posted = true;
    for (const auto& lane : lanes_) posted = lane->reset() && posted;
    return posted ? Status() : is_stopping(options_.name);
  }

  AnsweredPushes& answered_pushes(int lane) {
    return answered_pushes_[static_cast<uint32_t>(lane) % answered_pushes_.size()];
  }
  [[nodiscard]] std::vector<resources::PushedSoFar> answered_pushes() const {
    // Several lanes may have heard of one place: the latest says all.
    AnsweredPushes all;
    for (const AnsweredPushes& of_lane : answered_pushes_) of_lane.add_to(&all);
    return all.latest();
  }

  metrics::Readings figures() {
    using metrics::gauge;
    using metrics::Unit;
    metrics::Readings out;
    out.add(
        gauge("sidereal_task_lanes", Unit::kCount, "Lanes, which run steps beside one another."),
        static_cast<int64_t>(lanes_.size()));
    out.add(gauge("sidereal_task_sessions", Unit::kCount, "Sessions that are open on the task."),
            programs_.sessions());
    out.add(gauge("sidereal_task_programs", Unit::kCount, "Programs that are registered."),
            programs_.programs());
    const TaskPrograms::Resources resources = programs_.resources();
    out.add(gauge("sidereal_task_resources", Unit::kCount,
                  "Variables, queues and tables that are kept by name."),
            resources.count);
    out.add(gauge("sidereal_task_resource_bytes", Unit::kBytes,
                  "Bytes of what is kept by name, where that is known."),
            resources.bytes);
    out.add(metrics::counter("sidereal_repeated_changes_total", Unit::kCount,
                             "Changes of closures that ran again, which were made before and are "
                             "not made twice."),
            push_counts_->repeated());
    programs_.read_staleness(&out);
    read_hot_rows(programs_.hot_variables(), &out);
    for (const auto& lane : lanes_) lane->read_figures(&out);
    return out;
  }

  Result<std::shared_ptr<ChangesReader>> read_changes(const ChangesWanted& wanted,
                                                      std::shared_ptr<ChangesSink> sink) {
    SR_ASSIGN_OR_RETURN(std::shared_ptr<Container> container,
                        programs_.container(wanted.state_group));
    return change_logs_.read(wanted, std::move(container), std::move(sink));
  }

  [[nodiscard]] const TaskOptions& options() const { return options_; }
  [[nodiscard]] TaskPrograms& programs() { return programs_; }

 private:
  bool post(int lane, std::function<void()> fn) override {
    return lanes_[static_cast<size_t>(lane)]->post(std::move(fn));
  }
  bool answer(int lane, uint64_t step, std::function<void()> fn) override {
    // The thread of the lane that did it.
    int changed = TaskLane::kNoLane;
    if (resources::PushCounts::here() == push_counts_.get()) {
      const int here = resources::PushCounts::lane_here();
      if (lanes_[static_cast<size_t>(here)]->changes()->has_changed()) changed = here;
    }
    return lanes_[static_cast<size_t>(lane)]->answer(step, changed, std::move(fn));
  }
  [[nodiscard]] int count() const override { return options_.lanes; }
  exec::BufferPool* pool(int lane) override { return lanes_[static_cast<size_t>(lane)]->pool(); }
  exec::Workers* workers(int lane) override { return lanes_[static_cast<size_t>(lane)]->workers(); }
  [[nodiscard]] bool are_planned() const override { return can_call_; }
  [[nodiscard]] std::span<resources::ChangeLog* const> logs(int lane) const override {
    return lanes_[static_cast<size_t>(lane)]->changes()->logs();
  }
  int next() override {
    return static_cast<int>(new_variables_++ % static_cast<uint64_t>(options_.lanes));
  }

  /// Steps of other lanes may wait for what a step of this one has changed.
  void tell_others(int index) const {
    for (const auto& other : lanes_) {
      if (other->index() != index && other->any_blocked()) static_cast<void>(other->look_again());
    }
  }

  static constexpr int kNoLane = -1;

  const std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  const TaskOptions options_;
  const std::shared_ptr<resources::PushCounts> push_counts_ =
      std::make_shared<resources::PushCounts>(options_.incarnation);
  std::vector<AnsweredPushes> answered_pushes_{static_cast<size_t>(options_.lanes)};
  TaskPrograms programs_;
  bool can_call_ = false;  // Since start().
  std::atomic<uint64_t> new_variables_ = 0;
  std::atomic<bool> stopped_ = false;
  const std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  const std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::vector<std::shared_ptr<TaskLane>> lanes_;
  ChangeLogs change_logs_{&lanes_, options_.incarnation, push_counts_};
};

std::shared_ptr<Peers::Run> Peers::run(const std::string& /*task*/, const Call& /*call*/,
                                       std::span<const Tensor> /*feeds*/, RunDone* /*done*/) {
  SR_CHECK(can_run(), "a program that calls was loaded where nothing carries calls");
  return nullptr;
}

Task::Task(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Task::~Task() { stop(); }

Result<std::unique_ptr<Task>> Task::create(TaskOptions options) {
  if (options.intra_op_threads < 1 || options.intra_op_threads > exec::Workers::kThreadsMax) {
    return base::invalid_argument("intra_op_threads is {}; it must be from 1 to {}",
                                  options.intra_op_threads, exec::Workers::kThreadsMax);
  }
  if (options.lanes < 1 || options.lanes > kLanesMax) {
    return base::invalid_argument("lanes is {}; it must be from 1 to {}", options.lanes, kLanesMax);
  }
  if (!options.stepped.empty() && options.stepped.size() != static_cast<size_t>(options.lanes)) {
    return base::invalid_argument("{} lanes, of which {} are stepped; it must be all or none",
                                  options.lanes, options.stepped.size());
  }
  auto impl = std::make_unique<Impl>(std::move(options));
  SR_RETURN_IF_ERROR(impl->create_lanes());
  return std::unique_ptr<Task>(new Task(std::move(impl)));
}

void Task::start(const std::vector<Peers*>& peers) { impl_->start(peers); }
bool Task::post(int lane, std::function<void()> fn) {
  return impl_->lane(lane)->post(std::move(fn));
}

bool Task::post_urgent(int lane, std::function<void()> fn) {
  return impl_->lane(lane)->post_urgent(std::move(fn));
}
int Task::lanes() const { return impl_->options().lanes; }
lane::Lane* Task::lane(int index) const { return impl_->lane(index)->lane(); }
const std::string& Task::name() const { return impl_->options().name; }
uint64_t Task::incarnation() const { return impl_->options().incarnation; }
Status Task::open_session(uint64_t session, const SessionState& state, const std::string& worker) {
  return impl_->programs().open_session(session, state, worker);
}
uint64_t Task::state_of(uint64_t session) const { return impl_->programs().state_of(session); }
void Task::close_session(uint64_t session) { impl_->close_session(session); }
void Task::when_async_pushes_done(uint64_t session,
                                  const std::function<void(const Status&)>& done) {
  impl_->when_async_pushes_done(session, done);
}
void Task::lose_async_pushes(uint64_t session, const std::string& task, const Status& why) {
  for (int lane = 0; lane < lanes(); ++lane)
    impl_->lane(lane)->lose_async_pushes(session, task, why);
}
Result<uint64_t> Task::register_program(uint64_t session, NewProgram program) {
  const int lane = impl_->lane(program.lane)->index();
  return impl_->programs().add(session, std::move(program), lane);
}
Status Task::check(uint64_t session, uint64_t program, int64_t feeds) const {
  return impl_->programs().check(session, program, feeds);
}
void Task::run(ProgramCall* call, Done done) {
  TaskLane* const lane = call->whole ? impl_->lane(call->lane) : impl_->home(call->step);
  lane->run(call, std::move(done));
}
void Task::cancel(uint64_t step) { impl_->home(step)->cancel(step); }
void Task::cancel(uint64_t step, int lane) { impl_->lane(lane)->cancel(step); }
void Task::end_step(uint64_t step) { impl_->home(step)->end_step(step); }
void Task::ask(uint64_t step, std::span<const ports::RendezvousKey> keys,
               const base::RefPtr<Receiver>& receiver) {
  impl_->home(step)->ask(step, keys, receiver);
}
void Task::withdraw(uint64_t step, const base::RefPtr<Receiver>& receiver) {
  impl_->home(step)->withdraw(step, receiver);
}
Result<std::shared_ptr<ChangesReader>> Task::read_changes(const ChangesWanted& wanted,
                                                          std::shared_ptr<ChangesSink> sink) {
  return impl_->read_changes(wanted, std::move(sink));
}
void Task::hold_off(Status why) { impl_->programs().hold_off(std::move(why)); }
void Task::answer_until(int64_t ns) { impl_->answer_until(ns); }
void Task::depose(const Status& why) { impl_->depose(why); }
void Task::let_in() { impl_->programs().hold_off({}); }
Status Task::fill(const std::string& state_group, std::vector<resources::Replica::Taken> values) {
  return impl_->programs().fill(state_group, std::move(values));
}
std::vector<std::string> Task::groups() const { return impl_->programs().groups(); }
void Task::stop_keeping_groups() { impl_->programs().stop_keeping_groups(); }
Status Task::keep_group(const std::string& state_group) {
  return impl_->programs().keep_group(state_group);
}
void Task::let_go_of_group(const std::string& state_group) {
  impl_->programs().let_go_of_group(state_group);
}
void Task::adopt(const std::string& state_group, std::vector<resources::Replica::Taken> values,
                 std::function<void(Result<Adopted>)> then) {
  impl_->programs().adopt(
      state_group, std::move(values), std::move(then),
      [impl = impl_.get()](int lane, const Container& container, std::function<void()> kept) {
        impl->lane(lane)->changes()->when_acknowledged(container, std::span(&lane, 1),
                                                       std::move(kept));
      });
}
void Task::stay(const Adopted& adopted) { TaskPrograms::stay(adopted); }
void Task::forget(const std::string& state_group, const Adopted& adopted) {
  impl_->programs().forget(state_group, adopted);
}
Status Task::reset(const std::vector<std::string>& containers) { return impl_->reset(containers); }
AnsweredPushes& Task::answered_pushes(int lane) { return impl_->answered_pushes(lane); }
std::vector<resources::PushedSoFar> Task::answered_pushes() const {
  return std::as_const(*impl_).answered_pushes();
}
metrics::Readings Task::figures() const { return impl_->figures(); }
int64_t Task::missing_standbys() const {
  int64_t out = 0;
  for (int i = 0; i < lanes(); ++i) out += impl_->lane(i)->changes()->missing_standbys();
  return out;
}
std::vector<HotVariable> Task::hot_variables() const { return impl_->programs().hot_variables(); }
void Task::stop() { impl_->stop(); }

}  // namespace sidereal::task
