#include "sidereal/cli/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace sidereal::cli {

namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json evaluation(const train::EvalResult& result) {
  Json out = {{"auc", number(result.auc)},
              {"logloss", number(result.log_loss)},
              {"loss", number(result.loss)}};
  for (const auto& [name, value] : train::more_figures(result)) out[name] = number(value);
  out["rows"] = result.rows;
  out["rows_skipped"] = result.rows_skipped;
  out["seconds"] = number(result.seconds);
  return out;
}

Json config(const TrainingJob& job) {
  const train::ModelOptions& m = job.model;
  Json optimizer = {{"kind", m.optimizer.kind}};
  for (const auto& [name, value] : m.optimizer.parameters) optimizer[name] = value;
  Json config = {{"model", m.kind},
                 {"embedding_dim", m.embedding_dim},
                 {"embedding_stddev", m.embedding_stddev},
                 {"hidden", m.hidden},
                 {"dropout", m.dropout},
                 {"cross_layers", m.cross_layers},
                 {"loss", m.objective.loss},
                 {"classes", m.objective.classes},
                 {"experts", m.experts},
                 {"l2_embedding", m.l2_embedding},
                 {"l2_linear", m.l2_linear},
                 {"l2_dense", m.l2_dense},
                 {"optimizer", optimizer},
                 {"batch_size", job.fit.batch_size},
                 {"epochs", job.fit.epochs},
                 {"steps_max", job.fit.steps_max},
                 {"steps_in_flight", job.fit.steps_in_flight},
                 {"consistency", job.fit.consistency},
                 {"autoscale", job.fit.autoscale},
                 {"compute_dtype", job.fit.compute_dtype},
                 {"lr_decay", job.fit.learning_rate_decay},
                 {"patience", job.fit.patience},
                 {"restore_best", job.fit.restore_best},
                 {"warmup_steps", m.warmup_steps},
                 {"metrics_by", job.fit.metrics_by},
                 {"seed", m.seed},
                 {"format", std::string(data::name_of(job.data.format))},
                 {"data", job.data.files}};
  config["fields"] = m.schema.fields;
  config["dense_width"] = m.schema.dense_width;
  config["embedding_rows"] = m.schema.rows;
  if (job.remote.has_value()) {
    config["cluster"] = Json::parse(job.remote->to_json());
  } else {
    config["ps"] = job.local.ps;
    config["workers"] = job.local.workers;
    config["ps_lanes"] = job.local.ps_lanes;
    config["worker_lanes"] = job.local.worker_lanes;
    config["protocol"] = std::string(cluster::name_of(job.local.protocol));
  }
  return config;
}

Json task(const train::TaskStats& t) {
  return {{"task", t.task},
          {"steps", t.steps},
          {"rows", t.rows},
          {"bytes_in", t.bytes_in},
          {"bytes_out", t.bytes_out},
          {"compute_s", number(t.compute_s)},
          {"wait_s", number(t.wait_s)},
          {"data_wait_s", number(t.data_wait_s)}};
}

}  // namespace

