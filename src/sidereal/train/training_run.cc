#include "sidereal/train/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/train/inference.h"

namespace sidereal::train {

namespace {

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
/// Steps of a lane that may be trained when its worker is lost, and that were not told of.
constexpr int64_t kAheadMax = 128;
/// Of a lane that was stopped: beside those in flight, those whose pushes are on their way.
constexpr int64_t kStepsBehindFlight = 2;
/// Losses of workers one after the other without a step between them.
constexpr int64_t kLossesMax = 5;

}  // namespace

TrainingRun::TrainingRun(app::Cluster* cluster, PlacedModel* placed, Replicas* replicas, Fit* fit)
    : cluster_(cluster),
      placed_(placed),
      replicas_(replicas),
      fit_(fit),
      options_(fit->options),
      model_(placed->model()),
      group_(fit->group),
      result_(fit->result),
      resharding_(
          {.placed = placed,
           .replicas = replicas,
           .commands =
               [fit, placed] {
                 service::JobCommands* const own = fit->options.commands.get();
                 return own != nullptr ? own : placed->commands();
               },
           .tell = [fit](const std::string& text, base::LogLevel level) { fit->tell(text, level); },
           // What is being written is read through sessions that would go.
           .may_drain = [this] { return saver_ == nullptr || !saver_->is_saving(); },
           .autoscale = fit->autoscale,
           .moves = &fit->result.moves}) {}

Status TrainingRun::run() {
  SR_RETURN_IF_ERROR(open());
  const double decay = options_.learning_rate_decay;
  const bool counts_by_epoch = fit_->validation != nullptr || decay != 1;
  const bool one_loop = !counts_by_epoch && (saver_ == nullptr || !saver_->saves_by_epoch());
  result_.epochs = schedule_.first_epoch(options_.epochs);
  fit_->stands_at_epoch(result_.epochs);
  while (result_.epochs < options_.epochs && !is_over()) {
    const int64_t epoch = result_.epochs;
    const int64_t end = one_loop ? options_.epochs : epoch + 1;
    const double scale = std::pow(decay, static_cast<double>(epoch));
    SR_RETURN_IF_ERROR(train_below(end, {kLearningRateScale, Tensor::scalar(scale)}));
    result_.epochs = end;
    tell_losses(end);
    if (counts_by_epoch) {
      schedule_.leave_out(end);
      loop_steps_ = 0;
    }
    if (fit_->validation != nullptr) {
      SR_RETURN_IF_ERROR(evaluate_epoch(epoch, end));
      if (best_ != nullptr && since_best() == 0) best_->keep(state());
    }
    if (saver_ != nullptr && saver_->is_due(true)) saver_->save(state());
  }
  SR_RETURN_IF_ERROR(restore_best());
  if (saver_ != nullptr) saver_->save_last(state(), result_.restored_best);
  // The model is there until its last figure is known.
  SR_ASSIGN_OR_RETURN(result_.tasks, placed_->ps_stats());
  return {};
}

Status TrainingRun::open() {
  SR_RETURN_IF_ERROR(open_sessions());
  group_.set_drains([this] {
    if (resharding_.look(group_.first_step())) return true;
    return options_.continues && !resharding_.is_busy() && placed_->has_found_workers();
  });
  loop_ = training_loop();
  SR_RETURN_IF_ERROR(open_checkpoints());
  result_.validation = before_.validation;
  before_.worker_steps.resize(workers_->size());
  for (size_t i = 0; i < workers_->size(); ++i) before_.worker_steps[i] -= group_.steps_of(i);
  schedule_ = DataSchedule(before_.position, placed_->worker_lanes());
  loop_steps_ = before_.loop_steps;
  return open_best();
}

Status TrainingRun::open_sessions() {
  SR_ASSIGN_OR_RETURN(workers_, replicas_->open(fit_->consistency, options_.compute_dtype));
  group_.set_sessions(*workers_);
  return {};
}

/// Its directory of checkpoints. Who had the job before hears that it has ended, and leaves it.
Status TrainingRun::open_directory() {
  const steady_clock::time_point until =
      steady_clock::now() + (placed_->took_over() ? kHandOver : milliseconds(0));
  while (true) {
    auto opened = Checkpointing::open(fit_->checkpoints, context_of(&result_.checkpoints));
    const bool may_come = opened.status().code() == StatusCode::kFailedPrecondition;
    if (!may_come || steady_clock::now() >= until) {
      SR_ASSIGN_OR_RETURN(saver_, std::move(opened));
      return {};
    }
    if (options_.cancelled && options_.cancelled()) {
      return base::cancelled("interrupted: {}", base::message_of(opened.status()));
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

/// Makes what saves as the options say; variables, and all that the fit counts, are as the
/// checkpoint has them that training goes on from, or as they began.
Status TrainingRun::open_checkpoints() {
  CheckpointReport& report = result_.checkpoints;
  bool is_found = false;
  const std::string identity = data_identity(fit_->data);
  if (!fit_->checkpoints.directory.empty()) {
    SR_RETURN_IF_ERROR(open_directory());
    SR_ASSIGN_OR_RETURN(const auto found, saver_->resume(identity));
    is_found = found.has_value();
    if (is_found) before_ = *found;
    saver_->start(before_);
  }
  before_.data = identity;
  const std::string from = saver_ == nullptr ? "" : saver_->resumed_from();
  if (fit_->is_begun) {
    if (!is_found && !fit_->may_begin_anew) {
      return base::data_loss("no checkpoint of this training is left in '{}'",
                             fit_->checkpoints.directory);
    }
    fit_->go_back(before_, from, placed_->replaced());
  } else {
    fit_->first_steps = report.steps_before = before_.steps;
    fit_->first_rows = report.rows_before = before_.rows;
    report.resumed_from = from;
  }
  fit_->stands_at(before_);
  if (!fit_->is_begun && options_.restores && !is_found && !fit_->may_begin_anew) {
    // What earlier fits have taught the model is nowhere else.
    saver_->save_last(before_);
    if (report.saved == 0) {
      return base::failed_precondition(
          "what a lost task held could not be restored: the first checkpoint was not saved: {}",
          report.first_failure);
    }
  }
  fit_->is_begun = true;
  fit_->checkpoints.resume = "auto";
  return {};
}

/// Makes what keeps the weights of the best epoch.
Status TrainingRun::open_best() {
  if (!options_.restore_best || fit_->validation == nullptr) return {};
  std::string directory = options_.best_directory;
  if (directory.empty()) directory = options_.checkpoints.directory + "/best";
  SR_ASSIGN_OR_RETURN(
      best_, BestWeights::open(directory, before_.validation.empty(), context_of(nullptr)));
  return {};
}

Checkpointing::Context TrainingRun::context_of(CheckpointReport* report) const {
  return {.placed = placed_, .report = report, .tell = [fit = fit_](const std::string& text) {
            fit->tell(text);
          }};
}

task::LoopOptions TrainingRun::training_loop() const {
  task::LoopOptions loop;
  loop.fetches = {{.name = model_.loss, .keep = task::Keep::kFinite}};
  loop.targets = replicas_->targets();
  loop.targets.insert(loop.targets.end(), model_.updates.begin(), model_.updates.end());
  loop.source = data::to_json(fit_->data);
  for (const std::string& input : model_.inputs) loop.columns.emplace_back(input, input);
  loop.batch_size = options_.batch_size;
  loop.steps_in_flight = options_.steps_in_flight;
  if (options_.may_go_on()) loop.ahead_max = kAheadMax;
  loop.lanes = 0;
  if (model_.is_binary) {
    loop.auc_fetch = static_cast<int64_t>(loop.fetches.size());
    loop.fetches.push_back({.name = model_.prediction, .keep = task::Keep::kLast});
  }
  return loop;
}

/// Until lanes have read all epochs below `end`, or have had their steps.
Status TrainingRun::train_below(int64_t end, const std::pair<std::string, Tensor>& rate) {
  while (schedule_.first_epoch(end) < end && steps_left() != 0) {
    take_in_workers();
    SR_RETURN_IF_ERROR(take_moved_parts());
    rows_untold_ = 0;
    Status ran = replicas_->begin(rate, &group_, &loop_);
    if (ran.ok()) ran = run_loops(end, steps_at_once());
    if (!ran.ok()) SR_RETURN_IF_ERROR(go_on(ran));
    if (saver_ != nullptr && schedule_.first_epoch(end) < end && saver_->is_due(false)) {
      saver_->save(state());
    }
  }
  return {};
}

/// One loop on each worker, of at most so many steps of a lane (0: as many as there are). Keeps
/// note of what they have done, whatever ends them.
Status TrainingRun::run_loops(int64_t end, int64_t steps) {
  const auto for_worker = [&](size_t index, task::LoopOptions* own) {
    number_steps(index, own);
    own->steps = steps * (*workers_)[index].lanes;
    own->goes_on = saver_ != nullptr && steps > 0;
    replicas_->number(index, own);
    schedule_.tell(index, end, own);
    if (options_.record_losses && index == 0) {
      own->fetches.push_back({.name = model_.loss, .keep = task::Keep::kEach});
    }
  };
  const int64_t steps_before = group_.steps();
  const double seconds_before = group_.seconds();
  const int64_t first = schedule_.first_epoch(end);
  std::vector<int64_t> begun;
  for (const WorkerSession& worker : *workers_) begun.push_back(worker.lanes > 0 ? first : end);
  const auto on_passes = [&](size_t worker, const auto& passes, const auto& positions) {
    for (const task::LoopPassMean& pass : passes) {
      if (pass.lane >= (*workers_)[worker].lanes) continue;  // Said by another program.
      const auto lane = static_cast<size_t>(pass.lane);
      losses_.add(schedule_.epoch_of(worker, end, lane, pass.pass), pass.sum, pass.steps);
    }
    begun[worker] = schedule_.begun_epoch(worker, end, positions);
    tell_losses(std::ranges::min(begun));
  };
  Status ran = group_.run(loop_, first, end - first, for_worker, on_passes);
  int64_t most = 0;
  for (size_t i = 0; i < workers_->size(); ++i) {
    const std::vector<task::LoopPosition>& positions = group_.positions_of(i);
    schedule_.took(i, end, positions);
    for (const task::LoopPosition& at : positions) most = std::max(most, at.steps);
  }
  loop_steps_ += ran.ok() && !group_.was_drained() ? steps : most;
  if (saver_ != nullptr) {
    saver_->loop_ended(group_.steps() - steps_before, group_.seconds() - seconds_before);
  }
  if (!ran.ok()) {
    rows_untold_ = rows_untold();
    return ran;
  }
  if (!fit_->consistency.is_in_step()) return {};
  SR_ASSIGN_OR_RETURN(const int64_t updates, replicas_->updates());
  result_.updates += updates;
  return {};
}

/// What numbers the steps of a worker's loop have, after others of this training.
void TrainingRun::number_steps(size_t index, task::LoopOptions* loop) const {
  const auto lanes = static_cast<uint64_t>((*workers_)[index].lanes);
  const uint64_t first = 1 + static_cast<uint64_t>(index) * kStepsOfWorker;
  loop->first_step =
      first + static_cast<uint64_t>(before_.worker_steps[index] + group_.steps_of(index));
  if (options_.trace_end <= options_.trace_first) return;
  loop->trace_first = first + static_cast<uint64_t>(options_.trace_first) * lanes;
  loop->trace_end = first + static_cast<uint64_t>(options_.trace_end) * lanes;
  loop->trace_process = 1 + static_cast<int32_t>(index % 1000) * kProcessesOfWorker;
}

void TrainingRun::tell_losses(int64_t end) {
  losses_.take_below(end, [&](int64_t epoch, double mean) { fit_->epoch_ended(epoch, mean); });
}

/// The figures of the validation data behind an epoch; `ended`: epochs.
Status TrainingRun::evaluate_epoch(int64_t epoch, int64_t ended) {
  Result<EvalResult> evaluated = EvalResult();
  while (true) {
    evaluated = evaluate(cluster_, placed_, *fit_->validation, options_);
    if (evaluated.ok()) break;
    rows_untold_ = 0;
    SR_RETURN_IF_ERROR(go_on(evaluated.status()));
  }
  const std::vector<double>& losses = result_.training_losses;
  if (static_cast<int64_t>(losses.size()) == ended) evaluated->training_loss = losses.back();
  fit_->evaluated(*evaluated, epoch, ended);
  return {};
}

/// The weights are those of the best epoch, when they have been kept.
Status TrainingRun::restore_best() {
  result_.best_epoch = 0;
  result_.restored_best = false;
  if (result_.validation.empty()) return {};
  const int64_t since = since_best();
  result_.best_epoch = static_cast<int64_t>(result_.validation.size()) - since;
  if (best_ == nullptr || since == 0) return {};
  SR_ASSIGN_OR_RETURN(result_.restored_best,
                      best_->restore(static_cast<size_t>(result_.best_epoch), before_.data));
  if (!result_.restored_best) {
    fit_->tell(
        fmt::format("the weights of epoch {}, the best, were not kept: those of the last epoch "
                    "stay",
                    result_.best_epoch));
  }
  return {};
}

/// After a failure: Ok when tasks were lost, and the training goes on from where variables are;
/// else why the run ends.
Status TrainingRun::go_on(const Status& failure) {
  resharding_.abandon(failure);
  if (!options_.may_go_on() || !is_loss(failure)) return failure;
  // Copies have learned what a lane that is stopped does not send.
  if (fit_->consistency.is_geo()) return failure;
  if (std::exchange(lost_at_steps_, group_.steps()) != group_.steps()) losses_in_a_row_ = 0;
  if (++losses_in_a_row_ > kLossesMax) return failure;
  const steady_clock::time_point began = steady_clock::now();
  // Through a session that may be lost.
  if (saver_ != nullptr) saver_->settle();
  const std::vector<std::string> missed = placed_->missing_workers();
  std::vector<std::string> lost = placed_->lost_tasks();
  const auto has_lost_ps = [&] { return std::ranges::any_of(lost, is_ps); };
  // What a worker that was lost as well had pushed nobody knows.
  const auto may_go_on = [&] {
    return has_lost_ps() ? options_.restores && std::ranges::all_of(lost, is_ps)
                         : options_.continues;
  };
  if (!lost.empty() && !may_go_on()) return failure;
  const Status joined =
      placed_->join_again(options_.restart_timeout(), options_.continues, options_.cancelled);
  if (joined.code() == StatusCode::kDataLoss) {
    // Why the training goes back to a checkpoint.
    base::log_warning("{}", base::message_of(joined));
    return failure;
  }
  SR_RETURN_IF_ERROR(base::with_context(joined, base::message_of(failure)));
  // One that was stopping answered until it had.
  const auto add = [&lost](const std::string& task) {
    if (std::ranges::find(lost, task) == lost.end()) lost.push_back(task);
  };
  std::ranges::for_each(placed_->replaced(), add);
  for (const std::string& task : placed_->missing_workers()) {
    if (std::ranges::find(missed, task) == missed.end()) add(task);
  }
  if (!may_go_on()) return failure;
  SR_RETURN_IF_ERROR(deal_again());
  fit_->goes_on({.why = failure,
                 .lost = lost,
                 .has_lost_ps = has_lost_ps(),
                 .workers = placed_->workers(),
                 .rows_twice = rows_untold_,
                 .lasted = steady_clock::now() - began});
  return {};
}

/// Workers that were lost and are there again train from now on: loops end early for them.
void TrainingRun::take_in_workers() {
  if (!options_.continues || resharding_.is_busy() || !placed_->has_found_workers()) return;
  if (saver_ != nullptr) saver_->settle();
  // One that is lost just now is found out by the loops.
  const Status joined = placed_->join_again(milliseconds(0), /*may_miss=*/true, options_.cancelled);
  if (joined.ok() && deal_again().ok()) fit_->found_workers(placed_->workers());
}

/// Parts of the model that are about to move do so now that no loop runs.
Status TrainingRun::take_moved_parts() {
  if (!resharding_.is_due()) return {};
  if (saver_ != nullptr) saver_->settle();
  if (!resharding_.take_over()) return {};
  if (saver_ != nullptr) saver_->begin_anew();
  return open_sessions();
}

/// What is left of the data goes to the workers that there are.
Status TrainingRun::deal_again() {
  schedule_ = DataSchedule(schedule_.position(), placed_->worker_lanes());
  return open_sessions();
}

/// Rows of the loops that have ended, at most, that variables have seen and no worker has told of.
int64_t TrainingRun::rows_untold() const {
  int64_t steps = 0;
  for (size_t i = 0; i < workers_->size(); ++i) {
    const std::vector<task::LoopPosition>& positions = group_.positions_of(i);
    const auto ended = std::ranges::count_if(positions, [](const auto& at) { return at.is_end; });
    const int64_t of_lane =
        group_.has_told_all(i) ? options_.steps_in_flight + kStepsBehindFlight : kAheadMax;
    steps += ((*workers_)[i].lanes - static_cast<int64_t>(ended)) * of_lane;
  }
  return steps * options_.batch_size;
}

TrainingState TrainingRun::state() {
  TrainingState now = before_;
  now.steps = fit_->steps();
  now.rows = fit_->rows();
  now.loop_steps = loop_steps_;
  for (size_t i = 0; i < workers_->size(); ++i) now.worker_steps[i] += group_.steps_of(i);
  now.position = schedule_.position();
  now.validation = result_.validation;
  fit_->mark();
  return now;
}

/// Whether no better epoch came for as many as are waited for.
bool TrainingRun::is_over() const {
  return options_.patience > 0 && since_best() >= options_.patience;
}

/// Steps that each lane has yet, of FitOptions::steps_max; -1: as many as there are.
int64_t TrainingRun::steps_left() const {
  return options_.steps_max == 0 ? -1 : std::max<int64_t>(0, options_.steps_max - loop_steps_);
}

/// Steps of each lane until a checkpoint is due, and no more than are left; 0: as many as there
/// are.
int64_t TrainingRun::steps_at_once() const {
  const int64_t steps = std::max<int64_t>(steps_left(), 0);
  if (saver_ == nullptr || saver_->steps_of_lane() <= 0) return steps;
  return steps == 0 ? saver_->steps_of_lane() : std::min(steps, saver_->steps_of_lane());
}

/// Epochs since the one with the best evaluation.
int64_t TrainingRun::since_best() const {
  const std::vector<EvalResult>& validation = result_.validation;
  if (validation.empty()) return 0;
  return static_cast<int64_t>(validation.size() - 1 - best_of(validation, model_.is_binary));
}

}  // namespace sidereal::train
