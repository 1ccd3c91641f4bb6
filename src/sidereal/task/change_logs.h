#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/resources/change_log.h"
#include "sidereal/task/change_reading.h"
#include "sidereal/task/task_programs.h"

/// The change logs of a task, which are open while they have readers. Internal to task.
namespace sidereal::task {

class TaskLane;

/// The logs of one container, of all lanes.
struct OpenLogs {
  std::shared_ptr<Container> container;
  std::shared_ptr<resources::LogGroup> group;
  std::shared_ptr<const resources::PushCounts> counts;
  const std::vector<std::shared_ptr<TaskLane>>* lanes = nullptr;
  std::atomic<int> missing = 0;   ///< Lanes that have not opened theirs yet.
  std::atomic<int> standbys = 0;  ///< Readers that pushes wait for, of all lanes.
  bool is_kept = false;           ///< They stay open until the container has ended.
  // With the mutex of ChangeLogs.
  int readers = 0;
  uint64_t times_read = 0;
};

/// Opens logs for the first reader on all lanes at once, and closes them a minute after the last
/// one, so that one that was cut off finds its place. Where pushes wait for standbys that have not
/// come yet they are open from the first step on.
/// Thread: any.
class ChangeLogs {
 public:
  /// `lanes`, those of the task, are borrowed, and made later. `incarnation`: of the task.
  ChangeLogs(const std::vector<std::shared_ptr<TaskLane>>* lanes, uint64_t incarnation,
             std::shared_ptr<const resources::PushCounts> counts)
      : lanes_(*lanes), incarnation_(incarnation), counts_(std::move(counts)) {}

  /// Has `sink` told of what `wanted` says of `container`. kInvalidArgument; kCancelled when the
  /// task is stopping.
  Result<std::shared_ptr<ChangesReader>> read(const ChangesWanted& wanted,
                                              std::shared_ptr<Container> container,
                                              std::shared_ptr<ChangesSink> sink);
  /// A reader has gone. Thread: `lane`.
  void leave(const std::shared_ptr<OpenLogs>& logs, TaskLane* lane);
  /// Logs that are open as long as the container is there: each lane has been asked to open its own
  /// when it returns.
  std::shared_ptr<OpenLogs> keep(const std::shared_ptr<Container>& container);
  /// The container has ended: so do its logs, whoever reads them.
  void end(const Container& container);

 private:
  std::shared_ptr<OpenLogs> enter(std::shared_ptr<Container> container);
  std::shared_ptr<OpenLogs>& opened(const std::shared_ptr<Container>& container);
  void close(const std::shared_ptr<OpenLogs>& logs);
  void close_unread(const std::shared_ptr<OpenLogs>& logs, uint64_t times_read);

  const std::vector<std::shared_ptr<TaskLane>>& lanes_;
  const uint64_t incarnation_;
  const std::shared_ptr<const resources::PushCounts> counts_;
  std::mutex mutex_;
  std::map<const Container*, std::shared_ptr<OpenLogs>> open_;
  uint64_t openings_ = 0;
};

/// The change logs of one lane, and their readers. Thread: the lane.
class LaneChanges {
 public:
  /// `standby_timeout_ns`, `min_insync_replicas`: TaskOptions has them.
  LaneChanges(TaskLane* lane, int64_t standby_timeout_ns, int min_insync_replicas)
      : lane_(lane), standby_timeout_(standby_timeout_ns), standbys_min_(min_insync_replicas - 1) {}
  ~LaneChanges();
  /// To be called once, before any step.
  void set_task(ChangeLogs* of_task) { of_task_ = of_task; }

  /// What standbys have to acknowledge a cut. Thread: any.
  [[nodiscard]] int64_t standby_timeout() const { return standby_timeout_; }
  /// For resources::Lanes.
  [[nodiscard]] std::span<resources::ChangeLog* const> logs() const { return logs_; }
  /// Standbys in sync that pushes wait for until they are there. Thread: any.
  [[nodiscard]] int64_t missing_standbys() const { return missing_.value(); }
  /// What it counts. Thread: any.
  [[nodiscard]] const metrics::Figures& figures() const { return figures_; }
  void open(const std::shared_ptr<OpenLogs>& logs);
  /// A step is going to run: what it changes is noted, if pushes wait for standbys that may not be
  /// there yet.
  void will_change(const std::shared_ptr<Container>& container) {
    if (standbys_min_ == 0 || container->is_own || find(*container) != nullptr) return;
    open(of_task_->keep(container));
  }
  /// The container has ended. Maybe more than once.
  void end(const Container& container) {
    if (standbys_min_ > 0) of_task_->end(container);
  }
  void close(const OpenLogs* logs);
  /// The lane ends.
  void stop(const Status& why);

