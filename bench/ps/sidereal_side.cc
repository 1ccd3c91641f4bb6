// Our side: the task of a ps in one process, that of a worker in another, each with one lane, as
// servers make them; the programs are those that a session registers for look-ups in a table.
#include <array>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/ir/builder.h"
#include "sidereal/kernels/optimizer_rules.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/task/data_channels.h"
#include "sidereal/task/data_port.h"
#include "work.h"

namespace sidereal::bench {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr const char* kPs = "/job:ps/replica:0/task:0";
constexpr const char* kWorker = "/job:worker/replica:0/task:0";
constexpr int64_t kSpinAlways = -1;
constexpr uint64_t kSession = 0x100;

std::string cpu_of(const char* task) { return std::string(task) + "/device:CPU:0"; }

config::Options data_options() {
  config::Options options;
  options.keepalive_timeout_ms = 600'000;  // Processes stand still while others are measured.
  return options;
}

/// What a step of a session does with the table: a graph, and the program that its calls run.
class StepGraph {
 public:
  StepGraph() { ops::register_all(&registry_); }

  /// Gives weights and accumulator their first values.
  Result<program::CallSpec> first_values(std::string* bytes) {
    const auto give = [this](ir::Output handle, double value) {
      const ir::Output full = add(kPs, "Fill", {constant(static_cast<float>(value))},
                                  {{"shape", std::vector<int64_t>{kTableRows, kDim}}});
      targets_.push_back(add(kPs, "VariableAssign", {handle, full}).node);
    };
    give(variable("table"), kFirstWeight);
    give(variable("table/slot"), rule().initial_slot(0));
    return call(bytes);
  }
  /// Rows of the table for the worker.
  Result<program::CallSpec> pull(std::string* bytes) {
    const ir::Output whole = add(kPs, "VariableRead", {variable("table")},
                                 {{"dtype", DType::kFloat32}, {"shape", kTable}});
    fetches_.push_back(add(kPs, "Gather", {whole, ids()}));
    return call(bytes);
  }
  /// One step by gradients of the worker.
  Result<program::CallSpec> push(std::string* bytes) {
    const ir::Output gradients =
        add(kWorker, "Placeholder", {},
            {{"dtype", DType::kFloat32}, {"shape", Shape{-1, kFields, kDim}}}, "gradients");
    targets_.push_back(
        add_node(kPs, "VariableUpdateRows",
                 {variable("table"), ids(), gradients, constant(1.0),
                  constant(static_cast<float>(kLearningRate)), variable("table/slot")},
                 {{"kind", std::string("adagrad")}}));
    return call(bytes);
  }
  static kernels::UpdateRule rule() {
    return kernels::UpdateRule::of("adagrad", {{"learning_rate", kLearningRate}});
  }

 private:
  const Shape kTable = {kTableRows, kDim};

