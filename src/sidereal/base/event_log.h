#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "sidereal/base/log.h"

/// The event log: what happened to a cluster, with times, so that a failure can be told as a story.
/// An event is a line of JSON; where the log has it too, one call writes both.
/// Thread: any, but no lane: sinks may write to disk.
namespace sidereal::base {

enum class Event : uint8_t {
  kTaskUp,
  kTaskStopping,
  kTaskHung,
  kTaskDown,
  kTaskRestarted,
  kTaskLost,
  kTaskFound,
  kWorkerLost,
  kSessionMade,
  kSessionEnded,
  kJobBegun,
  kJobEnded,
  kJobLost,
  kJobTakenOver,
  kCheckpointBegun,
  kCheckpointWritten,
  kCheckpointFailed,
  kRestoreBegun,
  kRestoreDone,
  kPushesLost,
  kClosureRetried,
  kFollowerAttached,
  kFollowerCutOff,
  kStandbyInSync,
  kStandbyLost,
  kPushesWait,
  kStandbyTaken,
  kTaskDeposed,
  kLeaseHeld,
  kLeaseLost,
  kLeaseLapsed,
  kMoveBegun,
  kMoveDone,
  kMoveFailed,
};

/// The row of an event in the one table of them. Value type.
struct EventKind {
  Event event;
  const char* name;
  const char* fields;   ///< Their names, with blanks between them.
  const char* meaning;  ///< One line.
  LogLevel level;
  const char* said;  ///< What its line of the log begins with, before its fields; "": it has none.
};
/// All of them, by number.
std::span<const EventKind> event_kinds();
/// nullptr: there is none of this name.
const EventKind* find_event(std::string_view name);

/// Something that is known of an event. Text may be any bytes: it is written as UTF-8, and cut.
/// Value type.
struct EventField {
  using Value = std::variant<bool, int64_t, double, std::string>;

  EventField(std::string field_name, Value field_value)
      : name(std::move(field_name)), value(std::move(field_value)) {}
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
      EventField(std::string field_name, T number)
      : EventField(std::move(field_name), Value(static_cast<int64_t>(number))) {}
  EventField(std::string field_name, const char* text)
      : EventField(std::move(field_name), Value(std::string(text))) {}
  /// Seconds, to a millisecond.
  EventField(std::string field_name, std::chrono::duration<double> time);

  std::string name;
  Value value;
};
using EventFields = std::vector<EventField>;

/// What an event is told by. Value type.
struct EventSource {
  std::string task = "client";  ///< "/job:ps/replica:0/task:0"; "client": a program with sessions.
  uint64_t incarnation = 0;     ///< Of the task; 0: it is none.
  bool logs = true;             ///< Whether the log gets the lines that events have there.
};

/// Tells of an event. `said`: its line of the log, where that is not made of its fields.
void emit(const EventSource& source, Event event, const EventFields& fields,
          const std::string& said = "");

/// The latest events of this process, oldest first, as lines of JSON without a line's end; at most
/// `count`, and no more than are kept.
std::vector<std::string> recent_events(size_t count);
inline constexpr size_t kEventsKept = 512;

/// Takes each event of this process from now on, as a line of JSON with its end, as long as the
/// registration lives. Called by one thread at a time; must not emit events itself.
using EventSink = std::function<void(std::string_view line)>;
class EventSinkRegistration {
 public:
  explicit EventSinkRegistration(EventSink sink);
  ~EventSinkRegistration();
  EventSinkRegistration(const EventSinkRegistration&) = delete;
  EventSinkRegistration& operator=(const EventSinkRegistration&) = delete;

 private:
  const std::shared_ptr<EventSink> sink_;
};

}  // namespace sidereal::base
