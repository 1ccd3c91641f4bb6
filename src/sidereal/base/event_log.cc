#include "sidereal/base/event_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <mutex>

#include "sidereal/base/log_format.h"
#include "sidereal/base/strings.h"

namespace sidereal::base {
namespace {

/// Of one text: a status may have many lines.
constexpr size_t kTextBytesMax = 1024;
constexpr size_t kFieldsMax = 32;

constexpr LogLevel kInfo = LogLevel::kInfo;
constexpr LogLevel kWarning = LogLevel::kWarning;

constexpr std::array kKinds = {
    EventKind{Event::kTaskUp, "task_up", "target security protocol data_port metrics",
              "A server listens, and takes sessions.", kInfo, "up"},
    EventKind{Event::kTaskStopping, "task_stopping", "reason",
              "A task was told to end, or its launcher has gone.", kInfo, "stopping"},
    EventKind{Event::kTaskHung, "task_hung", "task pid silent_s",
              "A launcher kills a task that answers no more.", kWarning, "a task hangs"},
    EventKind{Event::kTaskDown, "task_down", "task pid why signal",
              "The process of a task has ended, as its launcher sees it.", kWarning,
              "a task has ended"},
    EventKind{Event::kTaskRestarted, "task_restarted", "task address pid",
              "A launcher has started a task again.", kWarning, ""},
    EventKind{Event::kTaskLost, "task_lost", "task session why",
              "A master's connection to a task has ended before its session.", kWarning,
              "task lost"},
    EventKind{Event::kTaskFound, "task_found", "task seconds is_restarted",
              "A master has a session with a task again that it had lost.", kInfo, "task found"},
    EventKind{Event::kWorkerLost, "worker_lost", "worker error",
              "A coordinator, or a training, goes on without a worker until it is back.", kInfo,
              "worker lost"},
    EventKind{Event::kSessionMade, "session_made",
              "session client protocol waits_for_pushes pull_prefetch_ms",
              "A client has a session at this master.", kInfo, "session made"},
    EventKind{Event::kSessionEnded, "session_ended", "session seconds why",
              "A session has ended; why: its client closed it, or what ended it.", kInfo,
              "session ended"},
    EventKind{Event::kJobBegun, "job_begun", "job lease by take_over",
              "A program holds the lease of a job.", kInfo, "job began"},
    EventKind{Event::kJobEnded, "job_ended", "job lease by", "A program has given a lease back.",
              kInfo, "job ended"},
    EventKind{Event::kJobLost, "job_lost", "job lease by",
              "The program that held a lease has gone without giving it back.", kWarning,
              "job lost"},
    EventKind{Event::kJobTakenOver, "job_taken_over", "job lease by from",
              "A program has ended the job of another one, or what that left.", kWarning,
              "job taken over"},
    EventKind{Event::kCheckpointBegun, "checkpoint_begun", "prefix",
              "A checkpoint is being written.", kInfo, ""},
    EventKind{Event::kCheckpointWritten, "checkpoint_written", "prefix seconds",
              "A checkpoint is complete on disk.", kInfo, ""},
    EventKind{Event::kCheckpointFailed, "checkpoint_failed", "prefix seconds why",
              "A checkpoint could not be written; older ones are as they were.", kWarning, ""},
    EventKind{Event::kRestoreBegun, "restore_begun", "task prefix",
              "What a task has lost is read from a checkpoint.", kInfo, ""},
    EventKind{Event::kRestoreDone, "restore_done",
              "task prefix variables rows bytes seconds rows_again",
              "A task that was lost has the values of a checkpoint again.", kWarning, ""},
    EventKind{
        Event::kPushesLost, "pushes_lost", "task pushes rows is_exact steps",
        "Pushes that a task had taken since that checkpoint; is_exact false: at least so many.",
        kWarning, ""},
    EventKind{Event::kClosureRetried, "closure_retried", "closure worker run",
              "A closure runs again, as its worker was lost or it may.", kInfo, ""},
    EventKind{Event::kFollowerAttached, "follower_attached", "follower lane",
              "A follower reads the change log of a lane.", kInfo, ""},
    EventKind{Event::kFollowerCutOff, "follower_cut_off", "follower lane why",
              "A follower was too slow or silent, and has to ask again.", kWarning, ""},
    EventKind{Event::kStandbyInSync, "standby_in_sync", "standby lane",
              "Pushes to a lane wait for a synchronous standby from here on.", kInfo,
              "pushes wait for a standby"},
    EventKind{Event::kStandbyLost, "standby_lost", "standby lane why",
              "Pushes to a lane are answered without a standby that they have waited for.",
              kWarning, "pushes are answered without a standby"},
    EventKind{Event::kPushesWait, "pushes_wait", "task standbys",
              "Pushes have waited for long for standbys, of which too few are in sync.", kWarning,
              "pushes wait until min_insync_replicas have them"},
    EventKind{Event::kStandbyTaken, "standby_taken", "task standby variables rows bytes seconds",
              "A task that was started again has what its standby had, and lets sessions in.",
              kInfo, "it has its variables from its standby"},
    EventKind{Event::kTaskDeposed, "task_deposed", "task by told_by",
              "A later start of a task counts in its place: this one refuses everything, and ends.",
              LogLevel::kError, "a later start of the task has taken its place, and this one ends"},
    EventKind{Event::kLeaseHeld, "lease_held", "task view seconds",
              "A majority of voters says that this start of a task counts, in that view; it had "
              "waited so long for that.",
              kInfo, ""},
    EventKind{
        Event::kLeaseLost, "lease_lost", "task view voters",
        "A task has not heard from a majority of voters in time, and answers nothing until it "
        "has.",
        kWarning, "it answers nothing until a majority of voters says that it counts"},
    EventKind{Event::kLeaseLapsed, "lease_lapsed", "task start seconds",
              "A voter has not heard of a start of a task for so long that another one may count.",
              kWarning, "a task stands still, is cut off, or has ended"},
    EventKind{Event::kMoveBegun, "move_begun", "job command parts bytes ps",
              "Parts of a model's variables begin to move, so that it is on so many ps.", kInfo,
              ""},
    EventKind{Event::kMoveDone, "move_done", "job command parts bytes ps seconds paused_s",
              "Parts have moved; training stood still for paused_s of these seconds.", kInfo, ""},
    EventKind{Event::kMoveFailed, "move_failed", "job command why",
              "A command to move parts was refused or cancelled, or failed: all is as before.",
              kWarning, ""},
};

constexpr bool are_in_order() {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (static_cast<size_t>(kKinds[i].event) != i) return false;
  }
  return kKinds.size() == static_cast<size_t>(Event::kMoveFailed) + 1;
}
static_assert(are_in_order());

/// The events of the process, and where they go. Guarded by its mutex.
struct Events {
  std::mutex mutex;
  uint64_t count = 0;
  std::deque<std::string> latest;
  std::vector<std::shared_ptr<EventSink>> sinks;
};

Events& events() {
  static Events* const all = new Events;  // Threads may emit until the process is gone.
  return *all;
}

/// "2026-01-31T12:03:04.567890+01:00"
std::string now_text() {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const std::time_t seconds = now / 1'000'000;
  std::tm local = {};
  localtime_r(&seconds, &local);
  const int64_t minutes = local.tm_gmtoff / 60;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}{}{:02}:{:02}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     now % 1'000'000, minutes < 0 ? '-' : '+', std::abs(minutes) / 60,
                     std::abs(minutes) % 60);
}

