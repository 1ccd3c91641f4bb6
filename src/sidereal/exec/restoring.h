#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/exec/kernel.h"
#include "sidereal/exec/saving.h"
#include "sidereal/sys/disk.h"

/// Reading checkpoints while lanes do something else. Internal to exec.
namespace sidereal::exec {

/// Reads tensors of a checkpoint on a thread of its own and gives them to variables, one after the
/// other, each on its lane; or hands them out.
/// Lifecycle: start(), step() until it gives a result. It ends early when its owner lets go of it.
/// Thread: start() and step() are those of the lane whose step restores.
class RestoreWork {
 public:
  /// `tensors`: where there is no variable, the tensor is handed out; it must have the dtype of
  /// `value`.
  static std::unique_ptr<RestoreWork> start(std::shared_ptr<sys::Disk> disk,
                                            std::function<void()> wake, std::string prefix,
                                            std::vector<SavedTensor> tensors, VariableLanes* lanes);
  ~RestoreWork();
  RestoreWork(const RestoreWork&) = delete;
  RestoreWork& operator=(const RestoreWork&) = delete;

  /// Those that are handed out, in their order.
  std::optional<Result<std::vector<tensor::Tensor>>> step();

 private:
  class Job;
  explicit RestoreWork(std::shared_ptr<Job> job) : job_(std::move(job)) {}

  const std::shared_ptr<Job> job_;
};

}  // namespace sidereal::exec
