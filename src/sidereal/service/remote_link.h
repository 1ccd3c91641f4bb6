#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sidereal/master/link.h"
#include "sidereal/service/channels.h"

namespace sidereal::service {

/// Links to tasks by their Worker services. Thread: any.
class RemoteTasks final : public master::ClusterTasks {
 public:
  /// `channels` is borrowed.
  explicit RemoteTasks(Channels* channels) : channels_(channels) {}
  [[nodiscard]] const std::vector<std::string>& names() const override {
    return channels_->tasks();
  }
  [[nodiscard]] std::string describe(const std::string& task) const override {
    return channels_->describe(task);
  }
  Result<std::shared_ptr<master::Link>> link(master::LinkOptions options) override;

 private:
  Channels* const channels_;
};

}  // namespace sidereal::service
