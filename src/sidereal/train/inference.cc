#include "sidereal/train/inference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "sidereal/base/strings.h"
#include "sidereal/data/auc.h"
#include "sidereal/train/fit.h"
#include "sidereal/train/group_column.h"
#include "sidereal/train/loop_group.h"

namespace sidereal::train {

namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Tensor;

constexpr const char* kLabel = "label";
constexpr const char* kTruth = "truth";

/// Predictions, labels and losses of an evaluation, in no order.
struct Scores {
  std::vector<float> scores;
  std::vector<float> labels;
  std::vector<float> truths;
  std::vector<int64_t> groups;
  double loss_sum = 0;
  int64_t rows = 0;
};

void append(const Tensor& values, std::vector<float>* out) {
  const auto floats = values.data<const float>();
  out->insert(out->end(), floats.begin(), floats.end());
}

/// Labels that leave no pair of rows to be put in order: there is no AUC then.
bool has_one_class(const std::vector<float>& labels) {
  return std::adjacent_find(labels.begin(), labels.end(), std::not_equal_to<>()) == labels.end();
}

Status check_finite(const std::vector<float>& predictions) {
  const auto bad = std::count_if(predictions.begin(), predictions.end(),
                                 [](float p) { return !std::isfinite(p); });
  if (bad == 0) return {};
  return invalid_argument(
      "the model predicts nan for {} of {} rows: its weights, or inputs in these rows, are not "
      "finite",
      bad, predictions.size());
}

FitOptions quiet(const FitOptions& options) {
  FitOptions out = options;
  out.on_progress = nullptr;
  out.on_validation = nullptr;
  return out;
}

/// Once through the data, with the columns that `outputs` need.
Result<task::LoopOptions> inference_loop(const PlacedModel& placed, const data::DataSpec& data,
                                         const FitOptions& options,
                                         const std::vector<std::string>& outputs) {
  task::LoopOptions loop;
  data::DataSpec in_order = data;
  in_order.shuffle_rows = 0;
  in_order.negatives = {};
  loop.source = data::to_json(in_order);
  SR_ASSIGN_OR_RETURN(const std::vector<std::string> inputs,
                      placeholders_of(placed.distributed().graph, outputs));
  for (const std::string& input : inputs) loop.columns.emplace_back(input, input);
  loop.batch_size = options.batch_size;
  // Nothing is pushed, so the next pull may always be on its way.
  loop.steps_in_flight = 2;
  return loop;
}

}  // namespace

Status no_rows(const data::DataSpec& data, std::string_view use) {
  const std::string files = base::some_of(data.files, 1, std::identity());
  return invalid_argument("there is no row to {} in {}", use, files.empty() ? "the data" : files);
}

Result<EvalResult> evaluate(app::Cluster* cluster, PlacedModel* placed, const data::DataSpec& data,
                            const FitOptions& options) {
  const bool is_binary = placed->model().is_binary;
  SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers,
                      placed->sessions(options.compute_dtype));
  SR_ASSIGN_OR_RETURN(task::LoopOptions loop, inference_loop(*placed, data, options,
                                                             {placed->distributed().loss,
                                                              placed->distributed().prediction}));
  loop.fetches = {{.name = placed->distributed().loss, .keep = task::Keep::kMean},
                  {.name = placed->distributed().loss, .keep = task::Keep::kEach}};
  GroupColumn group_by;
  if (is_binary) {
    loop.fetches.push_back({.name = placed->distributed().prediction, .keep = task::Keep::kEach});
    loop.kept_columns = {kLabel};
    SR_ASSIGN_OR_RETURN(group_by, group_column(data, options.metrics_by));
    if (data.format == data::Format::kSynthetic) loop.kept_columns.emplace_back(kTruth);
    if (!group_by.name.empty()) loop.kept_columns.push_back(group_by.name);
  }
  loop.lanes = 0;
  Scores scores;
  Status failed;
  // Behind the losses, the prediction and the label.
  const int32_t truth = data.format == data::Format::kSynthetic ? 4 : -1;
  const int32_t groups = group_by.name.empty() ? -1 : (truth < 0 ? 4 : 5);
  LoopGroup group(cluster, *workers, quiet(options), [&](const StepOutputs& step) {
    for (const auto& [index, value] : step.values.values) {
      if (index == 1) {
        scores.loss_sum += static_cast<double>(value.data<const float>()[0]) *
                           static_cast<double>(step.values.rows);
        scores.rows += step.values.rows;
      }
      if (index == 2) append(value, &scores.scores);
      if (index == 3) append(value, &scores.labels);
      if (index == truth) append(value, &scores.truths);
      if (index != groups || !failed.ok()) continue;
      failed = append_groups(value, group_by, &scores.groups);
    }
  });
  SR_RETURN_IF_ERROR(group.run(loop, 0, 1));
  SR_RETURN_IF_ERROR(failed);
  FitResult totals;
  group.report(&totals);
  EvalResult result;
  result.rows = totals.rows;
  result.rows_skipped = totals.rows_skipped;
  result.seconds = totals.seconds;
  if (result.rows == 0) return no_rows(data, "evaluate on");
  result.loss = scores.loss_sum / static_cast<double>(std::max<int64_t>(1, scores.rows));
  if (!is_binary) return result;
  SR_RETURN_IF_ERROR(check_finite(scores.scores));
  SR_ASSIGN_OR_RETURN(result.log_loss, data::log_loss(scores.scores, scores.labels));
  SR_ASSIGN_OR_RETURN(result.quality, data::quality(scores.scores, scores.labels, scores.groups));
  if (has_one_class(scores.labels)) {
    result.auc = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  SR_ASSIGN_OR_RETURN(result.auc, data::auc(scores.scores, scores.labels));
  if (scores.truths.size() == scores.labels.size() && !scores.truths.empty()) {
    SR_ASSIGN_OR_RETURN(const double most, data::auc(scores.truths, scores.labels));
    result.best_auc = most;
  }
  return result;
}

Result<Tensor> predict(app::Cluster* cluster, PlacedModel* placed, const data::DataSpec& data,
                       const FitOptions& options) {
  const bool is_binary = placed->model().is_binary;
  SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers,
                      placed->sessions(options.compute_dtype));
  SR_ASSIGN_OR_RETURN(task::LoopOptions loop,
                      inference_loop(*placed, data, options, {placed->distributed().prediction}));
  loop.fetches = {{.name = placed->distributed().prediction, .keep = task::Keep::kEach}};
  // One lane of one worker sees the rows in their order.
  loop.lanes = 1;
  std::vector<float> values;
  tensor::Shape shape;
  Status failed;
  LoopGroup group(cluster, {first_of(*workers)}, quiet(options), [&](const StepOutputs& step) {
    const Tensor& value = step.values.values.front().second;
    if (value.shape().rank() < 1) {
      failed = invalid_argument("the prediction '{}' has no rows", placed->model().prediction);
      return;
    }
    shape = value.shape();
    append(value, &values);
  });
  SR_RETURN_IF_ERROR(group.run(loop, 0, 1));
  SR_RETURN_IF_ERROR(failed);
  if (values.empty()) return Tensor::zeros(DType::kFloat32, {0});
  // One probability for each row, whatever the logit's shape was.
  if (is_binary) shape = {static_cast<int64_t>(values.size())};
  int64_t width = 1;
  for (int i = 1; i < shape.rank(); ++i) width *= shape.dim(i);
  shape.set_dim(0, static_cast<int64_t>(values.size()) / std::max<int64_t>(1, width));
  return Tensor::of<float>(shape, values);
}

}  // namespace sidereal::train
