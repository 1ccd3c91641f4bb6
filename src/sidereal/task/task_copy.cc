#include "sidereal/task/task_copy.h"

#include <algorithm>

#include "sidereal/sys/clock.h"
#include "sidereal/task/task.h"

namespace sidereal::task {

using resources::LogPosition;

namespace {

/// A stream that has brought nothing for so long is broken: a lane says four times a second that
/// nothing is new, but while it computes one step.
constexpr int64_t kSilence = 10 * sys::kSecond;
/// Before a stream that has ended is opened again.
constexpr int64_t kAgain = 250 * sys::kMillisecond;
/// Starts of a task that are known to be deposed, at most.
constexpr size_t kDeposedKept = 256;

}  // namespace

TaskCopy::TaskCopy(Options options)
    : options_(std::move(options)), replica_(options_.bytes_max, options_.names), lanes_(1) {}

TaskCopy::Lane* TaskCopy::find(int lane, const CopyStream* stream) {
  // The task had more lanes before.
  if (lane < 0 || static_cast<size_t>(lane) >= lanes_.size()) return nullptr;
  Lane& at = lanes_[static_cast<size_t>(lane)];
  return at.stream.get() == stream ? &at : nullptr;
}

TaskCopy::Streams TaskCopy::silent(int64_t now) {
  Streams out;
  if (holders_ > 0) return out;
  for (const Lane& lane : lanes_) {
    if (lane.stream == nullptr || now - lane.heard < kSilence) continue;
    broke(base::deadline_exceeded("{} at {} has said nothing for {} s", options_.task,
                                  options_.address, kSilence / sys::kSecond));
    out.push_back(lane.stream);
  }
  return out;
}

std::vector<int> TaskCopy::due(int64_t now) const {
  std::vector<int> out;
  if (holders_ > 0) return out;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (lane.stream == nullptr && now >= lane.again.value_or(now)) {
      out.push_back(static_cast<int>(i));
    }
  }
  return out;
}

std::optional<LogPosition> TaskCopy::open(int lane, Stream stream, int64_t now) {
  Lane& at = lanes_[static_cast<size_t>(lane)];
  at.stream = std::move(stream);
  at.heard = now;
  at.is_started = false;
  at.is_in_sync = false;
  ++open_;
  if (at.wants_all) return std::nullopt;
  return replica_.position(lane);
}

uint64_t TaskCopy::started() {
  for (Lane& lane : lanes_) lane.is_started = lane.stream != nullptr;
  return wanted_mark_;
}

TaskCopy::Streams TaskCopy::ask(uint64_t mark) {
  wanted_mark_ = std::max(wanted_mark_, mark);
  Streams out;
  for (const Lane& lane : lanes_) {
    if (lane.stream != nullptr && lane.is_started) out.push_back(lane.stream);
  }
  return out;
}

bool TaskCopy::is_here(uint64_t mark) const {
  return is_whole() && (is_in_sync() || !options_.is_synchronous) &&
         std::ranges::all_of(lanes_, [mark](const Lane& lane) { return lane.marked >= mark; });
}

bool TaskCopy::is_in_sync() const {
  return std::ranges::all_of(
      lanes_, [](const Lane& lane) { return lane.stream != nullptr && lane.is_in_sync; });
}

TaskCopy::Taken TaskCopy::take(int lane, const CopyStream* stream, const LaneSays& said,
                               int64_t now) {
  Taken out;
  Lane* at = find(lane, stream);
  if (at == nullptr) {
    out.is_read = false;
    return out;
  }
  at->heard = now;
  if (said.begun.has_value()) {
    if (heir_of(said.begun->life) != 0) {
      broke(
          base::aborted("{} was started again, and the start before is there yet", options_.task));
      out.is_read = false;
      return out;
    }
    life_ = said.begun->life;
    begin(stream, said.begun->lanes, &out.ending);
    at = find(lane, stream);
    if (at == nullptr) return out;
    at->incarnation = said.begun->incarnation;
    at->mark = 0;
  } else {
    take_entry(lane, said, &out.ending);
  }
  const std::optional<LogPosition> position = replica_.shown_position(lane);
  // Where an entry was refused the stream ends, and what comes yet must not be acknowledged.
  if (position.has_value() && position->incarnation == at->incarnation && !at->wants_all) {
    out.applied = position->cut;
  }
  at->is_in_sync |= said.is_in_sync;
  return out;
}

