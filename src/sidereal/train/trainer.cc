#include "sidereal/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "sidereal/base/log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/data/auc.h"
#include "sidereal/ops/ops.h"
#include "sidereal/security/channel.h"
#include "sidereal/service/status_client.h"
#include "sidereal/sys/posix/control_groups.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/train/checkpointing.h"
#include "sidereal/train/data_position.h"
#include "sidereal/train/distribute.h"
#include "sidereal/train/loop_group.h"
#include "sidereal/train/memory_plan.h"
#include "sidereal/train/synchronize.h"

namespace sidereal::train {

namespace {

using base::invalid_argument;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::DType;
using tensor::Tensor;

constexpr milliseconds kReachDeadline(10'000);
constexpr milliseconds kAskAgain(100);
constexpr milliseconds kCheckDeadline(2'000);
constexpr milliseconds kInitializeDeadline(600'000);
constexpr milliseconds kReadDeadline(600'000);
/// Numbers of steps of one worker, so that no two workers draw the same random numbers.
constexpr uint64_t kStepsOfWorker = uint64_t{1} << 28;
/// More than a fit has: a chief goes on until it is told that all is done.
constexpr int64_t kStepsOfChief = int64_t{1} << 40;
/// Process numbers of one worker's steps in traces.
constexpr int32_t kProcessesOfWorker = 1 << 20;

constexpr const char* kLabel = "label";
constexpr const char* kTruth = "truth";

/// Calls `work` for each index below `count`, all at once; the first error by index.
Status for_all(size_t count, const std::function<Status(size_t)>& work) {
  std::vector<Status> results(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back([&, i] { results[i] = work(i); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) SR_RETURN_IF_ERROR(result);
  return {};
}

/// Predictions, labels and losses of an evaluation, in no order.
struct Scores {
  std::vector<float> scores;
  std::vector<float> labels;
  std::vector<float> truths;
  double loss_sum = 0;
  int64_t rows = 0;
};

void append(const Tensor& values, std::vector<float>* out) {
  const auto floats = values.data<const float>();
  out->insert(out->end(), floats.begin(), floats.end());
}

/// Labels that leave no pair of rows to be put in order: there is no AUC then.
bool has_one_class(const std::vector<float>& labels) {
  return std::adjacent_find(labels.begin(), labels.end(), std::not_equal_to<>()) == labels.end();
}

Status check_finite(const std::vector<float>& predictions) {
  const auto bad = std::count_if(predictions.begin(), predictions.end(),
                                 [](float p) { return !std::isfinite(p); });
  if (bad == 0) return {};
  return invalid_argument(
      "the model predicts nan for {} of {} rows: its weights, or inputs in these rows, are not "
      "finite",
      bad, predictions.size());
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(app::Cluster* cluster, CompiledModel model) : cluster_(cluster), model_(std::move(model)) {
    ops::register_all(&registry_);
  }

  Status start() {
    SR_RETURN_IF_ERROR(reach_tasks());
    SR_RETURN_IF_ERROR(check_memory(model_, cluster_->spec(), sys::posix::memory_limit()));
    SR_ASSIGN_OR_RETURN(distributed_, distribute(model_, topology_, registry_));
    state_group_ = fmt::format("model-{:016x}", sys::posix::create_random()->next());
    SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers, sessions("float32"));
    first_ = workers->front().session;
    const Status made =
        first_->run({}, {}, {distributed_.initializer}, {.timeout = kInitializeDeadline}).status();
    return made.ok() ? made : root_cause(cluster_, made);
  }

  Result<FitResult> fit(const data::DataSpec& data, const FitOptions& options,
                        const data::DataSpec* validation) {
    SR_RETURN_IF_ERROR(data::inspect(data).status());
    if (validation != nullptr) SR_RETURN_IF_ERROR(data::inspect(*validation).status());
    SR_RETURN_IF_ERROR(check(options));
    SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers, training_sessions(options));
    task::LoopOptions loop = training_loop(data, options);
    const double decay = options.learning_rate_decay;
    const bool counts_by_epoch = validation != nullptr || decay != 1;
    FitResult result;
    const auto take_loss = [&](const StepOutputs& step) {
      if (step.values.lane == 0) append(step.values.values.front().second, &result.losses);
    };
    TrainingState before;
    FitOptions watched = options;
    Progress latest;
    if (options.on_progress) {
      watched.on_progress = [&](const Progress& shown) {
        latest = shown;
        if (!result.validation.empty()) latest.validation = result.validation.back();
        options.on_progress(latest);
      };
    }
    LoopGroup group(cluster_, *workers, watched, take_loss);
    SR_ASSIGN_OR_RETURN(const auto saver, open_checkpoints(data, options, &before));
    const bool one_loop = !counts_by_epoch && (saver == nullptr || !saver->saves_by_epoch());
    result.validation = before.validation;
    before.worker_steps.resize(workers->size());
    DataSchedule schedule(before.position, worker_lanes_);
    int64_t loop_steps = before.loop_steps;
    const auto state = [&] {
      TrainingState now = before;
      now.steps += group.steps();
      now.rows += group.rows();
      now.loop_steps = loop_steps;
      for (size_t i = 0; i < workers->size(); ++i) now.worker_steps[i] += group.steps_of(i);
      now.position = schedule.position();
      now.validation = result.validation;
      return now;
    };
    const auto is_over = [&] {
      return options.patience > 0 && since_best(result.validation) >= options.patience;
    };
    result.epochs = schedule.first_epoch(options.epochs);
    while (result.epochs < options.epochs && !is_over()) {
      const int64_t epoch = result.epochs;
      const int64_t end = one_loop ? options.epochs : epoch + 1;
      const std::pair<std::string, Tensor> rate = {
          kLearningRateScale, Tensor::scalar(std::pow(decay, static_cast<double>(epoch)))};
      while (schedule.first_epoch(end) < end && steps_left(options, loop_steps) != 0) {
        if (options.synchronous) {
          SR_RETURN_IF_ERROR(begin_steps());
          group.set_chief(chief_loop(options, rate));
        } else {
          loop.constants = {rate};
        }
        int64_t steps = std::max<int64_t>(steps_left(options, loop_steps), 0);
        if (saver != nullptr && saver->steps_of_lane() > 0) {
          steps = steps == 0 ? saver->steps_of_lane() : std::min(steps, saver->steps_of_lane());
        }
        const auto for_worker = [&](size_t index, task::LoopOptions* own) {
          number_steps(options, (*workers)[index], index,
                       before.worker_steps[index] + group.steps_of(index), own);
          own->steps = steps * (*workers)[index].lanes;
          own->goes_on = saver != nullptr && steps > 0;
          schedule.tell(index, end, own);
          if (options.record_losses && index == 0) {
            own->fetches.push_back({.name = model_.loss, .keep = task::Keep::kEach});
          }
        };
        const int64_t steps_before = group.steps();
        const double seconds_before = group.seconds();
        const int64_t first = schedule.first_epoch(end);
        SR_RETURN_IF_ERROR(group.run(loop, first, end - first, for_worker));
        for (size_t i = 0; i < workers->size(); ++i) {
          schedule.took(i, end, steps, group.positions_of(i));
        }
        loop_steps += steps;
        if (options.synchronous) {
          SR_ASSIGN_OR_RETURN(const int64_t updates, updates_of_loop());
          result.updates += updates;
        }
        if (saver == nullptr) continue;
        saver->loop_ended(group.steps() - steps_before, group.seconds() - seconds_before);
        if (schedule.first_epoch(end) < end && saver->is_due(false)) saver->save(state());
      }
      result.epochs = end;
      if (counts_by_epoch) {
        schedule.leave_out(end);
        loop_steps = 0;
      }
      if (validation != nullptr) {
        SR_ASSIGN_OR_RETURN(const EvalResult evaluated, evaluate(*validation, options));
        result.validation.push_back(evaluated);
        if (options.on_validation) options.on_validation(result.epochs, evaluated);
        if (options.on_progress) {
          latest.steps = group.steps();
          latest.rows = group.rows();
          latest.epoch = epoch;
          latest.fraction = static_cast<double>(end) / static_cast<double>(options.epochs);
          latest.validation = evaluated;
          options.on_progress(latest);
        }
      }
      if (saver != nullptr && saver->is_due(true)) saver->save(state());
    }
    if (saver != nullptr) {
      saver->save_last(state());
      result.checkpoints = saver->report();
      result.checkpoints.resumed_from = saver->resumed_from();
      result.checkpoints.steps_before = before.steps;
      result.checkpoints.rows_before = before.rows;
    }
    group.report(&result);
    if (!options.synchronous) result.updates = result.steps;
    SR_ASSIGN_OR_RETURN(const std::vector<TaskStats> ps, ps_stats());
    result.tasks.insert(result.tasks.begin(), ps.begin(), ps.end());
    return result;
  }

  Result<EvalResult> evaluate(const data::DataSpec& data, const FitOptions& options) {
    SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers, sessions(options.compute_dtype));
    SR_ASSIGN_OR_RETURN(
        task::LoopOptions loop,
        inference_loop(data, options, {distributed_.loss, distributed_.prediction}));
    loop.fetches = {{.name = distributed_.loss, .keep = task::Keep::kMean},
                    {.name = distributed_.loss, .keep = task::Keep::kEach}};
    if (model_.is_binary) {
      loop.fetches.push_back({.name = distributed_.prediction, .keep = task::Keep::kEach});
      loop.kept_columns = {kLabel};
      if (data.format == data::Format::kSynthetic) loop.kept_columns.emplace_back(kTruth);
    }
    loop.lanes = 0;
    Scores scores;
    LoopGroup group(cluster_, *workers, quiet(options), [&](const StepOutputs& step) {
      for (const auto& [index, value] : step.values.values) {
        if (index == 1) {
          scores.loss_sum += static_cast<double>(value.data<const float>()[0]) *
                             static_cast<double>(step.values.rows);
          scores.rows += step.values.rows;
        }
        if (index == 2) append(value, &scores.scores);
        if (index == 3) append(value, &scores.labels);
        if (index == 4) append(value, &scores.truths);
      }
    });
    SR_RETURN_IF_ERROR(group.run(loop, 0, 1));
    FitResult totals;
    group.report(&totals);
    EvalResult result;
    result.rows = totals.rows;
    result.rows_skipped = totals.rows_skipped;
    result.seconds = totals.seconds;
    result.loss = scores.loss_sum / static_cast<double>(std::max<int64_t>(1, scores.rows));
    if (!model_.is_binary) return result;
    SR_RETURN_IF_ERROR(check_finite(scores.scores));
    SR_ASSIGN_OR_RETURN(result.log_loss, data::log_loss(scores.scores, scores.labels));
    if (has_one_class(scores.labels)) {
      result.auc = std::numeric_limits<double>::quiet_NaN();
      return result;
    }
    SR_ASSIGN_OR_RETURN(result.auc, data::auc(scores.scores, scores.labels));
    if (scores.truths.size() == scores.labels.size() && !scores.truths.empty()) {
      SR_ASSIGN_OR_RETURN(const double most, data::auc(scores.truths, scores.labels));
      result.best_auc = most;
    }
    return result;
  }

  Result<Tensor> predict(const data::DataSpec& data, const FitOptions& options) {
    SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers, sessions(options.compute_dtype));
    SR_ASSIGN_OR_RETURN(task::LoopOptions loop,
                        inference_loop(data, options, {distributed_.prediction}));
    loop.fetches = {{.name = distributed_.prediction, .keep = task::Keep::kEach}};
    // One lane of one worker sees the rows in their order.
    loop.lanes = 1;
    std::vector<float> values;
    tensor::Shape shape;
    Status failed;
    LoopGroup group(cluster_, {workers->front()}, quiet(options), [&](const StepOutputs& step) {
      const Tensor& value = step.values.values.front().second;
      if (value.shape().rank() < 1) {
        failed = invalid_argument("the prediction '{}' has no rows", model_.prediction);
        return;
      }
      shape = value.shape();
      append(value, &values);
    });
    SR_RETURN_IF_ERROR(group.run(loop, 0, 1));
    SR_RETURN_IF_ERROR(failed);
    if (values.empty()) return Tensor::zeros(DType::kFloat32, {0});
    // One probability for each row, whatever the logit's shape was.
    if (model_.is_binary) shape = {static_cast<int64_t>(values.size())};
    int64_t width = 1;
    for (int i = 1; i < shape.rank(); ++i) width *= shape.dim(i);
    shape.set_dim(0, static_cast<int64_t>(values.size()) / std::max<int64_t>(1, width));
    return Tensor::of<float>(shape, values);
  }

  Result<Tensor> read_variable(const std::string& name) {
    const ModelVariable* const variable = model_.find_variable(name);
    if (variable == nullptr) {
      std::vector<std::string> names;
      for (const ModelVariable& known : model_.variables) names.push_back(known.name);
      return base::not_found("the model has no variable '{}'; it has {}", name,
                             fmt::join(names, ", "));
    }
    const std::vector<std::string>& parts = distributed_.variables.at(name).reads;
    if (parts.size() == 1) return read_part(parts[0], variable->options.dtype, variable->shape);
    Tensor out = Tensor::zeros(DType::kFloat32, variable->shape);
    const int64_t rows = variable->shape.dim(0);
    const int64_t dim = variable->shape.dim(1);
    const auto count = static_cast<int64_t>(parts.size());
    float* const table = out.data<float>().data();
    for (int64_t k = 0; k < count; ++k) {
      const int64_t mine = (rows - k + count - 1) / count;
      SR_ASSIGN_OR_RETURN(const Tensor part,
                          read_part(parts[static_cast<size_t>(k)], DType::kFloat32, {mine, dim}));
      const float* const from = part.data<const float>().data();
      for (int64_t i = 0; i < mine; ++i) {
        std::copy_n(from + i * dim, dim, table + (i * count + k) * dim);
      }
    }
    return out;
  }

  Result<std::vector<TaskStats>> ps_stats() {
    std::vector<TaskStats> stats;
    for (const service::TaskReport& report : ps_status_->ask(kReachDeadline)) {
      SR_RETURN_IF_ERROR(report.status);
      const metrics::Readings& figures = report.figures;
      const auto seconds = [&](const char* name) {
        return static_cast<double>(figures.value(name)) * 1e-9;
      };
      stats.push_back({.task = app::task_name("ps", static_cast<int>(stats.size())),
                       .steps = figures.value("sidereal_task_steps_total"),
                       .bytes_in = figures.value("sidereal_task_received_bytes_total"),
                       .bytes_out = figures.value("sidereal_task_sent_bytes_total"),
                       .compute_s = seconds("sidereal_lane_busy_seconds_total"),
                       .wait_s = seconds("sidereal_lane_spin_seconds_total") +
                                 seconds("sidereal_lane_sleep_seconds_total")});
    }
    return stats;
  }

  [[nodiscard]] const CompiledModel& model() const { return model_; }

 private:
  static FitOptions quiet(const FitOptions& options) {
    FitOptions out = options;
    out.on_progress = nullptr;
    out.on_validation = nullptr;
    return out;
  }

  /// Steps that each lane has yet, of FitOptions::steps_max; -1: as many as there are.
  static int64_t steps_left(const FitOptions& options, int64_t done) {
    return options.steps_max == 0 ? -1 : std::max<int64_t>(0, options.steps_max - done);
  }

  /// Epochs since the one with the best evaluation.
  [[nodiscard]] int64_t since_best(const std::vector<EvalResult>& validation) const {
    size_t best = 0;
    const bool by_auc =
        model_.is_binary && std::none_of(validation.begin(), validation.end(),
                                         [](const EvalResult& r) { return std::isnan(r.auc); });
    // The larger, the better.
    const auto worth = [&](size_t i) { return by_auc ? validation[i].auc : -validation[i].loss; };
    for (size_t i = 1; i < validation.size(); ++i) {
      if (worth(i) > worth(best)) best = i;
    }
    return validation.empty() ? 0 : static_cast<int64_t>(validation.size() - 1 - best);
  }

  /// What saves as `options` say, nullptr if they say nothing; variables and `before` are as a
  /// checkpoint has them that training goes on from.
  Result<std::unique_ptr<Checkpointing>> open_checkpoints(const data::DataSpec& data,
                                                          const FitOptions& options,
                                                          TrainingState* before) {
    if (options.checkpoints.directory.empty()) return std::unique_ptr<Checkpointing>();
    Checkpointing::Context context;
    context.session = first_.get();
    context.nodes = &distributed_.saving;
    context.lanes = replicas();
    context.tell = options.on_warning;
    if (context.tell == nullptr) {
      context.tell = [](const std::string& text) { base::log_warning("checkpoint {}", text); };
    }
    SR_ASSIGN_OR_RETURN(auto saver, Checkpointing::open(options.checkpoints, std::move(context)));
    const std::string identity = data_identity(data);
    SR_ASSIGN_OR_RETURN(const auto found, saver->resume(identity));
    if (found.has_value()) *before = *found;
    before->data = identity;
    saver->start(*before);
    return saver;
  }

  Status check(const FitOptions& options) const {
    if (options.epochs < 1) return invalid_argument("epochs is {}", options.epochs);
    const double decay = options.learning_rate_decay;
    if (!(decay > 0 && decay <= 1)) {
      return invalid_argument("learning_rate_decay is {}; it must be above 0 and at most 1", decay);
    }
    if (options.trace_first < 0) {
      return invalid_argument("trace_first is {}; steps count from 0", options.trace_first);
    }
    return check_synchronous(options);
  }

  [[nodiscard]] int64_t replicas() const {
    return std::accumulate(worker_lanes_.begin(), worker_lanes_.end(), int64_t{0});
  }

  Status check_synchronous(const FitOptions& options) const {
    const int64_t wanted = options.replicas_to_aggregate;
    if (!options.synchronous) {
      if (wanted == 0) return {};
      return invalid_argument(
          "replicas_to_aggregate is {}, and replicas are not in step: see `synchronous`", wanted);
    }
    if (options.steps_in_flight != 1) {
      return invalid_argument(
          "steps_in_flight is {}; replicas in step have one: the next one begins when all have "
          "ended",
          options.steps_in_flight);
    }
    if (wanted >= 0 && wanted <= replicas()) return {};
    return invalid_argument(
        "replicas_to_aggregate is {}; the cluster has {} replicas, the lanes of its workers "
        "(0: all)",
        wanted, replicas());
  }

  /// Who asks the tasks of some jobs of the cluster how they are.
  Result<std::unique_ptr<service::StatusClient>> status_of(const std::vector<std::string>& jobs) {
    cluster::ClusterSpec asked;
    for (const std::string& job : jobs) {
      SR_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                          cluster_->spec().addresses(job));
      SR_RETURN_IF_ERROR(asked.add_job(job, addresses));
    }
    return service::StatusClient::create(asked, cluster_->security());
  }

  /// Asks all tasks of the jobs ps and worker, until they answer, who they are.
  Status reach_tasks() {
    SR_ASSIGN_OR_RETURN(const auto credentials,
                        security::Credentials::create(cluster_->security()));
    SR_ASSIGN_OR_RETURN(ps_status_, status_of({"ps"}));
    SR_ASSIGN_OR_RETURN(const auto everybody, status_of({"ps", "worker"}));
    const auto until = steady_clock::now() + kReachDeadline;
    while (true) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
      std::vector<service::TaskReport> reports = everybody->ask(std::max(left, milliseconds(1)));
      const auto lost = std::find_if(reports.begin(), reports.end(),
                                     [](const auto& report) { return !report.status.ok(); });
      if (lost == reports.end()) {
        take_tasks(reports);
        return {};
      }
      SR_RETURN_IF_ERROR(cluster_->check_alive());
      Status missing = lost->status;
      // gRPC does not say that the other side hung up for a secret.
      SR_RETURN_IF_ERROR(base::with_context(
          security::check_credentials(lost->address, credentials.get(), kCheckDeadline),
          fmt::format("{} at {}", lost->task, lost->address)));
      const bool may_come = missing.code() == StatusCode::kUnavailable ||
                            missing.code() == StatusCode::kDeadlineExceeded;
      if (!may_come || steady_clock::now() + kAskAgain >= until) return missing;
      std::this_thread::sleep_for(kAskAgain);
    }
  }

  void take_tasks(const std::vector<service::TaskReport>& reports) {
    for (const service::TaskReport& report : reports) {
      const int lanes =
          static_cast<int>(std::max<int64_t>(1, report.figures.value("sidereal_task_lanes")));
      if (report.task.starts_with("/job:ps/")) {
        topology_.ps_lanes.push_back(lanes);
      } else {
        worker_lanes_.push_back(lanes);
      }
    }
  }

  /// Sessions that train as `options` say. When in step, `synchronous_` is what they run.
  Result<const std::vector<WorkerSession>*> training_sessions(const FitOptions& options) {
    if (!options.synchronous) return sessions(options.compute_dtype);
    const int64_t wanted = options.replicas_to_aggregate;
    const bool has_spares = wanted != 0 && wanted < replicas();
    SR_ASSIGN_OR_RETURN(synchronous_, synchronize(model_, distributed_, has_spares, registry_));
    SR_ASSIGN_OR_RETURN(chief_workers_,
                        sessions(options.compute_dtype, synchronous_.graph,
                                 has_spares ? "synchronous with spares" : "synchronous"));
    return chief_workers_;
  }

  /// Before replicas begin: nothing is left of steps before, whatever became of them.
  Status begin_steps() {
    // What a cancelled step still sends is of another time.
    constexpr int64_t kStepsOfLoop = int64_t{1} << 32;
    first_step_ += kStepsOfLoop;
    return chief_workers_->front()
        .session
        ->run({{kReplicas, Tensor::scalar(replicas())}, {kFirstStep, Tensor::scalar(first_step_)}},
              synchronous_.begin, {}, {.timeout = kReadDeadline})
        .status();
  }

  ChiefLoop chief_loop(const FitOptions& options,
                       const std::pair<std::string, Tensor>& rate) const {
    const int64_t wanted = options.replicas_to_aggregate;
    ChiefLoop chief;
    chief.session = chief_workers_->front().session;
    chief.replicas = replicas();
    chief.leave = synchronous_.leave;
    chief.loop.targets = synchronous_.apply;
    chief.loop.constants = {
        rate, {kReplicasToAggregate, Tensor::scalar(wanted == 0 ? replicas() : wanted)}};
    chief.loop.steps = kStepsOfChief;
    return chief;
  }

  Result<int64_t> updates_of_loop() {
    SR_ASSIGN_OR_RETURN(const std::vector<Tensor> read,
                        chief_workers_->front().session->run({}, {synchronous_.step}, {},
                                                             {.timeout = kReadDeadline}));
    if (read.size() != 1 || read[0].dtype() != DType::kInt64 || read[0].num_elements() != 1) {
      return base::internal("the number of the step is no number");
    }
    return read[0].data<const int64_t>()[0] - first_step_;
  }

  /// A session to each worker whose products are computed in `compute_dtype`.
  Result<const std::vector<WorkerSession>*> sessions(const std::string& compute_dtype) {
    return sessions(compute_dtype, distributed_.graph, "");
  }

  /// `kind` is what `graph` does, for sessions that are there already.
  Result<const std::vector<WorkerSession>*> sessions(const std::string& compute_dtype,
                                                     const ir::Graph& graph,
                                                     const std::string& kind) {
    const auto [at, is_new] = sessions_.try_emplace({compute_dtype, kind});
    if (!is_new) return &at->second;
    std::vector<WorkerSession> made(worker_lanes_.size());
    const Status status = for_all(made.size(), [&](size_t i) -> Status {
      const int index = static_cast<int>(i);
      service::SessionOptions options = cluster_->session_options();
      options.state_group = state_group_;
      options.compute_dtype = compute_dtype;
      options.connect_timeout = kReachDeadline;
      SR_ASSIGN_OR_RETURN(made[i].session,
                          service::Session::create(cluster_->target("worker", index),
                                                   on_worker(graph, index, registry_), options));
      made[i].task = app::task_name("worker", index);
      made[i].lanes = worker_lanes_[i];
      return {};
    });
    if (!status.ok()) {
      sessions_.erase(at);
      return status;
    }
    at->second = std::move(made);
    return &at->second;
  }

  [[nodiscard]] task::LoopOptions training_loop(const data::DataSpec& data,
                                                const FitOptions& options) const {
    task::LoopOptions loop;
    loop.fetches = {{.name = model_.loss, .keep = task::Keep::kFinite}};
    loop.targets = options.synchronous ? synchronous_.contribute : model_.targets;
    loop.targets.insert(loop.targets.end(), model_.updates.begin(), model_.updates.end());
    loop.source = data::to_json(data);
    for (const std::string& input : model_.inputs) loop.columns.emplace_back(input, input);
    loop.batch_size = options.batch_size;
    loop.steps_in_flight = options.steps_in_flight;
    loop.lanes = 0;
    if (model_.is_binary) {
      loop.auc_fetch = static_cast<int64_t>(loop.fetches.size());
      loop.auc_labels = kLabel;
      loop.fetches.push_back({.name = model_.prediction, .keep = task::Keep::kLast});
    }
    return loop;
  }

  /// What numbers the steps of a worker's loop have, after `done` others of this training.
  static void number_steps(const FitOptions& options, const WorkerSession& worker, size_t index,
                           int64_t done, task::LoopOptions* loop) {
    const auto lanes = static_cast<uint64_t>(worker.lanes);
    const uint64_t first = 1 + static_cast<uint64_t>(index) * kStepsOfWorker;
    loop->first_step = first + static_cast<uint64_t>(done);
    if (options.trace_end <= options.trace_first) return;
    loop->trace_first = first + static_cast<uint64_t>(options.trace_first) * lanes;
    loop->trace_end = first + static_cast<uint64_t>(options.trace_end) * lanes;
    loop->trace_process = 1 + static_cast<int32_t>(index % 1000) * kProcessesOfWorker;
  }

  /// Once through the data, with the columns that `outputs` need.
  Result<task::LoopOptions> inference_loop(const data::DataSpec& data, const FitOptions& options,
                                           const std::vector<std::string>& outputs) {
    task::LoopOptions loop;
    data::DataSpec in_order = data;
    in_order.shuffle_rows = 0;
    loop.source = data::to_json(in_order);
    SR_ASSIGN_OR_RETURN(const std::vector<std::string> inputs,
                        placeholders_of(distributed_.graph, outputs));
    for (const std::string& input : inputs) loop.columns.emplace_back(input, input);
    loop.batch_size = options.batch_size;
    // Nothing is pushed, so the next pull may always be on its way.
    loop.steps_in_flight = 2;
    return loop;
  }

  Result<Tensor> read_part(const std::string& node, DType dtype, const tensor::Shape& shape) {
    SR_ASSIGN_OR_RETURN(std::vector<Tensor> read,
                        first_->run({}, {node}, {}, {.timeout = kReadDeadline}));
    if (read.size() != 1 || read[0].dtype() != dtype || read[0].shape() != shape) {
      return base::internal("'{}' is not {} {}", node, tensor::name_of(dtype), shape.to_string());
    }
    return std::move(read[0]);
  }

  app::Cluster* cluster_;
  CompiledModel model_;
  ir::OpRegistry registry_;
  std::unique_ptr<service::StatusClient> ps_status_;
  Topology topology_;
  std::vector<int> worker_lanes_;
  DistributedModel distributed_;
  std::string state_group_;
  /// By compute_dtype and kind.
  std::map<std::pair<std::string, std::string>, std::vector<WorkerSession>> sessions_;
  std::shared_ptr<service::Session> first_;  // Of the first worker.
  // Of the latest fit in step.
  SynchronousModel synchronous_;
  const std::vector<WorkerSession>* chief_workers_ = nullptr;
  int64_t first_step_ = 0;
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(app::Cluster* cluster, CompiledModel model) {
  auto impl = std::make_unique<Impl>(cluster, std::move(model));
  SR_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Result<FitResult> Trainer::fit(const data::DataSpec& data, const FitOptions& options,
                               const data::DataSpec* validation) {
  return impl_->fit(data, options, validation);
}
Result<EvalResult> Trainer::evaluate(const data::DataSpec& data, const FitOptions& options) {
  return impl_->evaluate(data, options);
}
Result<Tensor> Trainer::predict(const data::DataSpec& data, const FitOptions& options) {
  return impl_->predict(data, options);
}
Result<Tensor> Trainer::read_variable(const std::string& name) {
  return impl_->read_variable(name);
}
Result<std::vector<TaskStats>> Trainer::task_stats() { return impl_->ps_stats(); }
const CompiledModel& Trainer::model() const { return impl_->model(); }

}  // namespace sidereal::train
