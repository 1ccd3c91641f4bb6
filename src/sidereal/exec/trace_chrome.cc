#include <fmt/format.h>

#include <set>

#include "sidereal/exec/trace.h"

namespace sidereal::exec {
namespace {

/// A JSON string. Bytes from 128 on stand for themselves.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Chrome's microseconds, which may have fractions.
std::string micros(int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

std::string values_text(const std::vector<TraceValue>& values) {
  std::string out;
  for (const TraceValue& value : values) {
    if (!out.empty()) out += ", ";
    out += value.dtype == tensor::DType::kInvalid
               ? std::string("nothing")
               : std::string(tensor::name_of(value.dtype)) + value.shape.to_string();
  }
  return out;
}

uint64_t total_bytes(const std::vector<TraceValue>& values) {
  uint64_t bytes = 0;
  for (const TraceValue& value : values) bytes += value.bytes;
  return bytes;
}

struct Shown {
  std::string name;
  const char* category;
};

Shown shown_as(const TraceEvent& event) {
  switch (event.kind) {
    case TraceEvent::Kind::kOp:
      return {event.op, "op"};
    case TraceEvent::Kind::kControl:
      return {event.op, "control"};
    case TraceEvent::Kind::kSend:
      return {"send to " + event.device, "send"};
    case TraceEvent::Kind::kWait:
      return {"wait for " + event.device, "wait"};
    case TraceEvent::Kind::kStep:
      break;
  }
  return {event.op, "step"};
}

std::string args_of(const TraceEvent& event) {
  std::string out = fmt::format("\"step\": {}", event.step);
  if (event.kind == TraceEvent::Kind::kStep) return out;
  out += fmt::format(
      ", \"node\": {}, \"inputs\": {}, \"input_bytes\": {}, \"outputs\": {}, \"output_bytes\": {}",
      quoted(event.name), quoted(values_text(event.inputs)), total_bytes(event.inputs),
      quoted(values_text(event.outputs)), total_bytes(event.outputs));
  if (event.call >= 0) out += fmt::format(", \"call\": {}", event.call);
  if (event.kind == TraceEvent::Kind::kWait) {
    out += fmt::format(", \"waited_us\": {}, \"round_trip_us\": {}",
                       micros(event.end_ns - event.begin_ns),
                       micros(event.answered_ns - event.sent_ns));
  }
  return out;
}

}  // namespace

std::string to_chrome(const std::vector<TraceEvent>& events, const ChromeOptions& options) {
  std::vector<std::string> lines;
  std::set<int32_t> tracks;
  for (const TraceEvent& event : events) {
    tracks.insert(event.track);
    const Shown shown = shown_as(event);
    lines.push_back(fmt::format(
        R"({{"ph": "X", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "name": {}, "cat": "{}", )"
        R"("args": {{{}}}}})",
        options.process, event.track, micros(event.begin_ns + options.offset_ns),
        micros(event.end_ns - event.begin_ns), quoted(shown.name), shown.category, args_of(event)));
    if (event.kind != TraceEvent::Kind::kWait) continue;
    const std::string to = quoted("call to " + event.device);
    const std::string id = fmt::format("{}.{}.{}", options.process, event.step, event.call);
    for (const bool begins : {true, false}) {
      lines.push_back(fmt::format(
          R"({{"ph": "{}", "pid": {}, "tid": {}, "ts": {}, "name": {}, "cat": "call", )"
          R"("id": "{}", "args": {{}}}})",
          begins ? "b" : "e", options.process, event.track,
          micros((begins ? event.sent_ns : event.answered_ns) + options.offset_ns), to, id));
    }
  }
  if (!options.process_name.empty() && !events.empty()) {
    lines.push_back(
        fmt::format(R"({{"ph": "M", "pid": {}, "name": "process_name", "args": {{"name": {}}}}})",
                    options.process, quoted(options.process_name)));
    for (const int32_t track : tracks) {
      lines.push_back(fmt::format(R"({{"ph": "M", "pid": {}, "tid": {}, "name": "thread_name", )"
                                  R"("args": {{"name": "steps {}"}}}})",
                                  options.process, track, track));
    }
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string chrome_file(const std::vector<std::string>& elements) {
  std::string out = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  bool first = true;
  for (const std::string& text : elements) {
    if (text.empty()) continue;
    if (!first) out += ",\n";
    first = false;
    out += text;
  }
  return out + "\n]}\n";
}

}  // namespace sidereal::exec
