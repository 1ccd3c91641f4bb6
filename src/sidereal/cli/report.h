#pragma once

#include <string>

#include "sidereal/base/status.h"
#include "sidereal/cli/training.h"

namespace sidereal::cli {

/// What --json writes: test_auc, test_logloss, valid_auc, valid_logloss (null without such data),
/// samples_per_s, seconds, steps, rows, rows_skipped, epochs, loss, best_auc (of synthetic data),
/// valid (one entry per epoch), tasks and config; error (code and message) of a training that
/// failed. JSON text with a newline at the end.
std::string to_json(const TrainingJob& job, const TrainingOutcome& outcome);

/// What --describe writes: the model without what it learns (docs/formats/model_description.md).
std::string model_description(const TrainingJob& job);

/// Whether write_file() could write there, found out without a change of the file.
Status check_writable(const std::string& path);

/// Writes `text` to the file, or says why it cannot, naming the file.
Status write_file(const std::string& path, const std::string& text);

}  // namespace sidereal::cli
