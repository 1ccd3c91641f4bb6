#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cli/training.h"

namespace sidereal::cli {

/// Where a training writes about itself, beside its results; "": nowhere, as there are none.
std::string run_path(const TrainingJob& job);

/// What is known of data without reading all of it: bytes of all files, and a digest of their sizes
/// and of the first and last MiB of each. Value type.
struct DataFacts {
  int64_t files = 0;
  int64_t bytes = 0;
  std::string digest;
};
DataFacts data_facts(const std::vector<std::string>& files);

/// The file of a run: what was asked, with all defaults, as `--config` takes it, and a table `run`
/// of what became of it. It is there, and is written anew, from the first step to the end.
/// Thread: core-local. Borrows the job.
class RunFile {
 public:
  /// `version`: of this program.
  RunFile(const TrainingJob& job, std::string version);

  Status begin();
  /// After an epoch: so far it has come. That it cannot be written is told by end().
  void evaluated(const train::EvalResult& result);
  /// Likewise, without validation data; `epoch` counts from 1.
  void epoch_ended(int64_t epoch, double training_loss);
  Status end(const TrainingOutcome& outcome, bool is_interrupted);

  /// What is written now.
  [[nodiscard]] std::string text(const TrainingOutcome& outcome, const std::string& how,
                                 const std::string& ended) const;

 private:
  [[nodiscard]] Status write(const std::string& text) const;

  const TrainingJob& job_;
  const std::string path_;
  const std::string version_;
  const std::string started_;
  DataFacts data_;
  TrainingOutcome so_far_;
  Status failed_;
};

}  // namespace sidereal::cli
