#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
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
  size_t bytes_max = 0;
  std::atomic<int> missing = 0;  ///< Lanes that have not opened theirs yet.
  // With the mutex of ChangeLogs.
  int readers = 0;
  uint64_t times_read = 0;
};

/// Opens logs for the first reader on all lanes at once, and closes them a minute after the last
/// one, so that one that was cut off finds its place.
/// Thread: any.
class ChangeLogs {
 public:
  /// `lanes`, those of the task, are borrowed, and made later. `incarnation`: of the task.
  ChangeLogs(const std::vector<std::shared_ptr<TaskLane>>* lanes, uint64_t incarnation)
      : lanes_(*lanes), incarnation_(incarnation) {}

  /// Has `sink` told of what `wanted` says of `container`. kInvalidArgument; kCancelled when the
  /// task is stopping.
  Result<std::shared_ptr<ChangesReader>> read(const ChangesWanted& wanted,
                                              std::shared_ptr<Container> container,
                                              std::shared_ptr<ChangesSink> sink);
  /// A reader has gone. Thread: `lane`.
  void leave(const std::shared_ptr<OpenLogs>& logs, TaskLane* lane);

 private:
  std::shared_ptr<OpenLogs> enter(std::shared_ptr<Container> container);
  void close_unread(const std::shared_ptr<OpenLogs>& logs, uint64_t times_read);

  const std::vector<std::shared_ptr<TaskLane>>& lanes_;
  const uint64_t incarnation_;
  std::mutex mutex_;
  std::map<const Container*, std::shared_ptr<OpenLogs>> open_;
  uint64_t openings_ = 0;
};

/// The change logs of one lane, and their readers. Thread: the lane.
class LaneChanges {
 public:
  explicit LaneChanges(TaskLane* lane) : lane_(lane) {}
  ~LaneChanges();

  /// For resources::Lanes.
  [[nodiscard]] std::span<resources::ChangeLog* const> logs() const { return logs_; }
  /// What it counts. Thread: any.
  [[nodiscard]] const metrics::Figures& figures() const { return figures_; }
  void open(const std::shared_ptr<OpenLogs>& logs);
  void close(const OpenLogs* logs);
  /// The lane ends.
  void stop(const Status& why);

 private:
  friend class ChangeLogs;
  class Reader;
  struct Open {
    std::shared_ptr<OpenLogs> logs;
    std::shared_ptr<resources::ChangeLog> log;
    std::vector<std::shared_ptr<Reader>> readers = {};
  };

  void add(const std::shared_ptr<Reader>& reader, ChangeLogs* of_task);
  void remove(Reader* reader, const Status& why);
  void count();
  void cut_later();
  void cut();
  void go_on(Reader* reader);
  Status pump(Reader* reader);
  Status begin(Reader* reader, resources::ChangeLog* log);
  [[nodiscard]] Open* find(const OpenLogs* logs);

  TaskLane* const lane_;
  std::vector<Open> open_;
  std::vector<resources::ChangeLog*> logs_;  // Of these.
  bool is_going_to_cut_ = false;

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
};

}  // namespace sidereal::task
