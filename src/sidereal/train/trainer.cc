#include "sidereal/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/train/best_weights.h"
#include "sidereal/train/checkpointing.h"
#include "sidereal/train/data_position.h"
#include "sidereal/train/epoch_losses.h"
#include "sidereal/train/fit.h"
#include "sidereal/train/inference.h"
#include "sidereal/train/loop_group.h"
#include "sidereal/train/placed_model.h"
#include "sidereal/train/replicas.h"

namespace sidereal::train {

namespace {

using base::invalid_argument;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::Tensor;

/// What a program gets to leave a directory of checkpoints after its job was taken over.
constexpr milliseconds kHandOver(15'000);
constexpr milliseconds kLookAgain(50);
/// Numbers of steps of one worker, so that no two workers draw the same random numbers.
constexpr uint64_t kStepsOfWorker = uint64_t{1} << 28;
/// Process numbers of one worker's steps in traces.
constexpr int32_t kProcessesOfWorker = 1 << 20;

}  // namespace

std::array<std::pair<const char*, double>, 6> more_figures(const EvalResult& result) {
  const data::Quality& q = result.quality;
  return {{{"pr_auc", q.pr_auc},
           {"rmse", q.rmse},
           {"calibration", q.calibration},
           {"grouped_auc", q.grouped_auc},
           {"ndcg", q.ndcg},
           {"training_loss", result.training_loss}}};
}

class Trainer::Impl {
 public:
  Impl(app::Cluster* cluster, CompiledModel model, service::JobOptions job)
      : cluster_(cluster),
        placed_(cluster, std::move(model), std::move(job)),
        model_(placed_.model()) {}

  Status start() { return placed_.place(); }

  Result<FitResult> fit(const data::DataSpec& data, const FitOptions& options,
                        const data::DataSpec* validation) {
    SR_RETURN_IF_ERROR(data::inspect(data).status());
    if (validation != nullptr) SR_RETURN_IF_ERROR(data::inspect(*validation).status());
    SR_RETURN_IF_ERROR(check(options));
    SR_ASSIGN_OR_RETURN(const config::Consistency consistency,
                        config::parse_consistency(options.consistency));
    SR_RETURN_IF_ERROR(
        config::check_consistency(consistency, placed_.replicas(), options.steps_in_flight));
    Fit fit(cluster_, data, options, validation);
    fit.consistency = consistency;
    fit.may_begin_anew = !is_trained_;
    fit.is_binary = model_.is_binary;
    Status status;
    do {
      status = train(&fit);
    } while (!status.ok() && (status = recover(std::move(status), &fit)).ok());
    if (!status.ok()) return explained(status);
    FitResult result = fit.end();
    if (fit.rows() == 0) return no_rows(data, "train on");
    return result;
  }

  /// `failed`, or what has come before it: a task was started again, which tells those who reach
  /// it that they know it not.
  Status explained(const Status& failed) {
    if (failed.code() != StatusCode::kUnavailable && failed.code() != StatusCode::kAborted) {
      return failed;
    }
    const std::vector<std::string> again = placed_.tasks_started_again();
    if (again.empty()) return failed;
    return base::aborted(
        "{} was started again, and what it held of the model is lost: train on a new connection to "
        "the cluster, anew or from a checkpoint",
        base::join(again, ", "));
  }

  Result<EvalResult> evaluate(const data::DataSpec& data, const FitOptions& options) {
    return train::evaluate(cluster_, &placed_, data, options);
  }
  Result<Tensor> predict(const data::DataSpec& data, const FitOptions& options) {
    return train::predict(cluster_, &placed_, data, options);
  }
  Result<Tensor> read_variable(const std::string& name) { return placed_.read_variable(name); }
  Result<std::vector<TaskStats>> ps_stats() { return placed_.ps_stats(); }
  [[nodiscard]] const CompiledModel& model() const { return model_; }

