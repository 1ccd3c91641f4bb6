#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/base/log.h"
#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/quality.h"
#include "sidereal/service/job.h"
#include "sidereal/service/job_commands.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/train/model.h"
#include "sidereal/train/placement.h"

namespace sidereal::train {

/// What one task did so far.
struct TaskStats {
  std::string task;   ///< "/job:worker/task:0".
  int64_t steps = 0;  ///< Worker: steps. ps: calls served.
  int64_t rows = 0;   ///< Worker: samples. ps: 0.
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  double compute_s = 0;    ///< Seconds spent running instructions.
  double wait_s = 0;       ///< Worker: seconds waiting for a ps or for data. ps: idle seconds.
  double data_wait_s = 0;  ///< Worker: the part of wait_s spent waiting for data.
};

/// Result of an evaluation.
struct EvalResult {
  int64_t rows = 0;
  int64_t rows_skipped = 0;
  double loss = 0;  ///< Mean over the rows of what the model minimizes.
  /// Exact. Of models that predict a probability, as the next one; NaN where all labels are equal.
  double auc = 0;
  double log_loss = 0;  ///< Nats.
  double seconds = 0;
  /// Of models that predict a probability; those of groups are none (NaN) without
  /// FitOptions::metrics_by.
  data::Quality quality = {};
  /// Of an evaluation after an epoch: mean loss of the steps of that epoch, as they were made. Else
  /// NaN.
  double training_loss = std::numeric_limits<double>::quiet_NaN();
  std::optional<double> best_auc;  ///< Synthetic data: of the true probabilities.
};

/// Names and values of what is known beside rows, loss, AUC and log loss: one table for all that
/// print, write or plot evaluations. NaN: there is none.
std::array<std::pair<const char*, double>, 6> more_figures(const EvalResult& result);

/// How a fit is going; handed to FitOptions::on_progress about four times a second, and after each
/// evaluation of validation data.
struct Progress {
  int64_t epoch = 0;  ///< From 0.
  int64_t steps = 0;  ///< All workers together, since the start of the fit.
  int64_t rows = 0;
  double seconds = 0;        ///< Since the first step.
  double samples_per_s = 0;  ///< Lately.
  double loss = 0;           ///< Mean of the latest steps.
  double auc = 0;            ///< Of predictions made just before each row was learned from, lately.
  double fraction = 0;       ///< Of the whole fit, 0 to 1.
  double seconds_left = 0;   ///< Estimate; negative while unknown.
  std::vector<TaskStats> workers = {};  ///< Each worker, since the start of the fit.
  /// FitResult::training_losses so far.
  std::vector<double> training_losses = {};
  /// The latest, of validation data; none before the first epoch has ended.
  std::optional<EvalResult> validation = {};
};

/// Where, when and for how long a training is kept in files, so that it can go on after its
/// processes have ended. Value type.
struct CheckpointOptions {
  /// Of the parameter servers, which write it, and of this process. "": nothing is saved.
  std::string directory = {};
  std::string save_every = "5m";  ///< "90s", "5m", "2h", "1000steps" of all lanes, or "epoch".
  int64_t keep = 5;               ///< Checkpoints that stay, the newest; 0: all.
  /// One in so many is whole; those between have what has changed since the one before.
  int64_t full_every = 1;
  /// "auto": on from the newest checkpoint of the directory that is good, if there is one; "never";
  /// or the prefix of a checkpoint.
  std::string resume = "auto";
};

/// kInvalidArgument for what CheckpointOptions::save_every cannot be.
Status check_save_every(const std::string& text);

/// What became of checkpoints. Value type.
struct CheckpointReport {
  std::string resumed_from = {};  ///< Prefix of a checkpoint; "": the training began.
  int64_t steps_before = 0;       ///< Of it, of all workers.
  int64_t rows_before = 0;
  int64_t rows_lost = 0;   ///< That were read before and learned from by nobody.
  int64_t recoveries = 0;  ///< Losses of tasks after which the fit went on from a checkpoint.
  /// Parameter servers that were lost and had what they had from a standby: nothing went back.
  int64_t taken_from_standbys = 0;
  /// Learned from in vain, as they came after the checkpoint that was restored, and then again; as
  /// far as workers had told.
  int64_t rows_again = 0;
  int64_t saved = 0;
  int64_t failed = 0;
  std::string latest = {};         ///< Prefix of the latest that was saved.
  std::string first_failure = {};  ///< Of those that could not be.
  double save_s = 0;               ///< For which training waited.
};

/// How to train.
struct FitOptions {
  int64_t batch_size = 1024;
  int64_t epochs = 1;
  /// Steps of one lane whose pulls may be ahead. 1: a step sees every push of the step before of
  /// its own worker. n: it may miss the pushes of its n-1 latest steps, and waits less.
  int64_t steps_in_flight = 1;
  /// What the steps of one replica, a lane of a worker, see of those of others, as in
  /// config::consistency_forms(). Where replicas wait for each other one without data is not waited
  /// for, and `steps_in_flight` is 1. In step n replicas make one update by the mean of what each
  /// found in a batch of its own, as if by one with all their rows.
  std::string consistency = "async";
  /// What products of matrices are computed in: "float32" or "bfloat16", which workers without
  /// units for it take as float32. Variables and their updates are float32.
  std::string compute_dtype = "float32";
  bool record_losses = false;      ///< Keep the loss of every step (worker 0, lane 0).
  double learning_rate_decay = 1;  ///< The learning rate is multiplied by this after each epoch.
  /// > 0: stop after so many epochs without a better validation AUC, or loss where there is none.
  int64_t patience = 0;
  /// With validation data: weights, and all else that a checkpoint has, are kept after the best
  /// epoch so far, and are there again when the fit ends, and in its last checkpoint.
  bool restore_best = false;
  /// Where they are kept, a directory as that of checkpoints. "": `best` in that.
  std::string best_directory = {};
  /// The column whose equal values make rows a group, for figures of validation data: of csv files
  /// a categorical one, of arrays one of int64 [rows]. "": there are no groups.
  std::string metrics_by = {};
  int64_t steps_max = 0;  ///< > 0: each worker lane stops after so many steps.
  /// Steps [trace_first, trace_end) of every lane, counted from 0, are traced on all tasks.
  int64_t trace_first = 0;
  int64_t trace_end = 0;
  CheckpointOptions checkpoints = {};
  /// A task that is lost does not end the fit, which needs checkpoints for that: when the task is
  /// there again, all variables get the values of the newest one, or of the begin, and training
  /// goes on at the row where that was saved. A parameter server that has, from a standby, all that
  /// it had answered is an exception: variables stay as they are, and some rows may be trained
  /// twice, as with `continues`. Who starts the task is the cluster's to say.
  bool restores = false;
  /// A worker that is lost does not end the fit: the others go on with the rows that it has not
  /// told of, and variables stay as they are. Some rows that it was at when it was lost may be
  /// trained twice (FitResult::rows_twice_max). It trains again, if it comes back: loops
  /// end for that, each lane with its step, and begin with it. The last worker is waited for
  /// `restart_timeout_s` where the cluster starts tasks again.
  bool continues = false;
  /// With `restores`: losses without a checkpoint between them, before the fit ends.
  int64_t losses_max = 5;
  double restart_timeout_s = 120;  ///< Until a lost task that is waited for is there again.
  std::function<void(const Progress&)> on_progress = nullptr;
  /// Gets what came of the validation data after an epoch, which counts from 1.
  std::function<void(int64_t epoch, const EvalResult&)> on_validation = nullptr;
  /// Gets the mean loss of the steps of an epoch, which counts from 1, as they were made.
  std::function<void(int64_t epoch, double loss)> on_training_loss = nullptr;
  /// Where it hears to which parameter servers parts of the model are to move while it trains.
  /// nullptr: from the cluster, where people tell the job.
  std::shared_ptr<service::JobCommands> commands = nullptr;
  /// parse_autoscale(): parts move without a command too.
  std::string autoscale = "off";
  /// Hears what people should know meanwhile: kInfo that parts of the model have moved, kWarning
  /// that a checkpoint could not be written. Nobody: it goes to the log.
  std::function<void(base::LogLevel, const std::string&)> on_message = nullptr;
  /// Asked about ten times a second; true ends the fit with kCancelled.
  std::function<bool()> cancelled = nullptr;

