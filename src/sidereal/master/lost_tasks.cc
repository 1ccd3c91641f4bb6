#include "sidereal/master/lost_tasks.h"

#include <fmt/format.h>

namespace sidereal::master {

using std::chrono::steady_clock;

namespace {

/// Clients name the tasks.
constexpr size_t kTasksMax = 4096;

}  // namespace

void LostTasks::note_lost(const std::string& task, uint64_t incarnation, uint64_t session,
                          const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = seen_.find(task);
    // Other sessions lose it too; some of them when a later one has found it again.
    if (found == seen_.end() || found->second.is_lost) return;
    if (found->second.incarnation != incarnation) return;
    found->second.is_lost = true;
    found->second.since = steady_clock::now();
  }
  base::emit(source_, base::Event::kTaskLost,
             {{"task", task},
              {"session", fmt::format("{:016x}", session)},
              {"why", base::message_of(why)}});
}

void LostTasks::note_attached(const std::string& task, uint64_t incarnation) {
  Seen before;
  {
    const std::lock_guard lock(mutex_);
    if (seen_.size() >= kTasksMax && !seen_.contains(task)) return;
    Seen& seen = seen_[task];
    before = seen;
    seen = {.incarnation = incarnation};
  }
  if (!before.is_lost) return;
  base::emit(source_, base::Event::kTaskFound,
             {{"task", task},
              {"seconds", steady_clock::now() - before.since},
              {"is_restarted", before.incarnation != incarnation}});
}

}  // namespace sidereal::master
