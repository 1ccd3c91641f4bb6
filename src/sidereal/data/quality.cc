#include "sidereal/data/quality.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sidereal/data/auc.h"

namespace sidereal::data {

using base::invalid_argument;

namespace {

constexpr double kNone = Quality::kNone;

struct Ranked {
  float score;
  bool one;
};

void best_first(std::vector<Ranked>* rows) {
  std::sort(rows->begin(), rows->end(),
            [](const Ranked& a, const Ranked& b) { return a.score > b.score; });
}

/// Calls `take(first, end, ones)` for the rows of each score, the best first.
template <class Take>
void for_each_score(const std::vector<Ranked>& rows, Take take) {
  for (size_t first = 0; first < rows.size();) {
    size_t end = first;
    int64_t ones = 0;
    for (; end < rows.size() && rows[end].score == rows[first].score; ++end) ones += rows[end].one;
    take(first, end, ones);
    first = end;
  }
}

double average_precision(const std::vector<Ranked>& rows, int64_t ones) {
  if (ones == 0) return kNone;
  double sum = 0;
  int64_t found = 0;
  for_each_score(rows, [&](size_t, size_t end, int64_t here) {
    found += here;
    sum += static_cast<double>(here) * static_cast<double>(found) / static_cast<double>(end);
  });
  return sum / static_cast<double>(ones);
}

/// DCG over the best one; `ones` is above 0.
double ndcg_of(const std::vector<Ranked>& rows, int64_t ones) {
  const auto discount = [](size_t place) { return 1 / std::log2(static_cast<double>(place) + 2); };
  double dcg = 0;
  for_each_score(rows, [&](size_t first, size_t end, int64_t here) {
    if (here == 0) return;
    double discounts = 0;
    for (size_t place = first; place < end; ++place) discounts += discount(place);
    dcg += discounts * static_cast<double>(here) / static_cast<double>(end - first);
  });
  double best = 0;
  for (size_t place = 0; place < static_cast<size_t>(ones); ++place) best += discount(place);
  return dcg / best;
}

Status add_groups(std::span<const float> scores, std::span<const float> labels,
                  std::span<const int64_t> groups, Quality* out) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return groups[a] < groups[b]; });
  double auc_sum = 0;
  double auc_rows = 0;
  double ndcg_sum = 0;
  double ndcg_groups = 0;
  std::vector<float> own_scores;
  std::vector<float> own_labels;
  std::vector<Ranked> rows;
  for (size_t first = 0; first < order.size();) {
    own_scores.clear();
    own_labels.clear();
    rows.clear();
    int64_t ones = 0;
    size_t end = first;
    for (; end < order.size() && groups[order[end]] == groups[order[first]]; ++end) {
      own_scores.push_back(scores[order[end]]);
      own_labels.push_back(labels[order[end]]);
      rows.push_back({own_scores.back(), own_labels.back() > 0.5F});
      ones += rows.back().one;
    }
    first = end;
    if (ones == 0) continue;
    best_first(&rows);
    ndcg_sum += ndcg_of(rows, ones);
    ndcg_groups += 1;
    if (ones == static_cast<int64_t>(rows.size())) continue;
    SR_ASSIGN_OR_RETURN(const double own, auc(own_scores, own_labels));
    auc_sum += own * static_cast<double>(rows.size());
    auc_rows += static_cast<double>(rows.size());
  }
  out->grouped_auc = auc_rows > 0 ? auc_sum / auc_rows : kNone;
  out->ndcg = ndcg_groups > 0 ? ndcg_sum / ndcg_groups : kNone;
  return {};
}

}  // namespace

Result<Quality> quality(std::span<const float> scores, std::span<const float> labels,
                        std::span<const int64_t> groups) {
  if (scores.size() != labels.size() || (!groups.empty() && groups.size() != labels.size())) {
    return invalid_argument("{} scores and {} groups for {} labels", scores.size(), groups.size(),
                            labels.size());
  }
  if (labels.empty()) return invalid_argument("there are no rows to be judged by");
  std::vector<Ranked> rows(scores.size());
  double squares = 0;
  double predicted = 0;
  int64_t ones = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) return invalid_argument("score {} is not a number", i);
    rows[i] = {scores[i], labels[i] > 0.5F};
    const double difference = static_cast<double>(scores[i]) - (rows[i].one ? 1 : 0);
    squares += difference * difference;
    predicted += scores[i];
    ones += rows[i].one;
  }
  best_first(&rows);
  Quality out;
  out.pr_auc = average_precision(rows, ones);
  out.rmse = std::sqrt(squares / static_cast<double>(rows.size()));
  out.calibration = ones == 0 ? kNone : predicted / static_cast<double>(ones);
  if (!groups.empty()) SR_RETURN_IF_ERROR(add_groups(scores, labels, groups, &out));
  return out;
}

}  // namespace sidereal::data