 private:
  /// The fit from where it is, at its begin or after a loss, to its end.
  Status train(Fit* fit) {
    const FitOptions& options = fit->options;
    SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers,
                        replicas_.open(fit->consistency, options.compute_dtype));
    task::LoopOptions loop = training_loop(fit->data, options);
    const double decay = options.learning_rate_decay;
    const bool counts_by_epoch = fit->validation != nullptr || decay != 1;
    LoopGroup& group = fit->group;
    FitResult& result = fit->result;
    group.set_sessions(*workers);
    TrainingState before;
    SR_ASSIGN_OR_RETURN(const auto saver, open_checkpoints(fit, &before));
    const bool one_loop = !counts_by_epoch && (saver == nullptr || !saver->saves_by_epoch());
    result.validation = before.validation;
    before.worker_steps.resize(workers->size());
    for (size_t i = 0; i < workers->size(); ++i) before.worker_steps[i] -= group.steps_of(i);
    DataSchedule schedule(before.position, placed_.worker_lanes());
    int64_t loop_steps = before.loop_steps;
    const auto state = [&] {
      TrainingState now = before;
      now.steps = fit->steps();
      now.rows = fit->rows();
      now.loop_steps = loop_steps;
      for (size_t i = 0; i < workers->size(); ++i) now.worker_steps[i] += group.steps_of(i);
      now.position = schedule.position();
      now.validation = result.validation;
      fit->mark();
      return now;
    };
    SR_ASSIGN_OR_RETURN(const auto best, open_best(fit, before));
    // Of steps that were made here.
    EpochLosses losses;
    const auto tell_losses = [&](int64_t end) {
      losses.take_below(end, [&](int64_t epoch, double mean) { fit->epoch_ended(epoch, mean); });
    };
    is_trained_ = true;
    result.epochs = schedule.first_epoch(options.epochs);
    fit->stands_at_epoch(result.epochs);
    while (result.epochs < options.epochs && !is_over(options, result)) {
      const int64_t epoch = result.epochs;
      const int64_t end = one_loop ? options.epochs : epoch + 1;
      const std::pair<std::string, Tensor> rate = {
          kLearningRateScale, Tensor::scalar(std::pow(decay, static_cast<double>(epoch)))};
      while (schedule.first_epoch(end) < end && steps_left(options, loop_steps) != 0) {
        SR_RETURN_IF_ERROR(replicas_.begin(rate, &group, &loop));
        const int64_t steps = steps_at_once(steps_left(options, loop_steps), saver.get());
        const auto for_worker = [&](size_t index, task::LoopOptions* own) {
          number_steps(options, (*workers)[index], index,
                       before.worker_steps[index] + group.steps_of(index), own);
          own->steps = steps * (*workers)[index].lanes;
          own->goes_on = saver != nullptr && steps > 0;
          replicas_.number(index, own);
          schedule.tell(index, end, own);
          if (options.record_losses && index == 0) {
            own->fetches.push_back({.name = model_.loss, .keep = task::Keep::kEach});
          }
        };
        const int64_t steps_before = group.steps();
        const double seconds_before = group.seconds();
        const int64_t first = schedule.first_epoch(end);
        std::vector<int64_t> begun(workers->size(), first);
        const auto on_passes = [&](size_t worker, const auto& passes, const auto& positions) {
          for (const task::LoopPassMean& pass : passes) {
            if (pass.lane >= (*workers)[worker].lanes) continue;  // Said by another program.
            const auto lane = static_cast<size_t>(pass.lane);
            losses.add(schedule.epoch_of(worker, end, lane, pass.pass), pass.sum, pass.steps);
          }
          begun[worker] = schedule.begun_epoch(worker, end, positions);
          tell_losses(std::ranges::min(begun));
        };
        SR_RETURN_IF_ERROR(group.run(loop, first, end - first, for_worker, on_passes));
        for (size_t i = 0; i < workers->size(); ++i) {
          schedule.took(i, end, steps, group.positions_of(i));
        }
        loop_steps += steps;
        if (fit->consistency.is_in_step()) {
          SR_ASSIGN_OR_RETURN(const int64_t updates, replicas_.updates());
          result.updates += updates;
        }
        if (saver == nullptr) continue;
        saver->loop_ended(group.steps() - steps_before, group.seconds() - seconds_before);
        if (schedule.first_epoch(end) < end && saver->is_due(false)) saver->save(state());
      }
      result.epochs = end;
      tell_losses(end);
      if (counts_by_epoch) {
        schedule.leave_out(end);
        loop_steps = 0;
      }
      if (fit->validation != nullptr) {
        SR_RETURN_IF_ERROR(evaluate_epoch(fit, epoch, end));
        if (best != nullptr && since_best(result.validation) == 0) best->keep(state());
      }
      if (saver != nullptr && saver->is_due(true)) saver->save(state());
    }
    SR_RETURN_IF_ERROR(restore_best(fit, best.get(), before.data));
    if (saver != nullptr) saver->save_last(state(), result.restored_best);
    // The model is there until its last figure is known.
    SR_ASSIGN_OR_RETURN(result.tasks, placed_.ps_stats());
    return {};
  }

  /// The figures of the validation data behind an epoch; `ended`: epochs.
  Status evaluate_epoch(Fit* fit, int64_t epoch, int64_t ended) {
    SR_ASSIGN_OR_RETURN(EvalResult evaluated, evaluate(*fit->validation, fit->options));
    const std::vector<double>& losses = fit->result.training_losses;
    if (static_cast<int64_t>(losses.size()) == ended) evaluated.training_loss = losses.back();
    fit->evaluated(evaluated, epoch, ended);
    return {};
  }

