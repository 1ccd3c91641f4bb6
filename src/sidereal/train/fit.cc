#include "sidereal/train/fit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sidereal/base/event_log.h"
#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/data/statistics.h"

namespace sidereal::train {

using std::chrono::steady_clock;

namespace {

constexpr double kHighLoss = 5;
/// What progress tells of epochs is told as often, at most.
constexpr std::chrono::milliseconds kBetweenEpochs(250);
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Fit::Fit(app::Cluster* cluster, const data::DataSpec& data, const FitOptions& options,
         const data::DataSpec* validation)
    : data(data),
      options(options),
      validation(validation),
      checkpoints(options.checkpoints),
      group(cluster, {}, watched(), [this](const StepOutputs& step) {
        if (step.values.lane != 0) return;
        const auto values = step.values.values.front().second.data<const float>();
        result.losses.insert(result.losses.end(), values.begin(), values.end());
      }) {}

FitOptions Fit::watched() {
  FitOptions out = options;
  out.on_progress = [this](const Progress& now) {
    shown_ = now;
    shown_.training_losses = result.training_losses;
    if (!result.validation.empty()) shown_.validation = result.validation.back();
    if (options.on_progress) options.on_progress(shown_);
    if (std::exchange(is_first_, false) && is_binary) look_at_first(now.loss);
  };
  return out;
}

void Fit::look_at_first(double loss) {
  if (!(loss > kHighLoss)) return;
  const auto largest = data::largest_scale(data);
  // Where numbers are not the reason there is nothing to say.
  if (!largest.ok() || largest->second < kHighLoss) return;
  tell(fmt::format(
      "the loss is {:.4g}, where 0.69 is that of guessing: column '{}' has numbers up to {:.4g}; "
      "{}, or take it as categorical",
      loss, largest->first, largest->second,
      data.format == data::Format::kCsv
          ? "scale it with --numeric-transform auto (numeric_transform='auto')"
          : "scale it to mean 0 and deviation 1"));
}

void Fit::stands_at(const TrainingState& state) {
  steps_offset_ = state.steps - group.steps();
  rows_offset_ = state.rows - group.rows();
}

void Fit::stands_at_epoch(int64_t epoch) {
  result.training_losses.resize(static_cast<size_t>(epoch), kUnknown);
}

void Fit::mark() {
  marks_[steps()] = {
      .losses = result.losses.size(), .updates = result.updates, .rows_skipped = rows_skipped()};
}

void Fit::go_back(const TrainingState& to, const std::string& from,
                  const std::vector<std::string>& replaced) {
  const auto found = marks_.find(to.steps);
  const Mark then = found == marks_.end() ? Mark() : found->second;
  const int64_t steps_again = std::max<int64_t>(steps() - to.steps, 0);
  const int64_t rows_again = std::max<int64_t>(rows() - to.rows, 0);
  skipped_in_vain_ += rows_skipped() - then.rows_skipped;
  result.updates = then.updates;
  result.losses.resize(std::min(result.losses.size(), then.losses));
  ++result.checkpoints.recoveries;
  result.checkpoints.rows_again += rows_again;
  std::string who = "a connection was lost";
  if (!replaced.empty()) {
    who = base::join(replaced, ", ") + (replaced.size() > 1 ? " were" : " was") +
          " lost and started again";
  }
  const std::chrono::duration<double> lasted = steady_clock::now() - lost_at;
  base::emit({}, base::Event::kRestoreDone,
             {{"task", base::join(replaced, " ")},
              {"prefix", from},
              {"seconds", lasted},
              {"rows_again", rows_again}});
  tell(fmt::format(
      "{}: all variables are as {} after {:.1f} s; {} rows in {} steps since then are trained "
      "again, {} rows are lost",
      who, from.empty() ? "they began" : "in " + from, lasted.count(), rows_again, steps_again,
      result.checkpoints.rows_lost));
}

void Fit::goes_on(const Loss& loss) {
  result.rows_twice_max += loss.rows_twice;
  const auto count = static_cast<int64_t>(loss.lost.size());
  const std::string who =
      loss.lost.empty() ? "a connection to a worker was lost"
                        : base::join(loss.lost, ", ") + (count > 1 ? " were lost" : " was lost");
  std::string how;
  if (loss.has_lost_ps) {
    result.checkpoints.taken_from_standbys += count;
    how = fmt::format("{} and {} what it had from a standby", who, count > 1 ? "each has" : "has");
  } else {
    result.workers_lost += count;
    for (const std::string& task : loss.lost) {
      base::emit({}, base::Event::kWorkerLost,
                 {{"worker", task}, {"error", base::message_of(loss.why)}});
    }
    how = fmt::format("{} ({})", who, base::message_of(loss.why));
  }
  tell(fmt::format(
      "{}: {} worker{} on with what is left of the data after {:.1f} s; at most {} rows are "
      "trained twice",
      how, loss.workers, loss.workers == 1 ? " goes" : "s go", loss.lasted.count(),
      loss.rows_twice));
}

void Fit::found_workers(int64_t living) const {
  tell(fmt::format("workers that were lost are there again: {} train from now on", living),
       base::LogLevel::kInfo);
}

Status Fit::count_loss(const Status& failure) {
  if (result.checkpoints.saved > saved_at_loss_) losses_in_a_row_ = 0;
  saved_at_loss_ = result.checkpoints.saved;
  if (++losses_in_a_row_ > options.losses_max) {
    return base::with_context(
        failure, fmt::format("tasks were lost {} times and no checkpoint was saved in between, "
                             "which is enough",
                             losses_in_a_row_));
  }
  tell(fmt::format("training waits for a task that was lost: {}", base::message_of(failure)));
  return {};
}

void Fit::evaluated(const EvalResult& evaluated, int64_t epoch, int64_t ended) {
  result.validation.push_back(evaluated);
  if (options.on_validation) options.on_validation(result.epochs, evaluated);
  if (!options.on_progress) return;
  shown_.steps = group.steps();
  shown_.rows = group.rows();
  shown_.epoch = epoch;
  shown_.fraction = static_cast<double>(ended) / static_cast<double>(options.epochs);
  shown_.validation = evaluated;
  options.on_progress(shown_);
}

void Fit::epoch_ended(int64_t epoch, double loss) {
  result.training_losses.resize(static_cast<size_t>(epoch), kUnknown);
  result.training_losses.push_back(loss);
  if (options.on_training_loss) options.on_training_loss(epoch + 1, loss);
  // With validation data it is told with what came of that.
  if (!options.on_progress || validation != nullptr) return;
  // Epochs of a small file end faster than anybody reads, and each tells of all before it.
  const auto now = steady_clock::now();
  if (epoch + 1 < options.epochs && now - epoch_shown_ < kBetweenEpochs) return;
  epoch_shown_ = now;
  shown_.training_losses = result.training_losses;
  options.on_progress(shown_);
}

FitResult Fit::end() {
  group.report(&result);
  result.training_losses.resize(static_cast<size_t>(result.epochs), kUnknown);
  result.steps = steps() - first_steps;
  result.rows = rows() - first_rows;
  result.rows_skipped = rows_skipped();
  if (!consistency.is_in_step()) result.updates = result.steps;
  return std::move(result);
}

void Fit::tell(const std::string& text, base::LogLevel level) const {
  if (options.on_message) {
    options.on_message(level, text);
  } else {
    base::log_line(level, text);
  }
}

Status check_recovery(const FitOptions& options, const app::Cluster& cluster) {
  if (!options.restores && !options.continues) return {};
  if (!(options.restart_timeout_s > 0 && options.restart_timeout_s < 1e9)) {
    return base::invalid_argument("restart_timeout_s is {}; it must be above 0",
                                  options.restart_timeout_s);
  }
  if (!options.restores) return {};
  if (options.checkpoints.directory.empty()) {
    return base::invalid_argument(
        "what a lost task held is restored from checkpoints, and there is no directory of them: "
        "give one");
  }
  if (options.losses_max < 1) {
    return base::invalid_argument("losses_max is {}; it must be 1 or more", options.losses_max);
  }
  if (cluster.restarts()) return {};
  return base::failed_precondition(
      "this cluster starts no task again that is lost: make it with on_ps_loss='restore' "
      "(LocalClusterOptions::restarts)");
}

}  // namespace sidereal::train
