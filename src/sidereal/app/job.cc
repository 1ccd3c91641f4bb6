#include "sidereal/app/job.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "sidereal/app/cluster.h"
#include "sidereal/app/control.pb.h"
#include "sidereal/app/control_client.h"
#include "sidereal/app/lane_call.h"
#include "sidereal/app/step_loop.h"
#include "sidereal/base/log.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/ir/text.h"
#include "sidereal/kernels/prepared_matmul.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"

namespace sidereal::app {

namespace v1 = control::v1;

namespace {

using base::invalid_argument;

constexpr double kControlDeadlineS = 15;
/// Process numbers in traces: so many for the lanes of a task.
constexpr int64_t kTraceProcesses = 1000;
/// Shares of the data: lanes of all workers are counted with them.
constexpr int64_t kPartsMax = int64_t{1} << 20;
/// Rows of a batch, for which memory is taken at once.
constexpr int64_t kBatchMax = int64_t{1} << 24;
/// Numbers of epochs.
constexpr int64_t kEpochsMax = int64_t{1} << 40;
constexpr auto kEventEvery = std::chrono::milliseconds(200);

/// A ps task as a job sees it.
struct PsTask {
  std::unique_ptr<ControlClient> client;
  std::vector<sys::Address> lanes;
};

Result<std::vector<PsTask>> reach_ps(const WorkerParts& parts, const v1::RunJobRequest& request,
                                     uint64_t cluster_id, const std::function<bool()>& cancelled) {
  std::vector<PsTask> tasks;
  for (int i = 0; i < request.ps_size(); ++i) {
    PsTask task;
    task.client =
        std::make_unique<ControlClient>(task_name("ps", i), request.ps(i), parts.credentials);
    SR_ASSIGN_OR_RETURN(const auto status, task.client->get_status(kControlDeadlineS, cancelled));
    if (status->cluster_id() != cluster_id) {
      return base::failed_precondition(
          "{} at {} belongs to another cluster (id {:016x}, not "
          "{:016x})",
          task.client->task(), request.ps(i), status->cluster_id(), cluster_id);
    }
    for (const std::string& text : status->data_addresses()) {
      SR_ASSIGN_OR_RETURN(sys::Address address, sys::Address::parse(text));
      if (address.host == "0.0.0.0" || address.host == "::") {
        // It listens everywhere; this is where it was found.
        SR_ASSIGN_OR_RETURN(const sys::Address control, sys::Address::parse(request.ps(i)));
        address.host = control.host;
      }
      task.lanes.push_back(std::move(address));
    }
    if (task.lanes.empty()) {
      return base::failed_precondition("{} offers no lane", task.client->task());
    }
    tasks.push_back(std::move(task));
  }
  return tasks;
}

/// What is asked for, or float32 where the processor has no units for it.
Result<ir::DType> compute_dtype_of(const v1::RunJobRequest& request) {
  if (request.compute_dtype().empty()) return ir::DType::kFloat32;
  SR_ASSIGN_OR_RETURN(const ir::DType wanted, passes::parse_compute_dtype(request.compute_dtype()));
  if (wanted != ir::DType::kBFloat16 || kernels::has_bfloat_units()) return wanted;
  base::log_warning("no bfloat16 units in this processor compute_dtype=float32");
  return ir::DType::kFloat32;
}

/// How a step is cut for a protocol.
Result<partition::PullPushOptions> cut_for(const std::string& protocol) {
  using Mode = partition::PullPushOptions::Mode;
  SR_RETURN_IF_ERROR(check_fit_protocol(protocol.empty() ? "star_server" : protocol));
  return partition::PullPushOptions{.mode = protocol == "star_server_lite" ? Mode::kLite
                                                                           : Mode::kLayers};
}

Result<program::CompiledStep> compile_step(const v1::RunJobRequest& request,
                                           const passes::Topology& topology,
                                           const ir::OpRegistry& ops,
                                           const exec::KernelTable& kernels) {
  SR_ASSIGN_OR_RETURN(const ir::Graph graph, ir::from_text(request.graph(), ops));
  std::vector<ir::Output> fetches;
  for (const std::string& name : {request.loss(), request.probability()}) {
    if (name.empty()) continue;
    SR_ASSIGN_OR_RETURN(const ir::Output fetch, graph.find_output(name));
    fetches.push_back(fetch);
  }
  std::vector<ir::NodeId> targets;
  for (const std::string& name : request.targets()) {
    const ir::Node* node = graph.find(name);
    if (node == nullptr) return base::not_found("the graph has no node '{}'", name);
    targets.push_back(node->id);
  }
  const auto evaluate = [&](const ir::Node& node, const std::vector<ir::Tensor>& inputs) {
    return exec::run_one_op(node, inputs, kernels);
  };
  SR_ASSIGN_OR_RETURN(const ir::DType compute_dtype, compute_dtype_of(request));
  SR_ASSIGN_OR_RETURN(const passes::Plan plan,
                      passes::run_passes(graph, fetches, targets, topology, ops,
                                         {.evaluate = evaluate, .compute_dtype = compute_dtype}));
  SR_ASSIGN_OR_RETURN(const partition::PullPushOptions cut, cut_for(request.protocol()));
  SR_ASSIGN_OR_RETURN(
      const partition::PartitionedGraph parts,
      partition::pull_push_by_layers(plan.graph, plan.fetches, plan.targets, ops, cut));
  SR_ASSIGN_OR_RETURN(program::CompiledStep compiled, program::compile(parts));
  // Passes may have merged nodes; fetches keep the order and the names they were asked for by.
  std::vector<std::string>& names = compiled.worker.fetch_names;
  names.clear();
  for (const std::string& name : {request.loss(), request.probability()}) {
    if (!name.empty()) names.push_back(name);
  }
  return compiled;
}

Status register_programs(const program::CompiledStep& compiled, std::vector<PsTask>& tasks) {
  for (const program::RemoteProgram& remote : compiled.remotes) {
    ControlClient& client = *tasks[remote.location.task].client;
    SR_RETURN_IF_ERROR(
        client.register_program(remote.location.lane, remote.bytes, kControlDeadlineS));
  }
  return {};
}

/// The loop of one lane, made, used and destroyed on that lane.
struct LaneLoop {
  lane::Lane* lane = nullptr;
  std::shared_ptr<std::unique_ptr<StepLoop>> loop = std::make_shared<std::unique_ptr<StepLoop>>();
  std::shared_future<Status> ended;
  bool finished = false;
};

class Job {
 public:
  Job(const WorkerParts& parts, const v1::RunJobRequest& request, const JobObserver& observer)
      : parts_(parts), request_(request), observer_(observer) {}
  ~Job() { destroy_loops(); }