  /// Whether no better epoch came for as many as are waited for.
  [[nodiscard]] bool is_over(const FitOptions& options, const FitResult& result) const {
    return options.patience > 0 && since_best(result.validation) >= options.patience;
  }

  /// Steps that each lane has yet, of FitOptions::steps_max; -1: as many as there are.
  static int64_t steps_left(const FitOptions& options, int64_t done) {
    return options.steps_max == 0 ? -1 : std::max<int64_t>(0, options.steps_max - done);
  }

  /// Steps of each lane until a checkpoint is due, `left` at most; 0: as many as there are.
  static int64_t steps_at_once(int64_t left, const Checkpointing* saver) {
    const int64_t steps = std::max<int64_t>(left, 0);
    if (saver == nullptr || saver->steps_of_lane() <= 0) return steps;
    return steps == 0 ? saver->steps_of_lane() : std::min(steps, saver->steps_of_lane());
  }

  /// Epochs since the one with the best evaluation.
  [[nodiscard]] int64_t since_best(const std::vector<EvalResult>& validation) const {
    if (validation.empty()) return 0;
    return static_cast<int64_t>(validation.size() - 1 - best_of(validation, model_.is_binary));
  }

  /// What keeps the weights of the best epoch; nullptr without restore_best.
  Result<std::unique_ptr<BestWeights>> open_best(Fit* fit, const TrainingState& before) {
    const FitOptions& options = fit->options;
    if (!options.restore_best || fit->validation == nullptr) return std::unique_ptr<BestWeights>();
    std::string directory = options.best_directory;
    if (directory.empty()) directory = options.checkpoints.directory + "/best";
    return BestWeights::open(directory, before.validation.empty(), context_of(fit, nullptr));
  }

  /// The weights are those of the best epoch, when they have been kept.
  Status restore_best(Fit* fit, BestWeights* best, const std::string& data) const {
    FitResult& result = fit->result;
    result.best_epoch = 0;
    result.restored_best = false;
    if (result.validation.empty()) return {};
    const int64_t since = since_best(result.validation);
    result.best_epoch = static_cast<int64_t>(result.validation.size()) - since;
    if (best == nullptr || since == 0) return {};
    SR_ASSIGN_OR_RETURN(result.restored_best,
                        best->restore(static_cast<size_t>(result.best_epoch), data));
    if (!result.restored_best) {
      fit->tell(
          fmt::format("the weights of epoch {}, the best, were not kept: those of the last "
                      "epoch stay",
                      result.best_epoch));
    }
    return {};
  }

  Checkpointing::Context context_of(Fit* fit, CheckpointReport* report) {
    Checkpointing::Context context;
    context.session = placed_.first();
    context.nodes = &placed_.distributed().saving;
    context.lanes = placed_.replicas();
    context.report = report;
    context.tell = [fit](const std::string& text) { fit->tell(text); };
    return context;
  }

  /// Its directory of checkpoints. Who had the job before hears that it has ended, and leaves it.
  Result<std::unique_ptr<Checkpointing>> open_directory(Fit* fit, CheckpointReport* report) {
    const steady_clock::time_point until =
        steady_clock::now() + (placed_.took_over() ? kHandOver : milliseconds(0));
    while (true) {
      auto opened = Checkpointing::open(fit->checkpoints, context_of(fit, report));
      const bool may_come = opened.status().code() == StatusCode::kFailedPrecondition;
      if (!may_come || steady_clock::now() >= until) return opened;
      if (fit->options.cancelled && fit->options.cancelled()) {
        return base::cancelled("interrupted: {}", base::message_of(opened.status()));
      }
      std::this_thread::sleep_for(kLookAgain);
    }
  }

  /// What saves as the options say, nullptr if they say nothing; variables, and all that the fit
  /// counts, are as the checkpoint has them that training goes on from, or as they began.
  Result<std::unique_ptr<Checkpointing>> open_checkpoints(Fit* fit, TrainingState* before) {
    std::unique_ptr<Checkpointing> saver;
    CheckpointReport& report = fit->result.checkpoints;
    bool is_found = false;
    const std::string identity = data_identity(fit->data);
    if (!fit->checkpoints.directory.empty()) {
      SR_ASSIGN_OR_RETURN(saver, open_directory(fit, &report));
      SR_ASSIGN_OR_RETURN(const auto found, saver->resume(identity));
      is_found = found.has_value();
      if (is_found) *before = *found;
      saver->start(*before);
    }
    before->data = identity;
    const std::string from = saver == nullptr ? "" : saver->resumed_from();
    if (fit->is_begun) {
      if (!is_found && !fit->may_begin_anew) {
        return base::data_loss("no checkpoint of this training is left in '{}'",
                               fit->checkpoints.directory);
      }
      fit->go_back(*before, from, placed_.replaced());
    } else {
      fit->first_steps = report.steps_before = before->steps;
      fit->first_rows = report.rows_before = before->rows;
      report.resumed_from = from;
    }
    fit->stands_at(*before);
    if (!fit->is_begun && fit->options.restores && !is_found && !fit->may_begin_anew) {
      // What earlier fits have taught the model is nowhere else.
      saver->save_last(*before);
      if (report.saved == 0) {
        return base::failed_precondition(
            "what a lost task held could not be restored: the first checkpoint was not saved: {}",
            report.first_failure);
      }
    }
    fit->is_begun = true;
    fit->checkpoints.resume = "auto";
    return saver;
  }

