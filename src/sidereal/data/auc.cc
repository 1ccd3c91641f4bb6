#include "sidereal/data/auc.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sidereal::data {
namespace {

using base::invalid_argument;

struct Scored {
  float score;
  bool one;
};

double loss_of(double probability, bool one, double epsilon) {
  const double p = std::clamp(probability, epsilon, 1 - epsilon);
  return -std::log(one ? p : 1 - p);
}

}  // namespace

Result<double> auc(std::span<const float> scores, std::span<const float> labels) {
  if (scores.size() != labels.size()) {
    return invalid_argument("{} scores for {} labels", scores.size(), labels.size());
  }
  std::vector<Scored> rows(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) return invalid_argument("score {} is not a number", i);
    rows[i] = {scores[i], labels[i] > 0.5F};
  }
  std::sort(rows.begin(), rows.end(),
            [](const Scored& a, const Scored& b) { return a.score < b.score; });
  // Twice the number of pairs in the right order, so that a tie is a whole number.
  unsigned __int128 doubled = 0;
  uint64_t zeros = 0;
  uint64_t ones = 0;
  for (size_t i = 0; i < rows.size();) {
    uint64_t tied_ones = 0;
    uint64_t tied_zeros = 0;
    const float score = rows[i].score;
    for (; i < rows.size() && rows[i].score == score; ++i) (rows[i].one ? tied_ones : tied_zeros)++;
    doubled += static_cast<unsigned __int128>(tied_ones) * (2 * zeros + tied_zeros);
    zeros += tied_zeros;
    ones += tied_ones;
  }
  if (ones == 0 || zeros == 0) {
    return invalid_argument("AUC needs labels of both kinds; there are {} ones and {} zeros", ones,
                            zeros);
  }
  return static_cast<double>(doubled) /
         (2.0 * static_cast<double>(ones) * static_cast<double>(zeros));
}

Result<double> log_loss(std::span<const float> probabilities, std::span<const float> labels,
                        double epsilon) {
  if (probabilities.size() != labels.size()) {
    return invalid_argument("{} probabilities for {} labels", probabilities.size(), labels.size());
  }
  if (labels.empty()) return invalid_argument("log loss of no rows");
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const double p = probabilities[i];
    if (!(p >= 0 && p <= 1)) return invalid_argument("probability {} is {}", i, p);
    sum += loss_of(p, labels[i] > 0.5F, epsilon);
  }
  return sum / static_cast<double>(labels.size());
}

WindowAuc::WindowAuc(int64_t window_rows)
    : window_rows_(window_rows), ones_(kBins, 0), zeros_(kBins, 0) {}

void WindowAuc::add(std::span<const float> probabilities, std::span<const float> labels) {
  constexpr double kEpsilon = 1e-7;
  const size_t count = std::min(probabilities.size(), labels.size());
  for (size_t i = 0; i < count; ++i) {
    const float p = probabilities[i];
    if (!(p >= 0 && p <= 1)) {
      ++bad_rows_;
      continue;
    }
    const bool one = labels[i] > 0.5F;
    const int bin = std::min(kBins - 1, static_cast<int>(p * kBins));
    (one ? ones_ : zeros_)[bin] += 1;
    loss_sum_ += loss_of(p, one, kEpsilon);
    weight_sum_ += 1;
    ++rows_;
    if (window_rows_ > 0 && ++since_fade_ >= window_rows_) fade();
  }
}

void WindowAuc::fade() {
  since_fade_ = 0;
  for (double& n : ones_) n *= 0.5;
  for (double& n : zeros_) n *= 0.5;
  loss_sum_ *= 0.5;
  weight_sum_ *= 0.5;
}

double WindowAuc::auc() const {
  double pairs = 0;
  double ones = 0;
  double zeros = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    pairs += ones_[bin] * (zeros + 0.5 * zeros_[bin]);
    ones += ones_[bin];
    zeros += zeros_[bin];
  }
  return ones > 0 && zeros > 0 ? pairs / (ones * zeros) : 0.5;
}

double WindowAuc::log_loss() const { return weight_sum_ > 0 ? loss_sum_ / weight_sum_ : 0; }

}  // namespace sidereal::data