  /// has_changed() is of what comes from here on.
  void mark() {
    if (!logs_.empty()) marked_ = noted();
  }
  /// Whether a variable that is followed has changed since mark().
  [[nodiscard]] bool has_changed() const { return !logs_.empty() && noted() != marked_; }
  /// Whether pushes wait for standbys of the container: one is in sync, with any lane, or must be.
  [[nodiscard]] bool has_standby(const Container& container) const;
  /// Calls `then` on this lane, maybe at once, when all standbys of the container, and no fewer
  /// than must be, have what the lanes `changed` have changed by now. A lane that is stopping may
  /// never say so.
  void when_acknowledged(const Container& container, std::span<const int> changed,
                         std::function<void()> then);
  /// The lane has run what was ready: standbys are given what is waited for.
  void end_round();

 private:
  friend class ChangeLogs;
  class Reader;
  /// What waits for standbys to acknowledge a cut.
  struct Held {
    uint64_t cut = 0;
    int64_t since = 0;  ///< Time.
    int64_t given = 0;  ///< When the cut was made, as time_run(); 0: it is not.
    std::function<void()> then;
  };
  struct Open {
    std::shared_ptr<OpenLogs> logs;
    std::shared_ptr<resources::ChangeLog> log;
    std::vector<std::shared_ptr<Reader>> readers = {};
    std::deque<Held> held = {};  ///< In the order of their cuts.
  };

  void add(const std::shared_ptr<Reader>& reader, ChangeLogs* of_task);
  void remove(Reader* reader, const Status& why);
  void count();
  void cut_later();
  void cut();
  static void cut(Open* open);
  void go_on(Reader* reader);
  void go_on_later(Reader* reader);
  Status pump(Reader* reader);
  Status begin(Reader* reader, resources::ChangeLog* log);
  [[nodiscard]] std::shared_ptr<Open> find(const OpenLogs* logs) const;
  [[nodiscard]] std::shared_ptr<Open> find(const Container& container) const;
  [[nodiscard]] uint64_t noted() const {
    uint64_t out = 0;
    for (const resources::ChangeLog* log : logs_) out += log->noted();
    return out;
  }
  void acknowledged(Reader* reader);
  [[nodiscard]] bool is_late(const Open& open, const Reader& reader) const;
  int64_t time_run();
  [[nodiscard]] int missing_standbys(const Open& open) const;
  void hold(const OpenLogs* logs, std::function<void()> then);
  void release(const std::shared_ptr<Open>& open);

  TaskLane* const lane_;
  const int64_t standby_timeout_;
  const int standbys_min_;  // That must have a push.
  ChangeLogs* of_task_ = nullptr;
  std::vector<std::shared_ptr<Open>> open_;
  std::vector<resources::ChangeLog*> logs_;  // Of these.
  bool is_going_to_cut_ = false;
  int64_t run_ = 0;     // Of time_run(),
  int64_t looked_ = 0;  // when it was last called.
  uint64_t marked_ = 0;

  metrics::Figures figures_;
  metrics::Counter readers_{&figures_,
                            metrics::gauge("sidereal_followers", metrics::Unit::kCount,
                                           "Streams on which change logs of lanes are read.")};
  metrics::Counter cuts_behind_{
      &figures_, metrics::gauge("sidereal_follower_cuts_behind", metrics::Unit::kCount,
                                "Cuts of lanes that their followers were not given yet.")};
  metrics::Counter untaken_{
      &figures_, metrics::gauge("sidereal_follower_untaken_bytes", metrics::Unit::kBytes,
                                "What followers were given and have not said to have taken.")};
  metrics::Counter kept_{&figures_,
                         metrics::gauge("sidereal_change_log_bytes", metrics::Unit::kBytes,
                                        "Entries of change logs that are kept for followers.")};
  metrics::Counter cut_off_{
      &figures_, metrics::counter("sidereal_followers_cut_off_total", metrics::Unit::kCount,
                                  "Followers that were too slow for the log, or silent.")};
  metrics::Counter standbys_{
      &figures_, metrics::gauge("sidereal_standbys", metrics::Unit::kCount,
                                "Streams of synchronous standbys that pushes wait for.")};
  metrics::Counter held_{
      &figures_, metrics::gauge("sidereal_standby_waiting", metrics::Unit::kCount,
                                "Pushes that were made and wait for a standby to be answered.")};
  metrics::Counter missing_{
      &figures_, metrics::gauge("sidereal_standbys_missing", metrics::Unit::kCount,
                                "Standbys in sync that pushes wait for until they are there "
                                "(min_insync_replicas), of each lane.")};
  metrics::Histogram wait_ns_{
      &figures_, metrics::histogram("sidereal_standby_wait_seconds", metrics::Unit::kSeconds,
                                    "How long pushes waited for standbys.")};
};

}  // namespace sidereal::task