  ir::NodeId add_node(const char* task, std::string_view op, const std::vector<ir::Output>& inputs,
                      ir::AttrMap attrs = {}, std::string_view name = {}) {
    const ir::NodeId node = builder_.add_node(op, inputs, std::move(attrs), {}, name);
    if (builder_.status().ok()) graph_.mutable_node(node).device = cpu_of(task);
    return node;
  }
  ir::Output add(const char* task, std::string_view op, const std::vector<ir::Output>& inputs,
                 ir::AttrMap attrs = {}, std::string_view name = {}) {
    return {add_node(task, op, inputs, std::move(attrs), name), 0};
  }
  template <class T>
  ir::Output constant(T value) {
    return add(kPs, "Const", {}, {{"value", Tensor::scalar(value)}});
  }
  ir::Output variable(const std::string& name) {
    return add(kPs, "Variable", {},
               {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", kTable}}, name);
  }
  ir::Output ids() {
    return add(kWorker, "Placeholder", {},
               {{"dtype", DType::kInt64}, {"shape", Shape{-1, kFields}}}, "ids");
  }

  /// Cuts the step as a master does. The one call that is made of it, and its program.
  Result<program::CallSpec> call(std::string* bytes) {
    SR_RETURN_IF_ERROR(builder_.status());
    SR_ASSIGN_OR_RETURN(const passes::StepGraph plan,
                        passes::run_passes(graph_, fetches_, targets_, registry_));
    SR_ASSIGN_OR_RETURN(const partition::PartitionedGraph cut,
                        partition::pull_push_by_device(plan.graph, cpu_of(kWorker), plan.fetches,
                                                       plan.targets, registry_));
    SR_ASSIGN_OR_RETURN(program::CompiledStep step, program::compile(cut));
    SR_CHECK(step.remotes.size() == 1 && step.worker.calls.size() == 1);
    const program::RemoteProgram& remote = step.remotes[0];
    // Ids first, as the worker sends them.
    const std::vector<int32_t>& feeds = remote.program.feeds;
    SR_CHECK(feeds.empty() || remote.program.slots[feeds[0]].dtype == DType::kInt64);
    *bytes = remote.bytes;
    return step.worker.calls[0];
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder builder_{&graph_, &registry_};
  std::vector<ir::Output> fetches_;
  std::vector<ir::NodeId> targets_;
};

/// A task of one lane with a data port, and channels to the data port of the ps.
class BenchTask {
 public:
  /// `ps_port`: of the data port; 0 where nothing is called.
  static Result<std::unique_ptr<BenchTask>> create(const char* name, int cpu, int ps_port) {
    std::unique_ptr<BenchTask> out(new BenchTask());
    SR_ASSIGN_OR_RETURN(out->task_, task::Task::create({.name = name,
                                                        .incarnation = out->random_->next() | 1,
                                                        .spin_us = kSpinAlways,
                                                        .cpus = {cpu}}));
    task::Task* const task = out->task_.get();
    SR_ASSIGN_OR_RETURN(
        out->endpoint_,
        transport::Endpoint::create(
            task->lane(0), {.task = name, .incarnation = task->incarnation()}, data_options()));
    SR_ASSIGN_OR_RETURN(out->port_,
                        task::DataPort::create(task, 0, out->endpoint_.get(), {"127.0.0.1", 0}));
    out->channels_ = std::make_unique<task::DataChannels>(
        task, out->endpoint_.get(),
        [task, ps_port](const std::string& /*name*/, int /*lane*/, uint64_t /*incarnation*/,
                        std::function<void(Result<task::LaneAddress>)> done) {
          const task::LaneAddress ps = {.address = {"127.0.0.1", static_cast<uint16_t>(ps_port)}};
          static_cast<void>(task->post_urgent(0, [ps, done = std::move(done)] { done(ps); }));
        },
        [](const std::string& peer) { return peer; }, out->random_.get());
    task->start({out->channels_.get()});
    return out;
  }
  ~BenchTask() { task_->stop(); }
  BenchTask(const BenchTask&) = delete;
  BenchTask& operator=(const BenchTask&) = delete;

  [[nodiscard]] int port() const { return port_->port(); }
  [[nodiscard]] task::Task& task() { return *task_; }
  [[nodiscard]] task::DataChannels& channels() { return *channels_; }

  /// Registers a program and runs it here.
  Status run(const std::string& bytes, uint64_t step, std::vector<Tensor> feeds) {
    SR_ASSIGN_OR_RETURN(const uint64_t program,
                        task_->register_program(kSession, {.bytes = bytes}));
    std::promise<Status> ended;
    task::ProgramCall call = {.session = kSession,
                              .program = program,
                              .step = step,
                              .feeds = std::move(feeds),
                              .whole = true};
    task_->run(&call, [&ended](task::ProgramResult& result) { ended.set_value(result.status); });
    return ended.get_future().get();
  }

 private:
  BenchTask() = default;

  const std::unique_ptr<sys::Random> random_ = sys::posix::create_random();
  std::unique_ptr<task::Task> task_;
  // On the lane of the task, which has stopped when they go.
  std::unique_ptr<transport::Endpoint> endpoint_;
  std::unique_ptr<task::DataChannels> channels_;
  std::unique_ptr<task::DataPort> port_;
};

/// Keeps a number of calls in flight on the lane of a worker, as steps of a session make them.
class Worker final : public lane::Driver {
 public:
  Worker(BenchTask* task, const program::CallSpec& pull, const program::CallSpec& push)
      : lane_(task->task().lane(0)),
        channels_(&task->channels()),
        calls_made_{make_call(pull), make_call(push)} {
    const std::vector<float> gradients = make_gradients();
    gradients_ = Tensor::of<float>({kIdsMax, kDim}, gradients);
    for (int i = 0; i < kOutstanding.back(); ++i) {
      calls_.push_back(std::make_unique<Call>(this));
      free_.push_back(calls_.back().get());
    }
  }

  /// From the control thread: runs one window on the lane.
  Figures run(const Window& window) {
    std::promise<void> ended;
    SR_CHECK(lane_->post([this, &window, &ended] {
      window_ = window;
      watch_.emplace(window);
      ended_ = &ended;
      lane_->add_driver(this);
    }));
    ended.get_future().wait();  // Ends: a ps that is gone fails the calls to it.
    return watch_->figures();
  }

  /// Starts one call at a time, so that it is on its way while the next is prepared.
  bool poll() override {
    if (watch_->over()) {
      if (in_flight_ > 0) return false;
      lane_->remove_driver(this);
      ended_->set_value();
      return true;
    }
    if (in_flight_ == window_.outstanding) return false;
    Call* call = free_.back();
    free_.pop_back();
    const std::span<const int64_t> ids = ids_.next(window_);
    call->ids = static_cast<int64_t>(ids.size());
    call->count = front_.run(ids, call->rows.data<int64_t>().data());
    feeds_[0] = call->rows.rows(0, call->count);
    const bool pull = window_.op == Op::kPull;
    if (!pull) feeds_[1] = gradients_.rows(0, call->count);
    task::Peers::Call& what = calls_made_[pull ? 0 : 1];
    what.number = ++step_;
    ++in_flight_;
    static_cast<void>(channels_->run(kPs, what, {feeds_.data(), pull ? 1U : 2U}, call));
    return true;
  }

 private:
  struct Call final : task::Peers::RunDone {
    explicit Call(Worker* owner) : worker(owner) {}
    Result<Tensor> allocate(int, DType dtype, const Shape& shape) override {
      SR_CHECK(dtype == DType::kFloat32 && (shape == Shape{count, kDim}));
      return values.rows(0, count);
    }
    void done(const task::ProgramResult& result, std::span<Tensor> fetches) override {
      SR_CHECK(result.status.ok(), "{}", base::message_of(result.status));
      SR_CHECK(fetches.size() == (worker->window_.op == Op::kPull ? 1 : 0));
      --worker->in_flight_;
      worker->free_.push_back(this);
      worker->watch_->count(ids, count);
    }
    Worker* worker;
    Tensor rows = Tensor::zeros(DType::kInt64, {kIdsMax});
    Tensor values = Tensor::zeros(DType::kFloat32, {kIdsMax, kDim});
    int64_t ids = 0;
    int64_t count = 0;
  };

  static task::Peers::Call make_call(const program::CallSpec& spec) {
    return {.session = kSession, .program = spec.program, .repeatable = spec.repeatable};
  }

  lane::Lane* lane_;
  task::DataChannels* channels_;
  std::array<task::Peers::Call, 2> calls_made_;
  Ids ids_{1};
  Front front_;
  Tensor gradients_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Call*> free_;
  std::array<Tensor, 2> feeds_;
  uint64_t step_ = 0;
  int in_flight_ = 0;
  Window window_;
  std::optional<Stopwatch> watch_;
  std::promise<void>* ended_ = nullptr;
};

}  // namespace

Status serve_sidereal(int in, int out) {
  SR_ASSIGN_OR_RETURN(const auto ps, BenchTask::create(kPs, 0, 0));
  pin_to(0);
  SR_RETURN_IF_ERROR(ps->task().open_session(kSession, {}));
  std::string first;
  std::string pull;
  std::string push;
  SR_RETURN_IF_ERROR(StepGraph().first_values(&first).status());
  SR_RETURN_IF_ERROR(StepGraph().pull(&pull).status());
  SR_RETURN_IF_ERROR(StepGraph().push(&push).status());
  SR_RETURN_IF_ERROR(ps->run(first, 0x100, {}));
  // As in training, the first update has the rows of weights and accumulator laid side by side.
  SR_RETURN_IF_ERROR(ps->run(
      push, 0x200, {Tensor::zeros(DType::kInt64, {1}), Tensor::zeros(DType::kFloat32, {1, kDim})}));
  SR_RETURN_IF_ERROR(ps->task().register_program(kSession, {.bytes = pull}).status());
  const int32_t port = ps->port();
  write_all(out, &port, sizeof(port));
  char ignored = 0;
  (void)read_all(in, &ignored, 1);  // Returns when the other end closes.
  return {};
}

Status drive_sidereal(int in, int out, int port) {
  pin_to(1);
  SR_ASSIGN_OR_RETURN(const auto task, BenchTask::create(kWorker, 1, port));
  std::string bytes;
  SR_ASSIGN_OR_RETURN(const program::CallSpec pull, StepGraph().pull(&bytes));
  SR_ASSIGN_OR_RETURN(const program::CallSpec push, StepGraph().push(&bytes));
  Worker worker(task.get(), pull, push);
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  Window window;
  while (read_all(in, &window, sizeof(window))) {
    const Figures figures = worker.run(window);
    write_all(out, &figures, sizeof(figures));
  }
  return {};
}

}  // namespace sidereal::bench