  Status run() {
    SR_RETURN_IF_ERROR(check());
    SR_ASSIGN_OR_RETURN(tasks_,
                        reach_ps(parts_, request_, parts_.endpoints[0]->identity().cluster_id,
                                 observer_.cancelled));
    passes::Topology topology;
    for (const PsTask& task : tasks_) {
      topology.lanes.push_back(static_cast<int32_t>(task.lanes.size()));
    }
    SR_ASSIGN_OR_RETURN(program::CompiledStep compiled,
                        compile_step(request_, topology, *parts_.ops, *parts_.kernels));
    SR_RETURN_IF_ERROR(register_programs(compiled, tasks_));
    program_ = std::make_shared<const program::Program>(std::move(compiled.worker));
    for (size_t i = 0; i < lane_count(); ++i) SR_RETURN_IF_ERROR(start_loop(i));
    SR_RETURN_IF_ERROR(watch());
    SR_RETURN_IF_ERROR(send_traces());
    return send_event(true);
  }

 private:
  Status check() const {
    if (request_.ps_size() == 0) return invalid_argument("the job names no ps task");
    if (request_.batch_size() < 1 || request_.batch_size() > kBatchMax) {
      return invalid_argument("batch_size is {}; it must be from 1 to {}", request_.batch_size(),
                              kBatchMax);
    }
    if (request_.part_count() < 1 || request_.part_count() > kPartsMax ||
        request_.part_index() < 0 || request_.part_index() >= request_.part_count()) {
      return invalid_argument("part {} of {}", request_.part_index(), request_.part_count());
    }
    if (request_.first_epoch() < 0 || request_.first_epoch() > kEpochsMax ||
        request_.epochs() > kEpochsMax) {
      return invalid_argument("{} epochs from epoch {}", request_.epochs(), request_.first_epoch());
    }
    if (request_.trace_begin_unix_ns() < 0) {
      return invalid_argument("a trace that begins at {} ns", request_.trace_begin_unix_ns());
    }
    return {};
  }

