#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "sidereal/base/status.h"

/// Internal to exec.
namespace sidereal::exec {

/// What a kernel has a thread of its own do, such as waiting for a disk, while its step waits.
/// Nobody waits for the end of one that is let go of. Thread: any.
class OnThread {
 public:
  /// `wake` has the step look again.
  static std::shared_ptr<OnThread> start(std::function<void()> wake,
                                         std::function<Result<std::string>()> work) {
    auto out = std::make_shared<OnThread>();
    std::thread([out, wake = std::move(wake), work = std::move(work)] {
      Result<std::string> result = work();
      {
        const std::lock_guard lock(out->mutex_);
        out->result_ = std::move(result);
      }
      wake();
    }).detach();
    return out;
  }

  /// What came out; nothing yet.
  std::optional<Result<std::string>> poll() {
    const std::lock_guard lock(mutex_);
    return std::move(result_);
  }

 private:
  std::mutex mutex_;
  std::optional<Result<std::string>> result_;
};

}  // namespace sidereal::exec
