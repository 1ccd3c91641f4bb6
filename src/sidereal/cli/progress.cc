#include "sidereal/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sidereal/base/strings.h"
#include "sidereal/cli/table.h"

namespace sidereal::cli {

std::string format_progress(const train::Progress& progress, int64_t epochs) {
  std::string line;
  if (epochs > 1) line += fmt::format("epoch {}/{}  ", progress.epoch + 1, epochs);
  const double rate = progress.samples_per_s > 0 || progress.seconds <= 0
                          ? progress.samples_per_s
                          : static_cast<double>(progress.rows) / progress.seconds;
  line += fmt::format("{:3.0f}%  {} samples/s  loss {:.4f}",
                      100 * std::clamp(progress.fraction, 0.0, 1.0), base::human_count(rate),
                      progress.loss);
  if (std::isfinite(progress.auc) && progress.auc > 0) {
    line += fmt::format("  auc {:.4f}", progress.auc);
  }
  if (progress.seconds_left >= 0 && progress.fraction < 1) {
    line += fmt::format("  {} left", format_duration(progress.seconds_left));
  }
  return line.substr(0, kProgressColumns);
}

void ProgressPrinter::update(const train::Progress& progress) {
  const std::string line = format_progress(progress, epochs_);
  if (terminal_) {
    if (line == last_) return;  // It stands there, or above what was told since.
    last_ = line;
    live_ = true;
    sink_("\r" + line + "\x1b[K");
  } else if (progress.seconds >= next_plain_s_) {
    next_plain_s_ = progress.seconds + kPlainSeconds;
    sink_(line + "\n");
  }
}

void ProgressPrinter::finish() {
  if (live_) sink_("\n");
  live_ = false;
}

}  // namespace sidereal::cli
