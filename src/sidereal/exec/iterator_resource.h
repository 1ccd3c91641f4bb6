#pragma once

#include <memory>
#include <string_view>
#include <utility>

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

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] ports::ElementReading& reading() const { return *reading_; }
  void cancel() override { reading_->cancel(); }

 private:
  std::shared_ptr<ports::ElementReading> reading_;
};

}  // namespace sidereal::exec
