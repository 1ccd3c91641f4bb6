#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// Area under the ROC curve, exact: the share of (1, 0) pairs that the scores put in the right
/// order, ties counting half (Mann-Whitney). Sorts a copy: O(n log n). `labels` above 0.5 count
/// as 1. kInvalidArgument for different lengths, a score that is not a number, or labels of one
/// kind only.
Result<double> auc(std::span<const float> scores, std::span<const float> labels);

/// Mean of -log(probability given to the label), in nats; probabilities are held within
/// [epsilon, 1 - epsilon]. kInvalidArgument for different lengths, no rows, or a probability
/// outside [0, 1].
Result<double> log_loss(std::span<const float> probabilities, std::span<const float> labels,
                        double epsilon = 1e-7);

/// AUC and log loss over the latest rows, for a live display: a histogram of probabilities with
/// kBins equal bins, ties within a bin counting half. Off from the exact AUC by at most half the
/// share of (1, 0) pairs that fall into one bin; below 0.001 for usual click models. Older rows
/// fade: the counts are halved whenever `window_rows` rows have come in since the last time.
/// Thread: core-local.
class WindowAuc {
 public:
  static constexpr int kBins = 4096;

  /// `window_rows` <= 0: nothing fades.
  explicit WindowAuc(int64_t window_rows);

  /// Takes in rows. Probabilities outside [0, 1] or not a number are counted in bad_rows() only.
  void add(std::span<const float> probabilities, std::span<const float> labels);
  /// 0.5 while there are no rows of both labels.
  [[nodiscard]] double auc() const;
  /// Mean log loss; 0 while there are no rows.
  [[nodiscard]] double log_loss() const;
  /// Rows taken in, faded ones too.
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t bad_rows() const { return bad_rows_; }

 private:
  void fade();

  int64_t window_rows_;
  int64_t rows_ = 0;
  int64_t bad_rows_ = 0;
  int64_t since_fade_ = 0;
  double loss_sum_ = 0;
  double weight_sum_ = 0;
  std::vector<double> ones_;
  std::vector<double> zeros_;
};

}  // namespace sidereal::data
