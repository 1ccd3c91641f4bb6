#include "sidereal/service/job_command_relay.h"

#include <fmt/format.h>

#include <utility>

#include "sidereal/service/job_leases.h"

namespace sidereal::service {

Status JobCommandRelay::hear(uint64_t lease, const std::shared_ptr<CommandHolder>& holder) {
  const std::lock_guard lock(mutex_);
  // With the lock: a lease that ends from now on finds its entry.
  const std::optional<JobHolder> of = jobs_->holder_of(lease);
  if (!of) return base::failed_precondition("the lease {:016x} is not held here", lease);
  Entry& entry = hearing_[lease];
  if (entry.holder != nullptr) {
    finish(&entry,
           base::unavailable("the program of the job '{}' has begun to hear of commands anew",
                             of->name),
           {});
    entry.holder->dismiss();
  }
  entry = {.holder = holder, .job = of->name};
  return {};
}

void JobCommandRelay::leave(uint64_t lease, const CommandHolder* holder) {
  const std::lock_guard lock(mutex_);
  const auto found = hearing_.find(lease);
  if (found == hearing_.end() || found->second.holder.get() != holder) return;
  Entry& entry = found->second;
  finish(&entry,
         base::unavailable("the connection to the program of the job '{}' is lost; if it lives, it "
                           "takes back what it had begun of '{}'",
                           entry.job, to_string(entry.command)),
         {});
  hearing_.erase(found);
}

void JobCommandRelay::lease_ended(uint64_t lease) {
  const std::lock_guard lock(mutex_);
  const auto found = hearing_.find(lease);
  if (found == hearing_.end()) return;
  Entry& entry = found->second;
  finish(&entry,
         base::aborted("the job '{}' has ended, and '{}' with it", entry.job,
                       to_string(entry.command)),
         {});
  entry.holder->dismiss();
  hearing_.erase(found);
}

void JobCommandRelay::tell(uint64_t lease, const CommandHolder* holder, uint64_t number,
                           const JobCommandProgress& progress) {
  const std::lock_guard lock(mutex_);
  const Entry* const entry = find(lease, holder, number);
  if (entry != nullptr && entry->caller != nullptr) entry->caller->told(progress);
}

void JobCommandRelay::end(uint64_t lease, const CommandHolder* holder, uint64_t number,
                          const Status& status, const std::string& text) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(lease, holder, number);
  if (entry != nullptr) finish(entry, status, text);
}

Result<uint64_t> JobCommandRelay::command(const std::string& job, const JobCommand& command,
                                          const std::shared_ptr<CommandCaller>& caller) {
  SR_ASSIGN_OR_RETURN(const JobLeases::Leased leased, jobs_->find(job));
  const JobHolder& holder = leased.job.holder;
  const std::lock_guard lock(mutex_);
  const auto found = hearing_.find(leased.lease);
  if (found == hearing_.end()) {
    return base::failed_precondition(
        "the job '{}' of {} takes no commands: fit() and `sidereal train` do while they train, and "
        "a ClusterCoordinator and a MonitoredTrainingSession(movable=True) do",
        holder.name, to_string(holder));
  }
  Entry& entry = found->second;
  if (entry.number != 0) {
    return base::failed_precondition(
        "the job '{}' {} '{}'; try again when that has ended", holder.name,
        entry.is_cancelled ? "takes back" : "is carrying out", to_string(entry.command));
  }
  entry.number = ++commands_;
  entry.command = command;
  entry.caller = caller;
  entry.is_cancelled = false;
  entry.holder->begin(entry.number, command);
  return entry.number;
}

void JobCommandRelay::cancel(uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = find(number); entry != nullptr) cancel(entry);
}

void JobCommandRelay::abandon(uint64_t number) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(number);
  if (entry == nullptr) return;
  cancel(entry);
  entry->caller = nullptr;
}

JobCommandRelay::Entry* JobCommandRelay::find(uint64_t lease, const CommandHolder* holder,
                                              uint64_t number) {
  const auto found = hearing_.find(lease);
  if (found == hearing_.end() || found->second.holder.get() != holder) return nullptr;
  return number != 0 && found->second.number == number ? &found->second : nullptr;
}

JobCommandRelay::Entry* JobCommandRelay::find(uint64_t number) {
  if (number == 0) return nullptr;
  for (auto& [lease, entry] : hearing_) {
    if (entry.number == number) return &entry;
  }
  return nullptr;
}

void JobCommandRelay::finish(Entry* entry, const Status& status, const std::string& text) {
  if (entry->number == 0) return;
  if (entry->caller != nullptr) entry->caller->told_end(status, text);
  entry->number = 0;
  entry->caller = nullptr;
}

void JobCommandRelay::cancel(Entry* entry) {
  if (!std::exchange(entry->is_cancelled, true)) entry->holder->cancel(entry->number);
}

}  // namespace sidereal::service
