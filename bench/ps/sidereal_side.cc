// Our side: a ps lane in one process, a worker lane in another, the programs that training uses.
#include <future>
#include <optional>
#include <utility>

#include "sidereal/app/ps_lane.h"
#include "sidereal/base/check.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/transport/channel.h"
#include "work.h"

namespace sidereal::bench {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr const char* kTask = "/job:ps/task:0";
constexpr int64_t kSpinAlways = -1;

config::Options connection_options() {
  config::Options options;
  options.keepalive_timeout_ms = 600'000;  // Processes stand still while others are measured.
  return options;
}

/// The program that the ps runs for one pull or one push, made as for training.
Result<program::RemoteProgram> make_program(Op op) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  ir::Graph graph;
  ir::Builder builder(&graph, &registry);
  ir::VariableDef table;
  table.name = "table";
  table.shape = {kTableRows, kDim};
  table.embedding = true;
  builder.variable(table);
  const ir::Output ids = ops::placeholder(builder, "ids", DType::kInt64, {-1, kFields});
  std::vector<ir::Output> fetches;
  std::vector<ir::NodeId> targets;
  if (op == Op::kPull) {
    fetches.push_back(ops::lookup(builder, "table", ids, "rows"));
  } else {
    const ir::Output gradients =
        ops::placeholder(builder, "gradients", DType::kFloat32, {-1, kFields, kDim});
    targets.push_back(ops::apply_sparse(builder, "table", ids, gradients, "push"));
  }
  SR_RETURN_IF_ERROR(builder.status());
  SR_ASSIGN_OR_RETURN(const passes::Plan plan,
                      passes::run_passes(graph, fetches, targets, {{1}}, registry));
  SR_ASSIGN_OR_RETURN(
      const partition::PartitionedGraph parts,
      partition::pull_push_by_layers(plan.graph, plan.fetches, plan.targets, registry));
  SR_ASSIGN_OR_RETURN(program::CompiledStep step, program::compile(parts));
  SR_CHECK(step.remotes.size() == 1);
  return std::move(step.remotes[0]);
}

/// Keeps a number of calls in flight on one lane of a worker.
class Worker final : public lane::Driver {
 public:
  Worker(transport::Endpoint* endpoint, transport::Channel* channel, uint64_t pull, uint64_t push)
      : lane_(endpoint->lane()), channel_(channel), programs_{pull, push} {
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
    ended.get_future().wait();  // Ends: every call has a deadline.
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
    const Result<uint64_t> id =
        channel_->call({.program = programs_[pull ? 0 : 1], .step = ++step_},
                       {feeds_.data(), pull ? 1U : 2U}, call);
    SR_CHECK(id.ok(), "{}", base::message_of(id.status()));
    ++in_flight_;
    return true;
  }

 private:
  struct Call final : transport::CallSink {
    explicit Call(Worker* owner) : worker(owner) {}
    Result<Tensor> allocate(int, DType dtype, const Shape& shape) override {
      SR_CHECK(dtype == DType::kFloat32 && (shape == Shape{count, kDim}));
      return values.rows(0, count);
    }
    void done(const Status& status, std::span<Tensor> fetches) override {
      SR_CHECK(status.ok(), "{}", base::message_of(status));
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

  lane::Lane* lane_;
  transport::Channel* channel_;
  std::array<uint64_t, 2> programs_;
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
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  exec::KernelTable kernels;
  exec::register_kernels(&kernels);
  SR_ASSIGN_OR_RETURN(const auto ps, app::PsLane::create({.name = "ps0/lane0",
                                                          .spin_us = kSpinAlways,
                                                          .cpu = 0,
                                                          .network = network.get(),
                                                          .clock = clock.get()},
                                                         {.task = kTask}, connection_options(),
                                                         {"127.0.0.1", 0}, &kernels));
  ps->lane().start();
  SR_ASSIGN_OR_RETURN(
      const int64_t bytes,
      ps->create_variables(
          {{.name = "table",
            .embedding = true,
            .shape = {kTableRows, kDim},
            .rule = store::UpdateRule::of("adagrad", {{"learning_rate", 0.01}}),
            .initializer = {kernels::Initializer::Kind::kUniform, -0.01F, 0.01F, 7, 1},
            .shard = 0,
            .lanes = {1}}}));
  SR_CHECK(bytes > 0);
  pin_to(0);
  for (const Op op : {Op::kPull, Op::kPush}) {
    SR_ASSIGN_OR_RETURN(const program::RemoteProgram program, make_program(op));
    SR_RETURN_IF_ERROR(ps->register_program(program.bytes).status());
  }
  const int32_t port = ps->address().port;
  write_all(out, &port, sizeof(port));
  char ignored = 0;
  (void)read_all(in, &ignored, 1);  // Returns when the other end closes.
  return {};
}

Status drive_sidereal(int in, int out, int port) {
  pin_to(1);
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  SR_ASSIGN_OR_RETURN(const auto lane, lane::Lane::create({.name = "worker0/lane0",
                                                           .spin_us = kSpinAlways,
                                                           .cpu = 1,
                                                           .network = network.get(),
                                                           .clock = clock.get()}));
  SR_ASSIGN_OR_RETURN(const auto endpoint,
                      transport::Endpoint::create(lane.get(), {.task = "/job:worker/task:0"},
                                                  connection_options()));
  const auto channel = transport::Channel::create(
      endpoint.get(), {kTask, 0, {"127.0.0.1", static_cast<uint16_t>(port)}});
  std::promise<Status> connected;
  channel->connect(0, [&connected](const Status& status) { connected.set_value(status); });
  SR_ASSIGN_OR_RETURN(const program::RemoteProgram pull, make_program(Op::kPull));
  SR_ASSIGN_OR_RETURN(const program::RemoteProgram push, make_program(Op::kPush));
  Worker worker(endpoint.get(), channel.get(), pull.hash, push.hash);
  lane->start();
  SR_RETURN_IF_ERROR(connected.get_future().get());
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  Window window;
  while (read_all(in, &window, sizeof(window))) {
    const Figures figures = worker.run(window);
    write_all(out, &figures, sizeof(figures));
  }
  return lane->stop();
}

}  // namespace sidereal::bench