std::string json_of(const EventField::Value& value) {
  if (const bool* const flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* const number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* const number = std::get_if<double>(&value)) {
    return std::isfinite(*number) ? fmt::format("{:.6g}", *number) : "null";
  }
  return json_text(message_text(std::get<std::string>(value), kTextBytesMax));
}

/// As the lines of the log have values: plain where that can be read.
std::string text_of(const EventField::Value& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) {
    const bool is_plain = !text->empty() && std::ranges::none_of(*text, [](char c) {
      return c == '"' || c == ' ' || static_cast<unsigned char>(c) < 0x20;
    });
    return is_plain ? *text : "\"" + *text + "\"";
  }
  return json_of(value);
}

}  // namespace

EventField::EventField(std::string field_name, std::chrono::duration<double> time)
    : EventField(std::move(field_name), std::round(time.count() * 1000) / 1000) {}

std::span<const EventKind> event_kinds() { return kKinds; }

const EventKind* find_event(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kKinds, [name](const EventKind& kind) { return kind.name == name; });
  return found == kKinds.end() ? nullptr : found;
}

void emit(const EventSource& source, Event event, const EventFields& fields,
          const std::string& said) {
  const EventKind& kind = kKinds[static_cast<size_t>(event)];
  const size_t count = std::min(fields.size(), kFieldsMax);
  if (source.logs && (!said.empty() || *kind.said != '\0')) {
    std::string line = said.empty() ? kind.said : said;
    for (size_t i = 0; said.empty() && i < count; ++i) {
      line += " " + fields[i].name + "=" + text_of(fields[i].value);
    }
    log_line(kind.level, line);
  }
  std::string json;
  for (size_t i = 0; i < count; ++i) {
    json += fmt::format("{}{}:{}", i == 0 ? "" : ",",
                        json_text(message_text(fields[i].name, kTextBytesMax)),
                        json_of(fields[i].value));
  }
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  std::string line = fmt::format(
      R"({{"ts":"{}","task":{},"incarnation":"{:016x}","seq":{},"event":"{}","fields":{{{}}}}})",
      now_text(), json_text(source.task), source.incarnation, ++all.count, kind.name, json);
  for (const auto& sink : all.sinks) (*sink)(line + "\n");
  all.latest.push_back(std::move(line));
  if (all.latest.size() > kEventsKept) all.latest.pop_front();
}

std::vector<std::string> recent_events(size_t count) {
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  const auto taken = static_cast<std::ptrdiff_t>(std::min(count, all.latest.size()));
  return {all.latest.end() - taken, all.latest.end()};
}

EventSinkRegistration::EventSinkRegistration(EventSink sink)
    : sink_(std::make_shared<EventSink>(std::move(sink))) {
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  all.sinks.push_back(sink_);
}

EventSinkRegistration::~EventSinkRegistration() {
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  std::erase(all.sinks, sink_);
}

}  // namespace sidereal::base