  [[nodiscard]] std::chrono::milliseconds restart_timeout() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::duration<double>(restart_timeout_s));
  }
  /// Whether the fit may outlive a task.
  [[nodiscard]] bool may_go_on() const { return restores || continues; }
};

/// Result of a fit.
struct FitResult {
  int64_t steps = 0;    ///< Batches learned from.
  int64_t updates = 0;  ///< Of the variables: as many as steps, or fewer when replicas are in step.
  int64_t rows = 0;
  int64_t rows_skipped = 0;
  std::string first_skipped;  ///< What was wrong with the first skipped row.
  double seconds = 0;         ///< From the first step to the last, evaluation left out.
  double samples_per_s = 0;
  double loss = 0;            ///< Mean of the last 100 steps of each worker lane.
  int64_t epochs = 0;         ///< Epochs done, with those before.
  std::vector<float> losses;  ///< With record_losses.
  /// Mean loss of the steps of each epoch, as they were made; NaN for those that were trained
  /// before this fit.
  std::vector<double> training_losses;
  /// One per epoch when there is validation data, with those before; epochs are evaluated again
  /// that are trained again.
  std::vector<EvalResult> validation;
  int64_t best_epoch = 0;      ///< The one with the best evaluation, from 1; 0: there is none.
  bool restored_best = false;  ///< The weights are those of that epoch, and not of the last one.
  int64_t workers_lost = 0;    ///< That the fit went on without; each time that one was lost.
  int64_t rows_twice_max = 0;  ///< Rows at most that were trained twice for that.
  int64_t moves = 0;           ///< Commands by which parts went to other parameter servers.
  CheckpointReport checkpoints;
  std::vector<TaskStats> tasks;
  /// What was traced, elements of Chrome's trace format by lane; exec::chrome_file() makes a file
  /// of them.
  std::vector<std::string> traces;
};

