#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/service/staleness.h"
#include "sidereal/service/status_client.h"
#include "sidereal/train/event_file.h"
#include "sidereal/train/trainer.h"

namespace sidereal::train {

/// Writes how a training goes for TensorBoard: what it learned, how fast, what workers waited for,
/// by the steps of all workers together.
/// Lifecycle: one for each training. A failure to write is told once, by finish(); what comes after
/// it is not written, and the training goes on.
/// Thread: core-local.
class FigureLog {
 public:
  /// Weights with more elements have no histogram: they are read whole for it.
  static constexpr int64_t kHistogramElements = int64_t{1} << 24;

  /// Begins a file in `folder`, with the variables of the model.
  static Result<std::unique_ptr<FigureLog>> create(const std::string& folder,
                                                   const CompiledModel& model);

  /// For FitOptions::on_progress. What comes often is thinned out more the longer it takes, so that
  /// the file of a long training stays small. `ask`, for what the tasks say now, is called when
  /// something is written.
  void progress(const Progress& now, const std::function<std::vector<service::TaskReport>()>& ask);
  /// An evaluation of "valid" or "test" data, at the step that progress() told last.
  void evaluated(const std::string& data, const EvalResult& result);
  /// An epoch without validation data, by the mean loss of its steps.
  void epoch_ended(double training_loss);
  /// The end of a fit.
  void fitted(const FitResult& result);
  /// Histograms of the weights, which are read for it.
  Status weights(Trainer* trainer);
  /// What kept figures from being written, if anything did.
  [[nodiscard]] Status finish() const { return failed_; }

 private:
  explicit FigureLog(std::unique_ptr<EventFile> file) : file_(std::move(file)) {}
  void add(const Summary& summary);
  void add_staleness(const std::vector<service::Staleness>& now, Summary* summary);

  std::unique_ptr<EventFile> file_;
  Status failed_;
  int64_t step_ = 0;
  double next_s_ = 0;
  double before_s_ = 0;
  std::vector<TaskStats> before_;
  std::vector<service::Staleness> stale_;  ///< What was written.
};

}  // namespace sidereal::train
