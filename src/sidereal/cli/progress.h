#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "sidereal/train/trainer.h"

namespace sidereal::cli {

/// Columns a progress line never passes.
inline constexpr size_t kProgressColumns = 100;

/// "epoch 1/2   45%  12.3k samples/s  loss 0.4523  auc 0.7812  1m23s left".
std::string format_progress(const train::Progress& progress, int64_t epochs);

/// Shows how a fit is going. On a terminal: one line, rewritten at each update. Otherwise a line
/// of its own at first and every kPlainSeconds seconds of training.
/// Thread: core-local.
class ProgressPrinter {
 public:
  static constexpr double kPlainSeconds = 5;
  /// Takes text to show at once.
  using Sink = std::function<void(std::string_view)>;

  ProgressPrinter(Sink sink, bool terminal, int64_t epochs)
      : sink_(std::move(sink)), terminal_(terminal), epochs_(epochs) {}
  /// Ends the live line.
  ~ProgressPrinter() { finish(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void update(const train::Progress& progress);
  /// Ends the live line, so that other output starts on a line of its own. Idempotent.
  void finish();

 private:
  Sink sink_;
  bool terminal_;
  int64_t epochs_;
  bool live_ = false;        // The cursor stands in a live line.
  std::string last_;         // The latest live line.
  double next_plain_s_ = 0;  // When the next plain line is due.
};

}  // namespace sidereal::cli
