#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/service/session.h"
#include "sidereal/sys/disk.h"
#include "sidereal/train/checkpoint_directory.h"
#include "sidereal/train/placed_model.h"
#include "sidereal/train/saving.h"
#include "sidereal/train/trainer.h"
#include "sidereal/train/training_state.h"

namespace sidereal::train {

/// When checkpoints are due: what CheckpointOptions::save_every says. Value type.
struct SaveEvery {
  bool epoch = false;
  int64_t steps = 0;   ///< Of all lanes together; 0: not by steps.
  double seconds = 0;  ///< 0: not by time.

  friend bool operator==(const SaveEvery&, const SaveEvery&) = default;
};

/// "5m", "90s", "2h", "1000steps" or "epoch". kInvalidArgument.
Result<SaveEvery> parse_save_every(const std::string& text);

/// Saves a training and goes on with one: when, where and what. Training waits at a boundary of its
/// loops until all lanes of all parameter servers have seen that it is now, so that a checkpoint is
/// of one instant of the cluster, and each row is in it or comes after it. It is written while
/// training goes on. Internal to train.
/// Thread: core-local.
class Checkpointing {
 public:
  /// What it needs of the trainer. Borrowed.
  struct Context {
    PlacedModel* placed = nullptr;
    CheckpointReport* report = nullptr;  ///< What is saved is counted there.
    std::function<void(const std::string&)> tell;
  };

  /// Has the directory to itself. Errors: those of CheckpointDirectory::open().
  static Result<std::unique_ptr<Checkpointing>> open(const CheckpointOptions& options,
                                                     Context context);
  /// What is being saved is saved first.
  ~Checkpointing();

  /// Gives variables the values of the checkpoint that training goes on from, as
  /// CheckpointOptions::resume says; what it had come to, or nothing when it begins.
  Result<std::optional<TrainingState>> resume(const std::string& data);
  /// The prefix that it goes on from.
  [[nodiscard]] const std::string& resumed_from() const { return resumed_from_; }

  /// Training begins, or goes on, from there.
  void start(const TrainingState& state);
  /// Steps that each lane has until it must be asked again; 0: it need not be.
  [[nodiscard]] int64_t steps_of_lane() const;
  /// A loop of that many steps of all lanes has ended.
  void loop_ended(int64_t steps, double seconds);
  /// Whether to save now. `is_epoch`: an epoch has ended. By time it is put off while another one
  /// is being saved.
  [[nodiscard]] bool is_due(bool is_epoch);
  /// Begins to save, when what is being saved has been; steps that begin when it returns are not in
  /// it. What fails is told, and counted: what was good stays.
  void save(const TrainingState& state);
  /// Whether one is being written.
  [[nodiscard]] bool is_saving() const;
  /// Variables are elsewhere from now on: the next one stands on none before.
  void begin_anew() { base_.clear(); }
  /// What is being saved has been, or could not be.
  void settle() { collect(); }
  /// Saves that, unless it has been, and waits until all is on the disk. `is_other`: variables are
  /// others than when it was.
  void save_last(const TrainingState& state, bool is_other = false);
  /// Gives variables the values of the checkpoint here that has `points` evaluations; false when
  /// there is none that is good.
  Result<bool> restore_at(size_t points, const std::string& data);

  [[nodiscard]] bool saves_by_epoch() const { return every_.epoch; }

 private:
  using Clock = std::chrono::steady_clock;

  Checkpointing(SaveEvery every, CheckpointOptions options, Context context)
      : every_(every), options_(std::move(options)), context_(std::move(context)) {}
  /// A checkpoint that a thread is writing.
  struct Saving {
    int64_t steps = 0;
    size_t points = 0;
    std::string prefix;
    bool is_increment = false;
    std::thread thread;
    std::mutex mutex;
    std::condition_variable ended;
    bool has_ended = false;  // Guarded by `mutex`, as `status`.
    Status status;
  };

  Status begin(const TrainingState& state);
  bool feed_base(const std::string& prefix, std::vector<service::Session::Feed>* feeds);
  [[nodiscard]] const SavingNodes& nodes() const { return context_.placed->distributed().saving; }
  void wait_for_cut();
  void collect();
  void take(int64_t steps, size_t points, const std::string& prefix, const Status& saved);
  Result<TrainingState> restore(const std::string& prefix, const std::string& data);

  const SaveEvery every_;
  const CheckpointOptions options_;
  const Context context_;
  std::shared_ptr<sys::Disk> disk_;
  std::unique_ptr<CheckpointDirectory> directory_;
  std::unique_ptr<Saving> saving_;
  std::string base_;        // What the next one may stand on; "": it is to be whole.
  int64_t increments_ = 0;  // Since the last one that is whole.
  bool waits_ = false;      // The next one is written while training waits.
  std::string resumed_from_;
  int64_t steps_ = 0;
  int64_t saved_steps_ = -1;  // Of the latest checkpoint that is good.
  size_t saved_points_ = 0;   // Of its curve.
  int64_t asked_steps_ = 0;   // When it was last saved, or tried.
  Clock::time_point asked_;
  double steps_per_s_ = 0;  // Of one lane; 0: not known.
};

}  // namespace sidereal::train
