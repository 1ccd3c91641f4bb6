#include "sidereal/train/figure_log.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sidereal/metrics/staleness.h"
#include "sidereal/service/hot_rows.h"

namespace sidereal::train {
namespace {

/// A part of the time that a training took: so far points lie apart.
constexpr double kThinning = 1e-3;

/// "/job:worker/task:0" as "worker_0".
std::string short_name(const std::string& task) {
  const size_t number = task.rfind(':') + 1;
  const size_t job = task.find(':') + 1;
  return task.substr(job, task.find('/', job) - job) + "_" + task.substr(number);
}

std::string table_of(const CompiledModel& model) {
  std::string out = "| variable | shape | optimizer |\n| --- | --- | --- |\n";
  for (const ModelVariable& variable : model.variables) {
    out += fmt::format("| {} | {} | {} |\n", variable.name, variable.shape.to_string(),
                       variable.optimizer.kind);
  }
  return out;
}

/// Of the tables of all models together, as with staleness.
void add_hot_rows(const std::vector<service::TaskReport>& reports, Summary* summary) {
  std::map<std::string, double> shares;
  for (const service::HotTable& table : service::hot_tables_of(reports, 1)) {
    if (table.rows.empty()) continue;
    double& share = shares[table.table];
    share = std::max(share, table.rows.front().share());
  }
  for (const auto& [table, share] : shares) summary->scalar("hottest_row/" + table, share);
}

}  // namespace

Result<std::unique_ptr<FigureLog>> FigureLog::create(const std::string& folder,
                                                     const CompiledModel& model) {
  SR_ASSIGN_OR_RETURN(std::unique_ptr<EventFile> file, EventFile::create(folder));
  std::unique_ptr<FigureLog> log(new FigureLog(std::move(file)));
  Summary summary;
  summary.text("model", table_of(model));
  for (const ModelVariable& variable : model.variables) {
    if (!variable.options.is_table) continue;
    summary.scalar("rows/" + variable.name, static_cast<double>(variable.shape.dim(0)));
  }
  log->add(summary);
  SR_RETURN_IF_ERROR(log->finish());
  return log;
}

void FigureLog::add(const Summary& summary) {
  if (failed_.ok()) failed_ = file_->add(step_, summary);
}

/// What came since the last time, of each table and worker.
void FigureLog::add_staleness(const std::vector<service::Staleness>& now, Summary* summary) {
  for (const service::Staleness& each : service::staleness_since(stale_, now)) {
    const std::string tag =
        fmt::format("staleness/{}/{}", each.table.empty() ? "other_variables" : each.table,
                    each.worker.empty() ? "others" : short_name(each.worker));
    summary->scalar(tag, each.seen.mean());
    summary->histogram("histogram_of_" + tag, each.seen);
  }
  stale_ = now;
}

void FigureLog::progress(const Progress& now,
                         const std::function<std::vector<service::TaskReport>()>& ask) {
  step_ = std::max(step_, now.steps);
  if (now.seconds < next_s_) return;
  next_s_ = now.seconds * (1 + kThinning);
  Summary summary;
  summary.scalar("train/epoch", static_cast<double>(now.epoch));
  summary.scalar("train/loss", now.loss);
  if (now.auc > 0) summary.scalar("train/auc", now.auc);
  if (now.samples_per_s > 0) summary.scalar("rates/samples_per_s", now.samples_per_s);
  const double seconds = now.seconds - before_s_;
  for (size_t i = 0; i < now.workers.size() && i < before_.size(); ++i) {
    const TaskStats& worker = now.workers[i];
    const TaskStats& before = before_[i];
    const std::string name = short_name(worker.task);
    const double waited = worker.wait_s - before.wait_s;
    const double whole = waited + worker.compute_s - before.compute_s;
    if (whole <= 0 || seconds <= 0) continue;
    summary.scalar("waiting/" + name, waited / whole);
    summary.scalar("waiting_for_data/" + name, (worker.data_wait_s - before.data_wait_s) / whole);
    summary.scalar("rates/steps_per_s/" + name,
                   static_cast<double>(worker.steps - before.steps) / seconds);
    summary.scalar("rates/bytes_in_per_s/" + name,
                   static_cast<double>(worker.bytes_in - before.bytes_in) / seconds);
    summary.scalar("rates/bytes_out_per_s/" + name,
                   static_cast<double>(worker.bytes_out - before.bytes_out) / seconds);
  }
  const std::vector<service::TaskReport> reports = ask();
  add_staleness(service::staleness_of(reports), &summary);
  add_hot_rows(reports, &summary);
  before_ = now.workers;
  before_s_ = now.seconds;
  add(summary);
}

void FigureLog::evaluated(const std::string& data, const EvalResult& result) {
  Summary summary;
  summary.scalar(data + "/loss", result.loss);
  if (result.auc > 0) {
    summary.scalar(data + "/auc", result.auc);
    summary.scalar(data + "/logloss", result.log_loss);
  }
  for (const auto& [name, value] : more_figures(result)) {
    if (std::isfinite(value)) summary.scalar(fmt::format("{}/{}", data, name), value);
  }
  add(summary);
}

void FigureLog::epoch_ended(double training_loss) {
  Summary summary;
  summary.scalar("train/training_loss", training_loss);
  add(summary);
}

void FigureLog::fitted(const FitResult& result) {
  step_ = result.steps;
  Summary summary;
  summary.scalar("train/loss", result.loss);
  summary.scalar("total/samples_per_s", result.samples_per_s);
  summary.scalar("total/seconds", result.seconds);
  add(summary);
}

Status FigureLog::weights(Trainer* trainer) {
  Summary summary;
  for (const ModelVariable& variable : trainer->model().variables) {
    if (variable.shape.num_elements() > kHistogramElements) continue;
    SR_ASSIGN_OR_RETURN(const tensor::Tensor value, trainer->read_variable(variable.name));
    if (value.dtype() != tensor::DType::kFloat32) continue;
    summary.histogram("weights/" + variable.name, value.data<const float>());
  }
  add(summary);
  return {};
}

}  // namespace sidereal::train