  /// After a failure: Ok when a task was lost and the fit can go on; else why it ends.
  Status recover(Status failure, Fit* fit) {
    const FitOptions& options = fit->options;
    const bool can_go_back = fit->is_begun || fit->may_begin_anew;
    if (!options.restores || !can_go_back) return failure;
    const auto is_loss = [&] {
      return failure.code() == StatusCode::kUnavailable || failure.code() == StatusCode::kAborted ||
             !placed_.lost_tasks().empty();
    };
    if (failure.code() == StatusCode::kCancelled || !is_loss()) return failure;
    fit->lost_at = steady_clock::now();
    while (true) {
      // It may be lost for good.
      SR_RETURN_IF_ERROR(base::with_context(cluster_->check_alive(), base::message_of(failure)));
      SR_RETURN_IF_ERROR(fit->count_loss(failure));
      const Status again =
          placed_.place_again(std::chrono::duration_cast<milliseconds>(
                                  std::chrono::duration<double>(options.restart_timeout_s)),
                              options.cancelled);
      if (again.ok()) return {};
      if (again.code() != StatusCode::kUnavailable && again.code() != StatusCode::kAborted) {
        return base::with_context(again, base::message_of(failure));
      }
      failure = again;
    }
  }

  Status check(const FitOptions& options) const {
    if (options.epochs < 1) return invalid_argument("epochs is {}", options.epochs);
    const double decay = options.learning_rate_decay;
    if (!(decay > 0 && decay <= 1)) {
      return invalid_argument("learning_rate_decay is {}; it must be above 0 and at most 1", decay);
    }
    if (options.restore_best && options.best_directory.empty() &&
        options.checkpoints.directory.empty()) {
      return invalid_argument(
          "the weights of the best epoch are kept in files, and there is no directory for them: "
          "give one of checkpoints");
    }
    if (options.trace_first < 0) {
      return invalid_argument("trace_first is {}; steps count from 0", options.trace_first);
    }
    return check_recovery(options, *cluster_);
  }

  [[nodiscard]] task::LoopOptions training_loop(const data::DataSpec& data,
                                                const FitOptions& options) const {
    task::LoopOptions loop;
    loop.fetches = {{.name = model_.loss, .keep = task::Keep::kFinite}};
    loop.targets = replicas_.targets();
    loop.targets.insert(loop.targets.end(), model_.updates.begin(), model_.updates.end());
    loop.source = data::to_json(data);
    for (const std::string& input : model_.inputs) loop.columns.emplace_back(input, input);
    loop.batch_size = options.batch_size;
    loop.steps_in_flight = options.steps_in_flight;
    loop.lanes = 0;
    if (model_.is_binary) {
      loop.auc_fetch = static_cast<int64_t>(loop.fetches.size());
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

  app::Cluster* cluster_;
  PlacedModel placed_;
  const CompiledModel& model_;
  Replicas replicas_{&placed_};
  bool is_trained_ = false;  // Variables may have others than their first values.
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(app::Cluster* cluster, CompiledModel model,
                                                 service::JobOptions job) {
  auto impl = std::make_unique<Impl>(cluster, std::move(model), std::move(job));
  SR_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Result<FitResult> Trainer::fit(const data::DataSpec& data, const FitOptions& options,
                               const data::DataSpec* validation) {
  return impl_->fit(data, options, validation);
}
Result<EvalResult> Trainer::evaluate(const data::DataSpec& data, const FitOptions& options) {
  auto result = impl_->evaluate(data, options);
  if (!result.ok()) return impl_->explained(result.status());
  return result;
}
Result<Tensor> Trainer::predict(const data::DataSpec& data, const FitOptions& options) {
  auto result = impl_->predict(data, options);
  if (!result.ok()) return impl_->explained(result.status());
  return result;
}
Result<Tensor> Trainer::read_variable(const std::string& name) {
  auto result = impl_->read_variable(name);
  if (!result.ok()) return impl_->explained(result.status());
  return result;
}
Result<std::vector<TaskStats>> Trainer::task_stats() { return impl_->ps_stats(); }
const CompiledModel& Trainer::model() const { return impl_->model(); }

}  // namespace sidereal::train
