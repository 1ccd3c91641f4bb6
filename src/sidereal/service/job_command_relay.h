#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/service/job_commands.h"

namespace sidereal::service {

class JobLeases;

/// The client that has told a job what to do. Its functions are called with a lock of the relay,
/// which they must not come back to, and must not block.
class CommandCaller {
 public:
  virtual ~CommandCaller() = default;
  virtual void told(const JobCommandProgress& progress) = 0;
  /// Nothing follows.
  virtual void told_end(const Status& status, const std::string& text) = 0;
};

/// The holder of a job, which carries out commands. As CommandCaller.
class CommandHolder {
 public:
  virtual ~CommandHolder() = default;
  virtual void begin(uint64_t number, const JobCommand& command) = 0;
  virtual void cancel(uint64_t number) = 0;
  /// It hears of nothing any more.
  virtual void dismiss() = 0;
};

/// Passes commands on from callers to the holders of jobs, and back what becomes of them: one at a
/// time for each job. Of the server that grants the leases.
/// Thread: any.
class JobCommandRelay {
 public:
  explicit JobCommandRelay(std::shared_ptr<const JobLeases> jobs) : jobs_(std::move(jobs)) {}

  /// `holder` hears of the commands to the job of `lease`, in the place of the one before it.
  /// kFailedPrecondition when that does not run.
  Status hear(uint64_t lease, const std::shared_ptr<CommandHolder>& holder);
  /// It has gone, and with it what it carried out.
  void leave(uint64_t lease, const CommandHolder* holder);
  void lease_ended(uint64_t lease);
  /// What a holder says of a command; ignored of another one than the one under way.
  void tell(uint64_t lease, const CommandHolder* holder, uint64_t number,
            const JobCommandProgress& progress);
  void end(uint64_t lease, const CommandHolder* holder, uint64_t number, const Status& status,
           const std::string& text);

  /// Gives a command to a job, and its number. Errors: those of JobLeases::find();
  /// kFailedPrecondition when the job takes none, or carries out another one.
  Result<uint64_t> command(const std::string& job, const JobCommand& command,
                           const std::shared_ptr<CommandCaller>& caller);
  /// The command is not wanted any more: the job may have carried it out already.
  void cancel(uint64_t number);
  /// The same, and its caller has gone.
  void abandon(uint64_t number);

 private:
  struct Entry {
    std::shared_ptr<CommandHolder> holder;
    std::string job;                                  ///< Its name.
    uint64_t number = 0;                              ///< Of the command under way; 0: none is.
    JobCommand command = {};                          ///< That one,
    std::shared_ptr<CommandCaller> caller = nullptr;  ///< its caller, if that is still there,
    bool is_cancelled = false;                        ///< and whether it is not wanted any more.
  };
  /// With mutex_. nullptr: it is not the one under way.
  Entry* find(uint64_t lease, const CommandHolder* holder, uint64_t number);
  Entry* find(uint64_t number);
  static void finish(Entry* entry, const Status& status, const std::string& text);
  static void cancel(Entry* entry);

  const std::shared_ptr<const JobLeases> jobs_;
  std::mutex mutex_;
  std::map<uint64_t, Entry> hearing_;  // By lease.
  uint64_t commands_ = 0;
};

}  // namespace sidereal::service