std::string to_json(const TrainingJob& job, const TrainingOutcome& outcome) {
  const train::FitResult& fit = outcome.fit;
  const train::EvalResult* test = outcome.test.has_value() ? &*outcome.test : nullptr;
  const train::EvalResult* valid = fit.validation.empty() ? nullptr : &fit.validation.back();
  Json json = {{"test_auc", test != nullptr ? number(test->auc) : Json(nullptr)},
               {"test_logloss", test != nullptr ? number(test->log_loss) : Json(nullptr)},
               {"valid_auc", valid != nullptr ? number(valid->auc) : Json(nullptr)},
               {"valid_logloss", valid != nullptr ? number(valid->log_loss) : Json(nullptr)},
               {"samples_per_s", number(fit.samples_per_s)},
               {"seconds", number(fit.seconds)},
               {"steps", fit.steps},
               {"updates", fit.updates},
               {"rows", fit.rows},
               {"rows_skipped", fit.rows_skipped},
               {"epochs", fit.epochs},
               {"best_epoch", fit.best_epoch},
               {"restored_best", fit.restored_best},
               {"workers_lost", fit.workers_lost},
               {"moves", fit.moves},
               {"rows_twice_max", fit.rows_twice_max},
               {"loss", fit.steps > 0 ? number(fit.loss) : Json(nullptr)}};
  if (!outcome.error.ok()) {
    json["error"] = {{"code", std::string(base::code_name(outcome.error.code()))},
                     {"message", std::string(base::message_of(outcome.error))}};
  }
  if (test != nullptr) {
    json["test"] = evaluation(*test);
    if (test->best_auc.has_value()) json["best_auc"] = number(*test->best_auc);
  }
  if (!job.fit.checkpoints.directory.empty()) {
    const train::CheckpointReport& report = fit.checkpoints;
    json["checkpoints"] = {{"resumed_from", report.resumed_from},
                           {"steps_before", report.steps_before},
                           {"rows_before", report.rows_before},
                           {"rows_lost", report.rows_lost},
                           {"recoveries", report.recoveries},
                           {"taken_from_standbys", report.taken_from_standbys},
                           {"rows_again", report.rows_again},
                           {"saved", report.saved},
                           {"failed", report.failed},
                           {"latest", report.latest},
                           {"first_failure", report.first_failure},
                           {"save_s", number(report.save_s)}};
  }
  json["training_losses"] = Json::array();
  for (const double loss : fit.training_losses) json["training_losses"].push_back(number(loss));
  json["valid"] = Json::array();
  for (const train::EvalResult& epoch : fit.validation) json["valid"].push_back(evaluation(epoch));
  json["tasks"] = Json::array();
  for (const train::TaskStats& t : fit.tasks) json["tasks"].push_back(task(t));
  json["config"] = config(job);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string model_description(const TrainingJob& job) {
  const train::ModelOptions& m = job.model;
  data::DataSpec data = job.data;
  data.files.clear();
  data.shuffle_rows = 0;
  data.negatives = {};
  if (data.format == data::Format::kCsv) data.categorical = m.schema.categorical;
  const Json schema = {{"dense_width", m.schema.dense_width},
                       {"fields", m.schema.fields},
                       {"rows", m.schema.rows},
                       {"weighted", m.schema.weighted},
                       {"has_sample_weight", m.schema.has_sample_weight},
                       {"sequences", m.schema.sequences},
                       {"targets", m.schema.targets},
                       {"has_group", m.schema.has_group}};
  const Json json = {{"format", "sidereal.model"},
                     {"version", 1},
                     {"click_model",
                      {{"kind", m.kind},
                       {"embedding_dim", m.embedding_dim},
                       {"hidden", m.hidden},
                       {"cross_layers", m.cross_layers},
                       {"loss", m.objective.loss},
                       {"classes", m.objective.classes},
                       {"experts", m.experts},
                       {"schema", schema}}},
                     {"data", Json::parse(data::to_json(data))}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

Status cannot_write(const std::string& path, int error) {
  const std::string text = fmt::format("cannot write {}: {}", path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) {
    return base::not_found("{}; its folder must be there before", text);
  }
  if (error == EACCES || error == EPERM || error == EROFS) {
    return base::permission_denied("{}", text);
  }
  return base::failed_precondition("{}", text);
}

}  // namespace

Status check_writable(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::file_status before = std::filesystem::status(path, unknown);
  const bool was_there = std::filesystem::exists(before);
  // A pipe would wait for who reads it.
  if (was_there && !std::filesystem::is_regular_file(before) &&
      !std::filesystem::is_directory(before)) {
    return {};
  }
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) return cannot_write(path, errno);
  std::fclose(file);
  // A training that is killed leaves no empty file.
  if (!was_there) std::remove(path.c_str());
  return {};
}

Status write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file == nullptr || std::fclose(file) != 0 || !written) {
    return cannot_write(path, errno);
  }
  return {};
}

}  // namespace sidereal::cli
