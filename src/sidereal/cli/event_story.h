#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

/// What tasks tell in their event logs, as one story.
namespace sidereal::cli {

/// One event, as it was read. Value type.
struct StoryEvent {
  int64_t time_us = 0;  ///< Since 1970.
  std::string task;     ///< "/job:ps/task:0", "client".
  int64_t number = 0;   ///< Of its process, which only grows.
  std::string event;
  std::string fields;  ///< As people read them: "why=... signal=9".
  std::string line;    ///< As JSON.
};

/// kDataLoss for a line that is no event: half a line, or something else.
Result<StoryEvent> parse_event(std::string_view line);

/// The events of `lines` by time, each once, of those after `since_us`; lines that are none are
/// left out.
std::vector<StoryEvent> story_of(const std::vector<std::string>& lines, int64_t since_us = 0);

/// A line for people, without its end: time in this machine's zone, task, event, fields.
std::string format_event(const StoryEvent& event);

/// The lines of an event log and of the file before it, FILE.1; of a folder those of all event logs
/// in it. kNotFound when there is none.
Result<std::vector<std::string>> read_event_log(const std::string& path);

/// "90s", "10m", "2h", "1d", as seconds; kInvalidArgument for anything else.
Result<double> parse_age(const std::string& text);

}  // namespace sidereal::cli