  [[nodiscard]] size_t lane_count() const {
    const size_t all = parts_.lanes.size();
    return request_.lanes() <= 0 ? all : std::min<size_t>(all, request_.lanes());
  }

  Status start_loop(size_t index) {
    const auto lanes = static_cast<int64_t>(lane_count());
    SR_ASSIGN_OR_RETURN(const data::DataSpec spec, data::spec_from_json(request_.data()));
    data::PrefetchOptions prefetch;
    prefetch.read.part = {.index = request_.part_index() * lanes + static_cast<int64_t>(index),
                          .count = request_.part_count() * lanes};
    prefetch.read.epoch = request_.first_epoch();
    prefetch.read.batch_size = request_.batch_size();
    prefetch.epochs = std::max<int64_t>(1, request_.epochs());
    SR_ASSIGN_OR_RETURN(auto reader, data::PrefetchingReader::open(spec, prefetch));
    StepLoopOptions options;
    options.stop = stop_;
    options.program = program_;
    options.kernels = parts_.kernels;
    options.random = parts_.random;
    options.loss = request_.loss();
    options.probability = request_.probability();
    options.steps_in_flight = std::max<int64_t>(1, request_.steps_in_flight());
    options.steps_max = request_.steps_max();
    options.first_step = request_.first_step();
    options.record_losses = request_.record_losses() && index == 0;
    options.want_scores = request_.want_scores();
    options.trace_first = request_.trace_first();
    options.trace_end = request_.trace_end();
    for (size_t task = 0; task < tasks_.size(); ++task) {
      for (size_t lane = 0; lane < tasks_[task].lanes.size(); ++lane) {
        options.peers.emplace_back(
            ir::Location{static_cast<int32_t>(task), static_cast<int32_t>(lane)},
            transport::Peer{.task = tasks_[task].client->task(),
                            .lane = static_cast<uint32_t>(lane),
                            .address = tasks_[task].lanes[lane]});
      }
    }
    LaneLoop made;
    made.lane = parts_.lanes[index];
    auto promise = std::make_shared<std::promise<Status>>();
    made.ended = promise->get_future().share();
    loops_.push_back(made);
    auto shared_reader =
        std::make_shared<std::unique_ptr<data::PrefetchingReader>>(std::move(reader));
    auto start = [endpoint = parts_.endpoints[index], loop = made.loop, promise,
                  options = std::move(options), shared_reader]() mutable -> Status {
      SR_ASSIGN_OR_RETURN(
          *loop, StepLoop::create(endpoint, std::move(options), std::move(*shared_reader)));
      (*loop)->start([promise](const Status& status) { promise->set_value(status); });
      return {};
    };
    SR_ASSIGN_OR_RETURN(Status started, call_on_lane<Status>(made.lane, std::move(start)));
    return started;
  }

  /// Waits for the loops, sending events, until all have ended or one has failed.
  Status watch() {
    size_t open = loops_.size();
    while (open > 0) {
      for (LaneLoop& loop : loops_) {
        if (loop.finished ||
            loop.ended.wait_for(kEventEvery / loops_.size()) != std::future_status::ready) {
          continue;
        }
        loop.finished = true;
        --open;
        SR_RETURN_IF_ERROR(loop.ended.get());
      }
      // Asked first: a lane in a long step answers to nothing else.
      if (observer_.cancelled()) return base::cancelled("the job was cancelled");
      if (open > 0) SR_RETURN_IF_ERROR(send_event(false));
    }
    return {};
  }

  /// The figures of a loop. A step may keep its lane for long: waits until the job is cancelled.
  Result<StepLoopFigures> take_figures(const LaneLoop& loop) {
    SR_ASSIGN_OR_RETURN(std::future<StepLoopFigures> asked,
                        ask_lane<StepLoopFigures>(
                            loop.lane, [held = loop.loop] { return (*held)->take_figures(); }));
    while (asked.wait_for(kEventEvery) != std::future_status::ready) {
      if (observer_.cancelled()) return base::cancelled("the job was cancelled");
    }
    return asked.get();
  }

