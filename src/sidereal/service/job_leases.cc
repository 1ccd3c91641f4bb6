#include "sidereal/service/job_leases.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"

namespace sidereal::service {

namespace {

/// Jobs whose programs have died that are remembered: more names than that are not used again.
constexpr int64_t kLeftMax = 256;
/// Numbers that EndedLately has.
constexpr size_t kEndedMax = 4096;
/// Of the names of jobs in an error.
constexpr size_t kNamesBytes = 2048;

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status refusal(const RunningJob& job) {
  return base::already_exists(
      "the job '{}' is run by {} since {}: wait until it has ended, give this one another name "
      "(--name, name=), or end that one (--take-over, take_over=True)",
      job.holder.name, to_string(job.holder), time_text(job.since_s));
}

Status taken_over(const JobHolder& by) {
  return base::failed_precondition(
      "the job '{}' was taken over by {} at {}: what this program had begun of it has ended",
      by.name, to_string(by), time_text(now_s()));
}

}  // namespace

Status JobLeases::grant(const JobHolder& wanted, bool take_over, uint64_t lease,
                        const EndElsewhere& end_elsewhere) {
  uint64_t before = 0;
  bool had_left = false;
  std::string from;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_name_.find(wanted.name);
    if (found == by_name_.end()) {
      begin(wanted, take_over, lease);
      return {};
    }
    Entry& entry = found->second;
    if (entry.successor) {
      return base::already_exists("the job '{}' is just being taken over by {}; try again",
                                  wanted.name, to_string(*entry.successor));
    }
    if (!entry.has_left && !take_over) return refusal(entry.job);
    entry.successor = wanted;
    before = entry.lease;
    had_left = entry.has_left;
    from = to_string(entry.job.holder);
  }
  end_elsewhere(before, had_left
                            ? base::aborted("the program of the job '{}' has gone", wanted.name)
                            : taken_over(wanted));
  base::emit(source, base::Event::kJobTakenOver,
             {{"job", wanted.name},
              {"lease", fmt::format("{:016x}", before)},
              {"by", to_string(wanted)},
              {"from", from}});
  const std::lock_guard lock(mutex_);
  begin(wanted, take_over, lease);
  return {};
}

void JobLeases::begin(const JobHolder& wanted, bool take_over, uint64_t lease) {
  by_name_[wanted.name] = {.lease = lease, .job = {.holder = wanted, .since_s = now_s()}};
  base::EventFields fields = {
      {"job", wanted.name}, {"lease", fmt::format("{:016x}", lease)}, {"by", to_string(wanted)}};
  if (take_over) fields.emplace_back("take_over", true);
  base::emit(source, base::Event::kJobBegun, fields);
}

void JobLeases::ended(uint64_t lease, bool is_orderly) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(by_name_.begin(), by_name_.end(),
                                  [&](const auto& one) { return one.second.lease == lease; });
  // One with a successor is the successor's to replace.
  if (found == by_name_.end() || found->second.successor) return;
  if (!found->second.has_left) {
    base::emit(source, is_orderly ? base::Event::kJobEnded : base::Event::kJobLost,
               {{"job", found->first},
                {"lease", fmt::format("{:016x}", lease)},
                {"by", to_string(found->second.job.holder)}});
  }
  if (is_orderly) {
    by_name_.erase(found);
    return;
  }
  found->second.has_left = true;
  found->second.left = ++left_;
  forget_some_that_left();
}

void JobLeases::forget_some_that_left() {
  const auto left = std::count_if(by_name_.begin(), by_name_.end(),
                                  [](const auto& one) { return one.second.has_left; });
  if (left <= kLeftMax) return;
  const auto oldest =
      std::min_element(by_name_.begin(), by_name_.end(), [](const auto& a, const auto& b) {
        return std::pair(!a.second.has_left, a.second.left) <
               std::pair(!b.second.has_left, b.second.left);
      });
  if (!oldest->second.successor) by_name_.erase(oldest);
}

std::vector<RunningJob> JobLeases::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<RunningJob> out;
  for (const auto& [name, entry] : by_name_) {
    if (!entry.has_left) out.push_back(entry.job);
  }
  return out;
}

Result<JobLeases::Leased> JobLeases::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::vector<Leased> running;
  std::string names;
  for (const auto& [of, entry] : by_name_) {
    if (entry.has_left) continue;
    if (of == name) return Leased{.lease = entry.lease, .job = entry.job};
    running.push_back({.lease = entry.lease, .job = entry.job});
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", of);
  }
  names = base::message_text(names, kNamesBytes);
  if (running.empty()) return base::not_found("no job runs on this cluster");
  if (!name.empty()) return base::not_found("no job '{}' runs; these do: {}", name, names);
  if (running.size() == 1) return std::move(running.front());
  return base::invalid_argument("several jobs run: {}; say which one (--job)", names);
}

std::optional<JobHolder> JobLeases::holder_of(uint64_t lease) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : by_name_) {
    if (entry.lease == lease && !entry.has_left && !entry.successor) return entry.job.holder;
  }
  return std::nullopt;
}

void EndedLately::add(uint64_t number, const Status& why) {
  if (!why_.try_emplace(number, why).second) return;
  in_turn_.push_back(number);
  if (in_turn_.size() <= kEndedMax) return;
  why_.erase(in_turn_.front());
  in_turn_.pop_front();
}

Status EndedLately::why(uint64_t number) const {
  const auto found = why_.find(number);
  return found == why_.end() ? Status() : found->second;
}

Status LeasedSessions::join(uint64_t lease, uint64_t session) {
  if (lease == 0) return {};
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(ended_.why(lease));
  open_[lease].insert(session);
  return {};
}

void LeasedSessions::leave(uint64_t lease, uint64_t session) {
  if (lease == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(lease);
  if (found == open_.end()) return;
  found->second.erase(session);
  if (found->second.empty()) open_.erase(found);
}

Status LeasedSessions::check(uint64_t lease) const {
  const std::lock_guard lock(mutex_);
  return ended_.why(lease);
}

void LeasedSessions::end(uint64_t lease, const Status& why) {
  SR_CHECK(!why.ok());
  const std::lock_guard lock(mutex_);
  ended_.add(lease, why);
}

std::vector<uint64_t> LeasedSessions::take_open(uint64_t lease) {
  const std::lock_guard lock(mutex_);
  const auto open = open_.extract(lease);
  if (open.empty()) return {};
  return {open.mapped().begin(), open.mapped().end()};
}

}  // namespace sidereal::service
