#include "sidereal/cli/training.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/progress.h"
#include "sidereal/cli/report.h"
#include "sidereal/cli/run_file.h"
#include "sidereal/cli/table.h"
#include "sidereal/data/vocabulary.h"
#include "sidereal/exec/trace.h"
#include "sidereal/service/status_client.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/train/figure_log.h"
#include "sidereal/train/memory_plan.h"

namespace sidereal::cli {

namespace {

Status check_interrupt(const TrainingOutcome& outcome) {
  if (!interrupted()) return {};
  return base::cancelled("interrupted {}", outcome.doing);
}

/// The error of the outcome. A signal to all processes ends the servers too, and that may be seen
/// first: as a lost server, or as a step that a stopping one cancelled.
Status after_interrupt(const TrainingOutcome& outcome) {
  const Status& error = outcome.error;
  if (error.ok() || !interrupted()) return error;
  if (error.code() == StatusCode::kCancelled) return check_interrupt(outcome);
  return base::cancelled("interrupted {}; then {}: {}", outcome.doing,
                         base::code_name(error.code()), base::message_of(error));
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::string describe(const TrainingJob& job) {
  const train::ModelOptions& m = job.model;
  const auto tasks = [&](const char* name, int local) {
    return job.remote.has_value() ? job.remote->num_tasks(name).value_or(0) : local;
  };
  const int ps = tasks("ps", job.local.ps);
  const int workers = tasks("worker", job.local.workers);
  return fmt::format(
      "training {} with {} on {} ps and {} worker task{}: {} embedding rows, batches of {}, {} "
      "epoch{}\n",
      m.kind, m.optimizer.kind, ps, workers, workers == 1 ? "" : "s",
      base::human_count(static_cast<double>(m.schema.rows)), job.fit.batch_size, job.fit.epochs,
      job.fit.epochs == 1 ? "" : "s");
}

Result<std::unique_ptr<app::Cluster>> open_cluster(const TrainingJob& job) {
  if (job.remote.has_value()) return app::remote_cluster(*job.remote, job.security);
  app::LocalClusterOptions local = job.local;
  if (!job.fit.checkpoints.directory.empty()) {
    local.event_dir = job.fit.checkpoints.directory + "/events";
  }
  return app::start_local_cluster(local);
}

/// ", pr auc 0.4012, rmse 0.3312, ..."; what there is none of is left out.
std::string more_text(const train::EvalResult& r) {
  std::string out;
  for (const auto& [name, value] : train::more_figures(r)) {
    if (!std::isfinite(value)) continue;
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    out += fmt::format(", {} {:.4f}", words, value);
  }
  return out;
}

/// A folder that is there as long as this is.
class TemporaryFolder {
 public:
  static Result<std::unique_ptr<TemporaryFolder>> create() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "sidereal-best-XXXXXX").string();
    if (!error && mkdtemp(path.data()) != nullptr) {
      return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(path));
    }
    return base::failed_precondition(
        "no folder for the best weights can be made: {} ({}); name one by TMPDIR, or give "
        "--checkpoint-dir or --no-restore-best",
        path, error ? error.message() : std::strerror(errno));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

/// What is known of an evaluation: of probabilities more than the loss.
std::string figures(const TrainingJob& job, const train::EvalResult& r) {
  if (job.has_auc()) return fmt::format("auc {:.4f}, log loss {:.4f}", r.auc, r.log_loss);
  return fmt::format("loss {:.4f}", r.loss);
}

/// The deadline of a question whose answer may be missing, for the log of figures.
constexpr std::chrono::milliseconds kGlanceDeadline(500);

Result<train::FitResult> fit(const TrainingJob& job, train::Trainer* trainer, train::FigureLog* log,
                             service::StatusClient* status, RunFile* run) {
  train::FitOptions options = job.fit;
  options.cancelled = interrupted;
  ProgressPrinter printer(
      [](std::string_view text) {
        std::fwrite(text.data(), 1, text.size(), stderr);
        std::fflush(stderr);
      },
      isatty(STDERR_FILENO) != 0, job.fit.epochs);
  options.on_progress = [&](const train::Progress& p) {
    if (!job.quiet) printer.update(p);
    if (log != nullptr) {
      log->progress(p, [&] { return status->ask(kGlanceDeadline, {}, {.hot_rows = 1}); });
    }
  };
  options.on_validation = [&](int64_t epoch, const train::EvalResult& r) {
    printer.finish();
    print(fmt::format("epoch {}: valid {}{}\n", epoch, figures(job, r), more_text(r)));
    if (log != nullptr) log->evaluated("valid", r);
    run->evaluated(r);
  };
  // With --valid it stands beside what came of that.
  if (!job.valid.has_value()) {
    options.on_training_loss = [&](int64_t epoch, double loss) {
      printer.finish();
      print(fmt::format("epoch {}: training loss {:.4f}\n", epoch, loss));
      if (log != nullptr) log->epoch_ended(loss);
      run->epoch_ended(epoch, loss);
    };
  }
  options.on_message = [&printer](base::LogLevel level, const std::string& text) {
    printer.finish();
    const char* const warning = level == base::LogLevel::kInfo ? "" : "warning: ";
    std::fputs(fmt::format("sidereal: {}{}\n", warning, text).c_str(), stderr);
  };
  std::unique_ptr<TemporaryFolder> best;
  if (job.keeps_best_apart) {
    SR_ASSIGN_OR_RETURN(best, TemporaryFolder::create());
    options.best_directory = best->path();
  }
  return trainer->fit(job.data, options, job.valid.has_value() ? &*job.valid : nullptr);
}

/// How good the order of rows was: those that a lane held against those that it read; "" where it
/// held all.
std::string about_shuffling(const TrainingJob& job, const train::FitResult& result) {
  const bool is_text =
      job.data.format != data::Format::kSynthetic && job.data.format != data::Format::kArrays;
  const int workers =
      job.remote.has_value() ? job.remote->num_tasks("worker").value_or(1) : job.local.workers;
  const int64_t lanes = std::max<int64_t>(int64_t{workers} * job.local.worker_lanes, 1);
  const int64_t rows = result.rows / std::max<int64_t>(result.epochs, 1) / lanes;
  const int64_t held = job.data.shuffle_rows;
  if (!is_text || held <= 0 || held >= rows) return "";
  return fmt::format(
      "shuffled by {} rows of the {} that a lane reads, {:.2g} %: --shuffle-rows holds more, files "
      "whose rows are in no order need none\n",
      base::human_count(static_cast<double>(held)), base::human_count(static_cast<double>(rows)),
      100.0 * static_cast<double>(held) / static_cast<double>(rows));
}

void print_fit(const TrainingJob& job, const train::FitResult& result) {
  print(fmt::format("trained on {} rows in {}: {} steps, {} samples/s, loss {:.4f}\n", result.rows,
                    format_duration(result.seconds), result.steps,
                    base::human_count(result.samples_per_s), result.loss));
  print(about_shuffling(job, result));
  if (result.rows_skipped > 0) {
    print(fmt::format("skipped {} bad row{}; the first: {}\n", result.rows_skipped,
                      result.rows_skipped == 1 ? "" : "s", result.first_skipped));
  }
  if (result.epochs < job.fit.epochs && job.fit.steps_max == 0) {
    print(fmt::format("stopped after {} of {} epochs: no better validation AUC\n", result.epochs,
                      job.fit.epochs));
  }
  if (result.rows_twice_max > 0) {
    const int64_t ps = result.checkpoints.taken_from_standbys;
    print(fmt::format(
        "went on without {} lost worker{} and with what standbys had of {} parameter server{}: at "
        "most {} rows were trained twice\n",
        result.workers_lost, result.workers_lost == 1 ? "" : "s", ps, ps == 1 ? "" : "s",
        result.rows_twice_max));
  }
  if (result.restored_best) {
    print(fmt::format("the weights are those of epoch {}, the best\n", result.best_epoch));
  }
}

void print_checkpoints(const train::CheckpointReport& report) {
  if (!report.resumed_from.empty()) {
    print(fmt::format("went on from {}: {} rows in {} steps were trained before, {} rows lost\n",
                      report.resumed_from, report.rows_before, report.steps_before,
                      report.rows_lost));
  }
  if (report.recoveries > 0) {
    print(
        fmt::format("went on after {} loss{} of tasks: {} rows were trained again, {} rows lost\n",
                    report.recoveries, report.recoveries == 1 ? "" : "es", report.rows_again,
                    report.rows_lost));
  }
  if (report.saved > 0) {
    print(fmt::format("saved {} checkpoint{} in {}, the latest as {}\n", report.saved,
                      report.saved == 1 ? "" : "s", format_duration(report.save_s), report.latest));
  }
  if (report.failed > 0) {
    print(fmt::format("{} checkpoint{} could not be saved; the first: {}\n", report.failed,
                      report.failed == 1 ? "" : "s", report.first_failure));
  }
}

void print_test(const TrainingJob& job, const train::EvalResult& result) {
  print(
      fmt::format("test: {} on {} rows{}\n", figures(job, result), result.rows, more_text(result)));
  if (result.best_auc.has_value()) {
    print(fmt::format("the best auc any model can reach on these rows is {:.4f}\n",
                      *result.best_auc));
  }
}

Status write_outputs(const TrainingJob& job, const TrainingOutcome& outcome) {
  if (!job.losses_path.empty()) {
    std::string text;
    for (const float loss : outcome.fit.losses) text += fmt::format("{}\n", loss);
    SR_RETURN_IF_ERROR(write_file(job.losses_path, text));
  }
  if (!job.trace_path.empty()) {
    if (outcome.fit.traces.empty() && outcome.error.ok()) {
      print(fmt::format("no lane has done step {}: {} has no events; see --trace-steps\n",
                        job.fit.trace_first, job.trace_path));
    }
    SR_RETURN_IF_ERROR(write_file(job.trace_path, exec::chrome_file(outcome.fit.traces)));
  }
  if (!job.json_path.empty()) {
    SR_RETURN_IF_ERROR(write_file(job.json_path, to_json(job, outcome)));
  }
  return {};
}

/// Finds out before a long training that its results could not be written at its end.
Status check_outputs(const TrainingJob& job) {
  for (const std::string& path :
       {job.json_path, job.losses_path, job.trace_path, job.description_path}) {
    if (!path.empty()) SR_RETURN_IF_ERROR(check_writable(path));
  }
  return {};
}

Status train_on(const TrainingJob& job, app::Cluster* cluster, RunFile* run,
                TrainingOutcome* outcome) {
  SR_RETURN_IF_ERROR(check_interrupt(*outcome));
  outcome->doing = "before the first step";
  SR_ASSIGN_OR_RETURN(train::CompiledModel model, train::build_model(job.model));
  if (!job.quiet) {
    const int ps = cluster->spec().num_tasks("ps").value_or(0);
    print(text_of(train::memory_plan(model), ps) + "\n");
  }
  SR_ASSIGN_OR_RETURN(const auto trainer,
                      train::Trainer::create(cluster, std::move(model), job.job, job.placement));
  SR_RETURN_IF_ERROR(check_interrupt(*outcome));
  outcome->doing = "while training";
  // Before the training, so that what it saves can be looked at meanwhile.
  if (!job.description_path.empty()) {
    SR_RETURN_IF_ERROR(write_file(job.description_path, model_description(job)));
  }
  const std::string& directory = job.fit.checkpoints.directory;
  // A directory that cannot be made is the trainer's to tell.
  if (!directory.empty() && sys::posix::create_disk()->make_directories(directory).ok()) {
    SR_RETURN_IF_ERROR(write_file(directory + "/model.json", model_description(job)));
    for (const data::Vocabulary& one : job.data.vocabularies) {
      const std::string path = directory + "/" + data::vocabulary_file_name(one.column);
      SR_RETURN_IF_ERROR(write_file(path, data::vocabulary_text(one)));
    }
  }
  std::unique_ptr<train::FigureLog> log;
  std::unique_ptr<service::StatusClient> status;
  if (!job.events_path.empty()) {
    SR_ASSIGN_OR_RETURN(log, train::FigureLog::create(job.events_path, trainer->model()));
    SR_ASSIGN_OR_RETURN(status,
                        service::StatusClient::create(cluster->spec(), cluster->security()));
  }
  SR_ASSIGN_OR_RETURN(outcome->fit, fit(job, trainer.get(), log.get(), status.get(), run));
  SR_RETURN_IF_ERROR(check_interrupt(*outcome));
  print_fit(job, outcome->fit);
  print_checkpoints(outcome->fit.checkpoints);
  if (job.test.has_value()) {
    train::FitOptions options = job.fit;
    options.cancelled = interrupted;
    SR_ASSIGN_OR_RETURN(outcome->test, trainer->evaluate(*job.test, options));
    print_test(job, *outcome->test);
  }
  if (log != nullptr) {
    log->fitted(outcome->fit);
    if (outcome->test.has_value()) log->evaluated("test", *outcome->test);
    SR_RETURN_IF_ERROR(log->weights(trainer.get()));
  }
  if (!job.quiet) print("\n" + format_tasks(outcome->fit.tasks, outcome->fit.seconds));
  return log == nullptr ? Status() : log->finish();
}

}  // namespace

Status run_training(const TrainingJob& job) {
  if (!job.quiet) print(describe(job));
  SR_RETURN_IF_ERROR(check_outputs(job));
  SR_ASSIGN_OR_RETURN(const auto cluster, open_cluster(job));
  TrainingOutcome outcome;
  RunFile run(job, version_number());
  outcome.error = run.begin();
  if (outcome.error.ok()) outcome.error = train_on(job, cluster.get(), &run, &outcome);
  outcome.error = after_interrupt(outcome);
  // What there is of results is written, however the training ended.
  Status written = write_outputs(job, outcome);
  const Status told = run.end(outcome, interrupted());
  if (written.ok()) written = told;
  const Status stopped = cluster->stop();
  SR_RETURN_IF_ERROR(outcome.error);
  return written.ok() ? stopped : written;
}

}  // namespace sidereal::cli
