#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sidereal/runtime/channels.h"
#include "sidereal/runtime/link.h"

namespace sidereal::runtime {

/// Links to tasks by their Worker services. Thread: any.
class RemoteTasks final : public ClusterTasks {
 public:
  /// `channels` is borrowed.
  explicit RemoteTasks(Channels* channels) : channels_(channels) {}
  [[nodiscard]] const std::vector<std::string>& names() const override {
    return channels_->tasks();
  }
  [[nodiscard]] std::string describe(const std::string& task) const override {
    return channels_->describe(task);
  }
  Result<std::shared_ptr<Link>> link(LinkOptions options) override;

 private:
  Channels* const channels_;
};

}  // namespace sidereal::runtime
