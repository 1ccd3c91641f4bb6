#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/base/log.h"
#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/service/job_commands.h"
#include "sidereal/service/variable_moves.h"
#include "sidereal/train/autoscale.h"
#include "sidereal/train/placed_model.h"
#include "sidereal/train/placement.h"
#include "sidereal/train/replicas.h"

namespace sidereal::train {

/// Carries out commands to a training: parts of its model move to other parameter servers, which
/// follow them while loops go on; loops are drained when all are current, and go on with sessions
/// that look for the parts where they are then. Until the servers have taken over, nothing has
/// changed: what fails or is cancelled before leaves no trace but its error. Internal to train.
/// Thread: core-local. Borrows what the context has.
class Resharding {
 public:
  using Clock = std::chrono::steady_clock;

  struct Context {
    PlacedModel* placed = nullptr;
    Replicas* replicas = nullptr;
    /// Where commands come from, now: of what the model holds of the cluster. nullptr: none come.
    std::function<service::JobCommands*()> commands;
    std::function<void(const std::string&, base::LogLevel)> tell;
    std::function<bool()> may_drain;  ///< Whether loops may be drained now, if that is needed.
    AutoscaleOptions autoscale = {};  ///< What it does without a command.
    int64_t* moves = nullptr;         ///< Counts those that were carried out.
  };

  explicit Resharding(Context context)
      : context_(std::move(context)), autoscale_(context_.autoscale) {}
  /// The training has ended: a command that is under way is not carried out.
  ~Resharding();
  Resharding(const Resharding&) = delete;
  Resharding& operator=(const Resharding&) = delete;

  /// Whether a command is being carried out: workers and sessions stay as they are.
  [[nodiscard]] bool is_busy() const { return stage_ != Stage::kIdle; }
  /// Asked while loops run: whether they are to be drained now. `first_step`: when their first step
  /// began, if it did. May take as long as sessions take to be made.
  bool look(const std::optional<Clock::time_point>& first_step);
  /// Whether take_over() is due when loops have ended.
  [[nodiscard]] bool is_due() const { return stage_ == Stage::kDue; }
  /// After loops have ended, and nothing changes variables: servers take them over. True: the
  /// model's sessions are others. False: all is as before, and the command has ended with why.
  bool take_over();
  /// Something else has failed, or the training ends: the command ends with that.
  void abandon(const Status& why);

 private:
  enum class Stage : uint8_t {
    kIdle,
    kCopying,  ///< Loops run; servers copy.
    kDue,      ///< All are current, and loops are to be drained.
    kMoved,    ///< It is done; loops have not begun their first step.
  };

  void begin(const service::JobCommand& command);
  std::optional<service::JobCommand> autoscaled();
  [[nodiscard]] std::vector<double> busy_since(Clock::time_point now);
  [[nodiscard]] service::JobCommands* asked() const;
  Result<Placement> plan(const service::JobCommand& command);
  Status copy(Placement next);
  bool look_at_copies();
  Status take();
  [[nodiscard]] std::vector<ir::Graph> used_now() const;
  [[nodiscard]] std::vector<ir::Graph> used_then() const;
  void forget(const std::vector<ir::Graph>& used, const std::vector<ir::Graph>& other);
  void end_moved(Clock::time_point going);
  [[nodiscard]] bool is_cancelled();
  void end(const Status& status, const std::string& text);
  std::vector<double> work();
  std::vector<double> loads();

  const Context context_;
  Stage stage_ = Stage::kIdle;
  std::string command_;                    // "scale --ps 3", that is under way,
  service::JobCommands* asked_ = nullptr;  // as this one has said, which may be gone, or none.
  std::unique_ptr<service::VariableMoves> moves_;  // That are under way.
  int64_t bytes_ = 0;                              // That are to move.
  int64_t parts_ = 0;
  size_t ps_before_ = 0;
  Clock::time_point began_;
  Clock::time_point due_;        // Since then loops are drained.
  std::vector<ir::Graph> left_;  // Used before parts had moved, and since.
  std::vector<ir::Graph> taken_;
  std::vector<double> loads_before_;  // work() when parts had last moved.
  Autoscale autoscale_;
  std::optional<Clock::time_point> looked_;  // When the rules were last asked; work() was then
  std::vector<double> worked_;               // this.
};

}  // namespace sidereal::train
