#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sidereal/base/event_log.h"
#include "sidereal/base/status.h"
#include "sidereal/service/job.h"

namespace sidereal::service {

/// Which jobs run, as the server knows that grants their leases: the first parameter server of a
/// cluster. A lease is a number, that of the session which holds it, and ends with that.
/// Thread: any.
class JobLeases {
 public:
  base::EventSource source = {};  ///< Of what is told of jobs. Set before any is.

  /// Ends on all tasks what belongs to a lease; `why` is what its holder is told. Gives up on a
  /// task that cannot be reached: what is there changes nothing on the others.
  using EndElsewhere = std::function<void(uint64_t lease, const Status& why)>;

  /// Grants `lease` to the holder of a job. What may still go on of the job that had the name
  /// before is ended first, when its program had died, or with `take_over`.
  /// kAlreadyExists when that job runs, naming its holder and since when.
  Status grant(const JobHolder& wanted, bool take_over, uint64_t lease,
               const EndElsewhere& end_elsewhere);
  /// The session that holds the lease has ended; `is_orderly`: by its client, which has ended all
  /// that it had begun before. Ignores other sessions.
  void ended(uint64_t lease, bool is_orderly);
  /// Those that run now, by name.
  [[nodiscard]] std::vector<RunningJob> running() const;
  /// The one that runs under a name; "": the only one. kNotFound naming those that run;
  /// kInvalidArgument where there are several.
  struct Leased {
    uint64_t lease = 0;
    RunningJob job;
  };
  [[nodiscard]] Result<Leased> find(const std::string& name) const;
  /// Whether the job of that lease runs, and no other one is taking it over: its holder.
  [[nodiscard]] std::optional<JobHolder> holder_of(uint64_t lease) const;

 private:
  struct Entry {
    uint64_t lease = 0;
    RunningJob job;
    bool has_left = false;  ///< Its program has died; what it had begun has not been ended.
    uint64_t left = 0;      ///< Which one that was: the 1st, 2nd, ... of all.
    std::optional<JobHolder> successor = std::nullopt;  ///< The holder that ends it just now.
  };
  void begin(const JobHolder& wanted, bool take_over, uint64_t lease);
  void forget_some_that_left();

  mutable std::mutex mutex_;
  std::map<std::string, Entry> by_name_;
  uint64_t left_ = 0;
};

/// Why sessions or leases have ended, by number; of the latest ones, as clients of older ones have
/// noticed. Thread: one at a time.
class EndedLately {
 public:
  void add(uint64_t number, const Status& why);
  /// OK: it has not, or is forgotten.
  [[nodiscard]] Status why(uint64_t number) const;

 private:
  std::map<uint64_t, Status> why_;
  std::deque<uint64_t> in_turn_;  // Oldest first.
};

/// What belongs to leases on one task, whichever task granted them.
/// Thread: any.
class LeasedSessions {
 public:
  /// A session of a lease is open on the task: why it must not be, if that is so. 0: of no lease.
  Status join(uint64_t lease, uint64_t session);
  void leave(uint64_t lease, uint64_t session);
  /// kFailedPrecondition and the like: why nothing of the lease may begin here.
  [[nodiscard]] Status check(uint64_t lease) const;
  /// Lets nothing of the lease join any more.
  void end(uint64_t lease, const Status& why);
  /// Those that are open, which the caller closes.
  std::vector<uint64_t> take_open(uint64_t lease);

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::set<uint64_t>> open_;  // By lease.
  EndedLately ended_;
};

/// Both, as the services of a server share them.
struct Leases {
  JobLeases jobs;
  LeasedSessions sessions;
};

}  // namespace sidereal::service
