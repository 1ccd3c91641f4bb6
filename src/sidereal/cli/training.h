#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/cli/config_file.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/job.h"
#include "sidereal/train/models.h"
#include "sidereal/train/trainer.h"

namespace sidereal::cli {

/// One training from start to end, checked as far as possible before anything is started.
/// Value type.
struct TrainingJob {
  data::DataSpec data;
  std::optional<data::DataSpec> valid;
  std::optional<data::DataSpec> test;
  train::ModelOptions model;
  train::FitOptions fit;
  train::PlacementOptions placement;
  app::LocalClusterOptions local;
  std::optional<cluster::ClusterSpec> remote;  ///< Running servers to use instead of local ones.
  security::SecurityOptions security;          ///< What those servers want.
  service::JobOptions job;                     ///< What it is called there.
  std::string json_path;                       ///< "": none.
  std::string description_path;                ///< "": none. See model_description().
  std::string losses_path;                     ///< "": none. One loss per line, of worker 0.
  std::string events_path;                     ///< "": none. The folder of a file of events.
  std::string trace_path;          ///< "": none. Chrome's trace format, of the steps in `fit`.
  std::vector<AskedOption> asked;  ///< The options that this is of, for the file of the run.
  bool keeps_best_apart = false;   ///< The best weights are in a folder that goes afterwards.
  bool quiet = false;              ///< No progress, no tables; results and errors only.

  /// Whether one probability is predicted, of which there is an AUC.
  [[nodiscard]] bool has_auc() const {
    return model.objective.loss == "binary_crossentropy" && model.schema.targets.empty();
  }
};

/// What came of it. Value type.
struct TrainingOutcome {
  train::FitResult fit;
  std::optional<train::EvalResult> test;
  Status error;  ///< What ended it early; then of what is above there is what was done by then.
  const char* doing = "while the cluster started";  ///< For the message of an interrupt.
};

/// Starts or reaches the cluster, trains, evaluates, prints results to standard output and progress
/// to standard error, writes the files asked for, also of a training that failed. kCancelled after
/// an interrupt.
Status run_training(const TrainingJob& job);

}  // namespace sidereal::cli
