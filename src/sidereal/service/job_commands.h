#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sidereal/base/status.h"

namespace sidereal::service {

/// What a running job is told to do with the parameter servers that its variables are on.
/// Value type.
struct JobCommand {
  enum class Kind : uint8_t {
    kScale,      ///< Be on the first `ps` of the cluster.
    kDrain,      ///< Leave task `ps`.
    kRebalance,  ///< Spread over the ones that it is on.
  };
  Kind kind = Kind::kRebalance;
  int ps = 0;
};

/// How far a command is. Value type.
struct JobCommandProgress {
  int64_t bytes = 0;      ///< That were copied,
  int64_t bytes_all = 0;  ///< of so many, about.
};

/// Where the holder of a job hears of commands, one after the other, and says what becomes of them.
/// Thread: one at a time; never blocks.
class JobCommands {
 public:
  virtual ~JobCommands() = default;
  /// One that has come; nothing while another one is under way.
  virtual std::optional<JobCommand> next() = 0;
  /// Whether the one under way is not wanted any more.
  virtual bool is_cancelled() = 0;
  virtual void tell(const JobCommandProgress& progress) = 0;
  /// The one under way was carried out, as `text` says in a sentence; or why it was not.
  virtual void end(const Status& status, const std::string& text) = 0;
};

}  // namespace sidereal::service
