#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// Figures of predicted probabilities beside AUC and log loss; NaN where there is none. Value type.
struct Quality {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  /// Average precision, the area under the curve of precision over recall as a step function; rows
  /// of one score come at once. NaN without labels of 1.
  double pr_auc = kNone;
  double rmse = kNone;  ///< Root of the mean squared difference of probability and label.
  /// Sum of the probabilities over that of the labels; 1 is right. NaN without labels of 1.
  double calibration = kNone;
  /// Mean AUC of the groups that have labels of both kinds, by their rows. NaN without one.
  double grouped_auc = kNone;
  /// Mean over the groups with a label of 1 of DCG over the best DCG, the gain of a row its label,
  /// divided by log2(1 + rank). Rows of one score share what their ranks divide by. NaN without
  /// one.
  double ndcg = kNone;
};

/// `groups` says which rows belong together; empty: no figures of groups. Labels above 0.5 count
/// as 1. kInvalidArgument for different lengths, no rows, or a score that is not a number.
Result<Quality> quality(std::span<const float> scores, std::span<const float> labels,
                        std::span<const int64_t> groups);

}  // namespace sidereal::data
