#include "sidereal/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/train/fit.h"
#include "sidereal/train/inference.h"
#include "sidereal/train/placed_model.h"
#include "sidereal/train/replicas.h"
#include "sidereal/train/training_run.h"

namespace sidereal::train {

using base::invalid_argument;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::Tensor;

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
  Impl(app::Cluster* cluster, CompiledModel model, service::JobOptions job,
       PlacementOptions placement)
      : cluster_(cluster),
        placed_(cluster, std::move(model), std::move(job), placement),
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
    if (options.continues && consistency.is_geo()) {
      return invalid_argument(
          "on_worker_loss is 'continue': with consistency '{}' a worker that is lost has learned "
          "what it has not sent yet; take another consistency, or on_ps_loss='restore'",
          consistency.to_string());
    }
    SR_ASSIGN_OR_RETURN(const AutoscaleOptions autoscale,
                        parse_autoscale(options.autoscale, placed_.placement().topology.ps));
    SR_RETURN_IF_ERROR(find_workers(options));
    Fit fit(cluster_, data, options, validation);
    fit.consistency = consistency;
    fit.autoscale = autoscale;
    fit.may_begin_anew = !is_trained_;
    fit.is_binary = model_.is_binary;
    Status status;
    do {
      status = TrainingRun(cluster_, &placed_, &replicas_, &fit).run();
      is_trained_ = is_trained_ || fit.is_begun;
    } while (!status.ok() && (status = recover(std::move(status), &fit)).ok());
    placed_.hear_no_commands();
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
  /// Workers that an earlier fit went on without train too, if they are there again; a fit that
  /// does not go on without a worker needs all.
  Status find_workers(const FitOptions& options) {
    const std::vector<std::string> missing = placed_.missing_workers();
    if (missing.empty()) return {};
    SR_RETURN_IF_ERROR(placed_.join_again(milliseconds(0), /*may_miss=*/true, options.cancelled));
    if (options.continues || placed_.missing_workers().empty()) return {};
    return base::unavailable(
        "{} was lost in a fit before: start it again, or go on without it by "
        "on_worker_loss='continue' (FitOptions::continues)",
        base::join(placed_.missing_workers(), ", "));
  }

  /// After a failure: Ok when a task was lost and the fit can go on; else why it ends.
  Status recover(Status failure, Fit* fit) {
    const FitOptions& options = fit->options;
    const bool can_go_back = fit->is_begun || fit->may_begin_anew;
    if (!options.restores || !can_go_back) return failure;
    if (failure.code() == StatusCode::kCancelled) return failure;
    if (!is_loss(failure) && placed_.lost_tasks().empty()) return failure;
    fit->lost_at = steady_clock::now();
    while (true) {
      // It may be lost for good.
      SR_RETURN_IF_ERROR(base::with_context(cluster_->check_alive(), base::message_of(failure)));
      SR_RETURN_IF_ERROR(fit->count_loss(failure));
      const Status again =
          placed_.place_again(options.restart_timeout(), options.continues, options.cancelled);
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

  app::Cluster* cluster_;
  PlacedModel placed_;
  const CompiledModel& model_;
  Replicas replicas_{&placed_};
  bool is_trained_ = false;  // Variables may have others than their first values.
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(app::Cluster* cluster, CompiledModel model,
                                                 service::JobOptions job,
                                                 PlacementOptions placement) {
  auto impl = std::make_unique<Impl>(cluster, std::move(model), std::move(job), placement);
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