/// Drives the training of one model on a cluster: a session to each worker, whose loops train. The
/// model's variables are its own, whatever else runs on the cluster, and go with it. Every wait
/// ends when a task is lost, with an error that names it.
/// Thread: core-local (blocking calls). Borrows the cluster.
class Trainer {
 public:
  /// Reaches every worker and the parameter servers that `placement` begins on, places the
  /// variables and gives them their first values. It is the job of that name on the cluster, as
  /// long as it lives; "": of a name of its own. kAlreadyExists when that job runs. One that takes
  /// it over ends the calls of this one, with kFailedPrecondition.
  static Result<std::unique_ptr<Trainer>> create(app::Cluster* cluster, CompiledModel model,
                                                 service::JobOptions job = {},
                                                 PlacementOptions placement = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains on `data`; after each epoch evaluates on `validation` if given.
  Result<FitResult> fit(const data::DataSpec& data, const FitOptions& options,
                        const data::DataSpec* validation = nullptr);
  /// Evaluates on `data` with all workers.
  Result<EvalResult> evaluate(const data::DataSpec& data, const FitOptions& options);
  /// Predictions for `data`, float32, in row order: probabilities [rows], or [rows, ...].
  Result<tensor::Tensor> predict(const data::DataSpec& data, const FitOptions& options);
  /// The value of a variable, whole, of its dtype and shape.
  Result<tensor::Tensor> read_variable(const std::string& name);
  /// Figures of every task so far.
  Result<std::vector<TaskStats>> task_stats();

  [[nodiscard]] const CompiledModel& model() const;

 private:
  class Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::train
