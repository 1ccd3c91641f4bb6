#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/ckpt/data_file.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/exec/kernel.h"
#include "sidereal/resources/variable.h"
#include "sidereal/sys/disk.h"

/// Writing variables to a file while steps change them. Internal to exec.
namespace sidereal::exec {

/// A tensor of a checkpoint, and what it is saved from. Value type.
struct SavedTensor {
  std::string name;
  tensor::Shape shape;  ///< Of the whole; unknown rank: what is saved is all of it.
  ckpt::Slice slice;    ///< Of it, what is saved; as `shape`.
  std::shared_ptr<resources::Variable> variable = nullptr;  ///< Or, without one,
  tensor::Tensor value = {};                                ///< this.
};

/// What the one who saves asks for. Value type.
struct SaveRequest {
  std::shared_ptr<sys::Disk> disk = nullptr;
  std::function<void()> wake = nullptr;  ///< Has the step look again. Thread: any.
  std::string prefix = {};
  int64_t shard = 0;
  int64_t shards = 1;
  std::vector<uint64_t> bases = {};  ///< Cuts that increments count from; empty: all is saved.
  uint64_t cut = 0;                  ///< Random; what later increments count from.
  bool tracks = false;               ///< Whether there may be later increments.
  int64_t bytes_per_second = 0;      ///< At most; 0: as fast as the disk is.
  size_t piece_bytes = ckpt::kBlockBytes;  ///< That a lane copies out at a time.
  std::vector<SavedTensor> tensors = {};
};

/// The cuts of the checkpoint of a prefix, once its index is in place; before: none.
std::vector<uint64_t> cuts_in_place(sys::Disk* disk, const std::string& prefix);

/// One task's part of a checkpoint. Each lane stops for an instant, at which it takes snapshots of
/// all its variables; then it copies pieces of them out between its steps, and a thread writes
/// these. The data file is created when all snapshots were taken: who sees it knows that nothing
/// that happens from then on is in it.
/// Lifecycle: start(), step() until it gives a result. It ends early when its owner lets go of it;
/// no file stays then.
/// Thread: start() and step() are those of the lane whose step saves, or of the thread, where
/// threads share variables.
class SaveWork {
 public:
  /// `lanes`: whose the variables are; nullptr: threads share them.
  static std::unique_ptr<SaveWork> start(SaveRequest request, VariableLanes* lanes);
  ~SaveWork();
  SaveWork(const SaveWork&) = delete;
  SaveWork& operator=(const SaveWork&) = delete;

  /// Passes on what the thread wants of lanes. The encoded index of what was written, once it is on
  /// the disk.
  std::optional<Result<std::string>> step();
  /// "12 of 340 MB".
  [[nodiscard]] std::string progress() const;

 private:
  class Job;
  explicit SaveWork(std::shared_ptr<Job> job) : job_(std::move(job)) {}

  const std::shared_ptr<Job> job_;
};

}  // namespace sidereal::exec
