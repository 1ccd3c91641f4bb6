#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "sidereal/base/status.h"
#include "sidereal/ports/ports.h"
#include "sidereal/resources/manager.h"

namespace sidereal::exec {

/// A dataset that is being read, by name.
/// Thread: any.
class IteratorResource final : public resources::Resource {
 public:
  static constexpr std::string_view kKind = "iterator";

  explicit IteratorResource(std::shared_ptr<ports::ElementReading> reading)
      : reading_(std::move(reading)) {}
  ~IteratorResource() override { end(); }

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  /// kFailedPrecondition after end().
  [[nodiscard]] Result<std::shared_ptr<ports::ElementReading>> reading() const {
    const std::lock_guard lock(mutex_);
    if (reading_ != nullptr) return reading_;
    return base::failed_precondition(
        "the iterator was made in a function, and ended with its call: take its elements there");
  }
  /// Reads no more, and lets go of threads and files.
  void end() {
    std::shared_ptr<ports::ElementReading> gone;
    const std::lock_guard lock(mutex_);
    gone = std::move(reading_);
    if (gone != nullptr) gone->cancel();
  }
  [[nodiscard]] bool is_over() const {
    const std::lock_guard lock(mutex_);
    return reading_ == nullptr;
  }
  void cancel() override {
    const auto reading = this->reading();
    if (reading.ok()) (*reading)->cancel();
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<ports::ElementReading> reading_;  // Guarded by mutex_.
};

}  // namespace sidereal::exec
