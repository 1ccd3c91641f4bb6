#include "sidereal/train/best_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sidereal::train {

namespace {

/// The best one, and the one before: a training that is killed between two files may go on from
/// where that was the best.
constexpr int64_t kKept = 2;

}  // namespace

size_t best_of(const std::vector<EvalResult>& validation, bool is_binary) {
  const bool by_auc =
      is_binary && std::none_of(validation.begin(), validation.end(),
                                [](const EvalResult& r) { return std::isnan(r.auc); });
  // The larger, the better.
  const auto worth = [&](size_t i) { return by_auc ? validation[i].auc : -validation[i].loss; };
  size_t best = 0;
  for (size_t i = 1; i < validation.size(); ++i) {
    if (worth(i) > worth(best)) best = i;
  }
  return best;
}

Result<std::unique_ptr<BestWeights>> BestWeights::open(const std::string& directory, bool is_new,
                                                       Checkpointing::Context context) {
  auto out = std::unique_ptr<BestWeights>(new BestWeights());
  context.report = &out->report_;
  const CheckpointOptions options = {
      .directory = directory, .save_every = "epoch", .keep = kKept, .resume = "never"};
  SR_ASSIGN_OR_RETURN(out->files_, Checkpointing::open(options, std::move(context)));
  // Whoever begins has nothing there to go back to.
  if (is_new) SR_RETURN_IF_ERROR(out->files_->resume("").status());
  return out;
}

void BestWeights::keep(const TrainingState& state) { files_->save_last(state, true); }

Result<bool> BestWeights::restore(size_t points, const std::string& data) {
  return files_->restore_at(points, data);
}

}  // namespace sidereal::train