  Status send_event(bool done) {
    v1::JobEvent event;
    event.set_done(done);
    double auc = 0;
    double fraction = 0;
    int lanes_with_auc = 0;
    for (const LaneLoop& loop : loops_) {
      SR_ASSIGN_OR_RETURN(const StepLoopFigures figures, take_figures(loop));
      add(figures, &event);
      if (figures.rows > 0) {
        auc += figures.auc;
        ++lanes_with_auc;
      }
      fraction += fraction_trained(figures) / static_cast<double>(loops_.size());
      const metrics::LaneMetrics& metrics = loop.lane->metrics();
      event.set_bytes_in(event.bytes_in() + metrics.bytes_in.value());
      event.set_bytes_out(event.bytes_out() + metrics.bytes_out.value());
    }
    if (lanes_with_auc > 0) event.set_auc(auc / lanes_with_auc);
    event.set_fraction(fraction);
    if (!observer_.emit(event)) return base::cancelled("the driver of the job is gone");
    return {};
  }

  /// What was traced, an event for each lane.
  Status send_traces() {
    if (request_.trace_end() <= request_.trace_first()) return {};
    for (size_t i = 0; i < loops_.size(); ++i) {
      const exec::ChromeOptions shown{
          .process = static_cast<int32_t>(kTraceProcesses * (1 + request_.part_index()) +
                                          static_cast<int64_t>(i)),
          .process_name = fmt::format("{} lane {}", parts_.task, i),
          .offset_ns = -request_.trace_begin_unix_ns()};
      v1::JobEvent event;
      SR_ASSIGN_OR_RETURN(*event.mutable_trace(),
                          call_on_lane<std::string>(loops_[i].lane, [held = loops_[i].loop, shown] {
                            return (*held)->trace(shown);
                          }));
      if (!observer_.emit(event)) return base::cancelled("the driver of the job is gone");
    }
    return {};
  }

  // A reader that shuffles is ahead of the steps by the rows it holds.
  static double fraction_trained(const StepLoopFigures& figures) {
    if (figures.read.rows_read <= figures.rows) return figures.read.progress;
    return figures.read.progress * static_cast<double>(figures.rows) /
           static_cast<double>(figures.read.rows_read);
  }

  static void add(const StepLoopFigures& figures, v1::JobEvent* event) {
    event->set_steps(event->steps() + figures.steps);
    event->set_rows(event->rows() + figures.rows);
    event->set_rows_skipped(event->rows_skipped() + figures.read.rows_skipped);
    if (event->first_skipped().empty()) event->set_first_skipped(figures.read.first_skipped);
    event->set_elapsed_s(
        std::max(event->elapsed_s(), static_cast<double>(figures.elapsed_ns) * 1e-9));
    event->set_compute_s(event->compute_s() + static_cast<double>(figures.compute_ns) * 1e-9);
    event->set_wait_s(event->wait_s() + static_cast<double>(figures.wait_ns) * 1e-9);
    event->set_data_wait_s(event->data_wait_s() + static_cast<double>(figures.data_wait_ns) * 1e-9);
    // Totals of the loop; the driver sees differences.
    event->set_loss_sum(event->loss_sum() + figures.loss_sum);
    event->set_loss_steps(event->loss_steps() + figures.loss_steps);
    event->mutable_losses()->Add(figures.losses.begin(), figures.losses.end());
    event->mutable_scores()->Add(figures.scores.begin(), figures.scores.end());
    event->mutable_labels()->Add(figures.labels.begin(), figures.labels.end());
    event->mutable_truths()->Add(figures.truths.begin(), figures.truths.end());
  }

  void destroy_loops() {
    stop_->raise(exec::StopSignal::Reason::kCancelled);
    for (LaneLoop& loop : loops_) {
      const auto destroyed = call_on_lane<bool>(loop.lane, [held = loop.loop] {
        held->reset();
        return true;
      });
      // The lane owns the loop: when it is stopping, it has closed every channel already, and what
      // is left is destroyed with the last holder.
      static_cast<void>(destroyed.ok());
    }
    loops_.clear();
  }

  const WorkerParts& parts_;
  const v1::RunJobRequest& request_;
  const JobObserver& observer_;
  std::vector<PsTask> tasks_;
  std::shared_ptr<const program::Program> program_;
  std::vector<LaneLoop> loops_;
  std::shared_ptr<exec::StopSignal> stop_ = std::make_shared<exec::StopSignal>();
};

}  // namespace

Status run_job(const WorkerParts& parts, const v1::RunJobRequest& request,
               const JobObserver& observer) {
  return Job(parts, request, observer).run();
}

}  // namespace sidereal::app