bool TaskCopy::failed(int lane, const CopyStream* stream, const Status& why, int64_t now) {
  Lane* const at = find(lane, stream);
  if (at == nullptr) return false;
  at->heard = now;
  broke(base::with_context(why, options_.task));
  return true;
}

void TaskCopy::begin(const CopyStream* stream, int lanes, Streams* ending) {
  const auto count = static_cast<size_t>(std::clamp(lanes, 1, Task::kLanesMax));
  if (count < lanes_.size()) {
    // It was started anew with fewer: nothing of what is here is of this start.
    for (const Lane& one : lanes_) {
      if (one.stream.get() != stream && one.stream != nullptr) ending->push_back(one.stream);
    }
    replica_.forget();
  }
  lanes_.resize(count);
}

void TaskCopy::take_entry(int lane, const LaneSays& said, Streams* ending) {
  Lane& at = lanes_[static_cast<size_t>(lane)];
  at.end = said.end;
  if (said.mark != 0) {
    at.mark = said.mark;
    at.mark_end = said.end;
  }
  if (!said.entry.empty()) {
    const Status applied = replica_.apply(said.entry);
    if (!applied.ok()) {
      broke(base::with_context(applied, options_.task));
      at.wants_all = true;
      ending->push_back(at.stream);
      return;
    }
  }
  const std::optional<LogPosition> position = replica_.shown_position(lane);
  if (!position.has_value() || position->incarnation != at.incarnation) return;
  is_mended_ = true;
  if (position->cut >= at.mark_end) at.marked = std::max(at.marked, at.mark);
  if (position->cut != at.end) return;
  at.wants_all = false;
  at.current = at.heard;
}

void TaskCopy::ended(int lane, const CopyStream* stream, const Status& why, int64_t now) {
  --open_;
  Lane* const at = find(lane, stream);
  if (at == nullptr) return;
  at->stream = nullptr;
  at->is_in_sync = false;
  at->again = now + kAgain;
  if (!why.ok() && why.code() != StatusCode::kCancelled) broke(why);
}

bool TaskCopy::is_whole() const {
  std::optional<uint64_t> incarnation;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::optional<LogPosition> position = replica_.shown_position(static_cast<int>(i));
    if (!position.has_value() || !lanes_[i].current.has_value()) return false;
    if (position->incarnation != incarnation.value_or(position->incarnation)) return false;
    incarnation = position->incarnation;
  }
  return true;
}

Status TaskCopy::why_not_whole() const {
  if (is_whole()) return {};
  if (status_.ok()) return base::unavailable("{} is not here as a whole", options_.task);
  return base::unavailable("{} is not here as a whole: {}: {}", options_.task,
                           base::code_name(status_.code()), base::message_of(status_));
}

uint64_t TaskCopy::cuts_behind() const {
  uint64_t out = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::optional<LogPosition> position = replica_.position(static_cast<int>(i));
    if (position.has_value() && lanes_[i].end > position->cut) {
      out = std::max(out, lanes_[i].end - position->cut);
    }
  }
  return out;
}

int64_t TaskCopy::behind_ns(int64_t now) const {
  int64_t out = 0;
  for (const Lane& lane : lanes_) {
    if (lane.current.has_value()) out = std::max(out, now - *lane.current);
  }
  return out;
}

TaskCopy::Streams TaskCopy::streams() const {
  Streams out;
  for (const Lane& lane : lanes_) {
    if (lane.stream != nullptr) out.push_back(lane.stream);
  }
  return out;
}

TaskCopy::Streams TaskCopy::hold(uint64_t life) {
  ++holders_;
  // The one that was followed; and the one that took it last, which may never have been.
  std::erase_if(deposed_, [life](const auto& one) { return one.first == life; });
  for (const uint64_t before : {life_, std::exchange(taken_by_, life)}) {
    if (before == 0 || before == life || heir_of(before) != 0) continue;
    if (deposed_.size() == kDeposedKept) deposed_.erase(deposed_.begin());
    deposed_.emplace_back(before, life);
  }
  Streams ending;
  for (Lane& lane : lanes_) {
    // What it brings from here on is dropped.
    if (lane.stream != nullptr) ending.push_back(std::exchange(lane.stream, nullptr));
    lane.is_in_sync = false;
  }
  return ending;
}

uint64_t TaskCopy::heir_of(uint64_t life) const {
  const auto found = std::ranges::find(deposed_, life, &std::pair<uint64_t, uint64_t>::first);
  return found == deposed_.end() ? 0 : found->second;
}

}  // namespace sidereal::task
