#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/security/credentials.h"

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

/// As it is typed: "scale --ps 3", "drain ps:1", "rebalance".
std::string to_string(const JobCommand& command);
/// kInvalidArgument for a number that cannot be, and which can.
Status check(const JobCommand& command);

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

/// How a job is told something. Value type.
struct CommandOptions {
  std::string job = {};  ///< Its name; "": the one that runs.
  /// Called now and then, by the thread that waits. nullptr: not.
  std::function<void(const JobCommandProgress&)> on_progress = nullptr;
  /// Asked now and then: true cancels the command, whose end is still waited for. nullptr: never.
  std::function<bool()> is_cancelled = nullptr;
};

/// Tells a job of the whole cluster what to do, by the server that granted its lease
/// (granter_of()), and waits until it has: what was done, in a sentence. A command lasts as long as
/// it takes, but ends with the job, its program, that server and this process.
/// Errors: kNotFound for a job that does not run; kInvalidArgument where several do;
/// kFailedPrecondition for one that takes no commands or carries out another one; kCancelled when
/// `is_cancelled` has said so, and nothing has changed; kUnavailable or kAborted when one of these
/// has gone; those of the holder.
Result<std::string> command_job(const cluster::ClusterSpec& cluster,
                                const security::SecurityOptions& security,
                                const JobCommand& command, const CommandOptions& options = {});

}  // namespace sidereal::service
