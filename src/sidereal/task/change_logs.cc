#include "sidereal/task/change_logs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "sidereal/base/hash.h"
#include "sidereal/sys/clock.h"
#include "sidereal/task/origin.h"
#include "sidereal/task/task_lane.h"

namespace sidereal::task {

using resources::ChangeLog;
using resources::ChangeSnapshot;
using resources::LogPosition;

namespace {

/// How long logs without a reader stay open.
constexpr int64_t kOpenUnread = 60 * sys::kSecond;
/// Of a piece of a snapshot.
constexpr size_t kPieceBytes = size_t{256} << 10;
/// What one reader is given of the log before the lane goes on with its steps; of a snapshot it is
/// a piece.
constexpr size_t kTurnBytes = size_t{1} << 20;
/// A reader is told this often that nothing is new.
constexpr int64_t kTellEnd = 250 * sys::kMillisecond;
constexpr int64_t kCutMin = 1 * sys::kMillisecond;
constexpr int64_t kCutMax = 10 * sys::kSecond;
constexpr size_t kWindowMin = size_t{64} << 10;
constexpr size_t kWindowMax = size_t{256} << 20;
/// Of a log, at least; and what part of the variables of a lane is more than that: entries are kept
/// while a snapshot of these is sent.
constexpr size_t kLogBytesMin = size_t{64} << 20;
constexpr size_t kLogPart = 2;
/// Of an entry for a reader that comes back: of more a snapshot costs the lane less.
constexpr size_t kUnreadBytesMax = size_t{16} << 20;
/// A standby that is so few cuts behind has caught up.
constexpr uint64_t kNearCuts = 8;
/// What is late is looked for when cuts are made: so often in the time that a standby has.
constexpr int64_t kLooks = 4;

}  // namespace

/// Reads one log. Thread: the lane, but for what ChangesReader says.
class LaneChanges::Reader final : public ChangesReader,
                                  public std::enable_shared_from_this<Reader> {
 public:
  Reader(ChangesWanted wanted, std::shared_ptr<OpenLogs> logs, TaskLane* lane,
         std::shared_ptr<ChangesSink> sink)
      : wanted(std::move(wanted)), logs(std::move(logs)), lane(lane), sink(std::move(sink)) {}

  void took(uint64_t bytes, uint64_t cut) override {
    static_cast<void>(lane->post([self = shared_from_this(), bytes, cut] {
      if (self->has_ended) return;
      self->heard = self->lane->lane()->now();
      self->has_told_end = false;
      self->taken = std::clamp(bytes, self->taken, self->given);
      self->lane->changes()->go_on(self.get());
      if (self->has_ended || !self->has_begun) return;
      self->applied = std::max(self->applied, std::min(cut, self->position.cut));
      if (self->wanted.is_synchronous) self->lane->changes()->acknowledged(self.get());
    }));
  }
  void ask(uint64_t mark) override {
    static_cast<void>(lane->post([self = shared_from_this(), mark] { self->mark = mark; }));
  }
  void cancel() override {
    static_cast<void>(lane->post([self = shared_from_this()] {
      self->lane->changes()->remove(self.get(), base::cancelled("nobody reads it any more"));
    }));
  }

  const ChangesWanted wanted;
  const std::shared_ptr<OpenLogs> logs;
  TaskLane* const lane;
  const std::shared_ptr<ChangesSink> sink;
  ChangeLogs* of_task = nullptr;
  std::unique_ptr<ChangeSnapshot> snapshot;  ///< That is being sent.
  LogPosition position;                      ///< What was given ends there, or the snapshot.
  uint64_t given = 0;                        ///< Bytes, of these
  uint64_t taken = 0;                        ///< so many were taken.
  uint64_t snapshot_end = 0;                 ///< Bytes that were given with the snapshot's last.
  uint64_t applied = 0;                      ///< The cut up to which the reader has everything.
  int64_t heard = 0;                         ///< When the reader last said something;
  int64_t told = 0;                          ///< was last told something.
  uint64_t mark = 0;                         ///< That it asked for and was not told.
  bool has_begun = false;
  int64_t in_sync_since = 0;  ///< As time_run().
  bool is_in_sync = false;    ///< Pushes wait for it,
  uint64_t answered_end = 0;  ///< and this cut has those that were answered before;
  bool has_answered = false;  ///< it has them too, and was told that it is in sync.
  bool has_told_end = false;  ///< And has not heard of it.
  bool goes_on = false;       ///< Soon.
  bool has_ended = false;
};

Result<std::shared_ptr<ChangesReader>> ChangeLogs::read(const ChangesWanted& wanted,
                                                        std::shared_ptr<Container> container,
                                                        std::shared_ptr<ChangesSink> sink) {
  if (wanted.lane < 0 || static_cast<size_t>(wanted.lane) >= lanes_.size()) {
    return base::invalid_argument("there is no lane {}: the task has {}", wanted.lane,
                                  lanes_.size());
  }
  ChangesWanted bounded = wanted;
  bounded.cut_ns = std::clamp(wanted.cut_ns, kCutMin, kCutMax);
  TaskLane* const lane = lanes_[static_cast<size_t>(wanted.lane)].get();
  if (wanted.is_synchronous) {
    bounded.cut_ns =
        std::clamp(lane->changes()->standby_timeout() / kLooks, kCutMin, bounded.cut_ns);
  }
  bounded.window_bytes = std::clamp(wanted.window_bytes, kWindowMin, kWindowMax);
  auto reader = std::make_shared<LaneChanges::Reader>(
      std::move(bounded), enter(std::move(container)), lane, std::move(sink));
  if (lane->post([this, reader] { reader->lane->changes()->add(reader, this); })) return reader;
  return is_stopping("the task");
}

std::shared_ptr<OpenLogs> ChangeLogs::enter(std::shared_ptr<Container> container) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<OpenLogs>& logs = opened(container);
  ++logs->readers;
  ++logs->times_read;
  return logs;
}

std::shared_ptr<OpenLogs> ChangeLogs::keep(const std::shared_ptr<Container>& container) {
  const std::lock_guard lock(mutex_);
  // Those of a container that was kept for longer than its sessions.
  for (const auto& [key, logs] : std::map(open_)) {
    if (logs->readers == 0 && logs->container->ended.load(std::memory_order_acquire)) close(logs);
  }
  const std::shared_ptr<OpenLogs>& logs = opened(container);
  logs->is_kept = true;
  return logs;
}

/// With the mutex.
std::shared_ptr<OpenLogs>& ChangeLogs::opened(const std::shared_ptr<Container>& container) {
  std::shared_ptr<OpenLogs>& logs = open_[container.get()];
  if (logs != nullptr) return logs;
  logs = std::make_shared<OpenLogs>();
  // The task's is random, and another one at each start.
  const std::array<uint64_t, 2> opening = {incarnation_, ++openings_};
  logs->group =
      std::make_shared<resources::LogGroup>(base::hash64(opening.data(), sizeof(opening)));
  logs->counts = counts_;
  logs->lanes = &lanes_;
  logs->missing = static_cast<int>(lanes_.size());
  logs->container = container;
  for (const auto& lane : lanes_) {
    static_cast<void>(lane->post([lane = lane.get(), logs] { lane->changes()->open(logs); }));
  }
  return logs;
}

void ChangeLogs::leave(const std::shared_ptr<OpenLogs>& logs, TaskLane* lane) {
  const std::lock_guard lock(mutex_);
  if (--logs->readers > 0) return;
  lane->lane()->run_after(kOpenUnread,
                          [this, logs, seen = logs->times_read] { close_unread(logs, seen); });
}

void ChangeLogs::close_unread(const std::shared_ptr<OpenLogs>& logs, uint64_t times_read) {
  const std::lock_guard lock(mutex_);
  if (logs->times_read != times_read) return;
  if (logs->is_kept && !logs->container->ended.load(std::memory_order_acquire)) return;
  close(logs);
}

void ChangeLogs::end(const Container& container) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(&container);
  if (found != open_.end() && found->second->readers == 0) close(std::shared_ptr(found->second));
}

/// With the mutex.
void ChangeLogs::close(const std::shared_ptr<OpenLogs>& logs) {
  open_.erase(logs->container.get());
  for (const auto& lane : lanes_) {
    static_cast<void>(
        lane->post([lane = lane.get(), logs] { lane->changes()->close(logs.get()); }));
  }
}

LaneChanges::~LaneChanges() = default;

std::shared_ptr<LaneChanges::Open> LaneChanges::find(const OpenLogs* logs) const {
  const auto is_it = [logs](const auto& one) { return one->logs.get() == logs; };
  const auto found = std::ranges::find_if(open_, is_it);
  return found == open_.end() ? nullptr : *found;
}

std::shared_ptr<LaneChanges::Open> LaneChanges::find(const Container& container) const {
  const auto is_it = [&](const auto& one) { return one->logs->container.get() == &container; };
  const auto found = std::ranges::find_if(open_, is_it);
  return found == open_.end() ? nullptr : *found;
}

/// Once, of two that ask for it.
void LaneChanges::open(const std::shared_ptr<OpenLogs>& logs) {
  if (find(logs.get()) != nullptr) return;
  open_.push_back(std::make_shared<Open>(
      Open{.logs = logs,
           .log = ChangeLog::open(
               {.lane = lane_->index(), .bytes_max = kLogBytesMin, .counts = logs->counts},
               logs->group, &logs->container->manager)}));
  logs_.push_back(open_.back()->log.get());
  // Of a step that is under way: what was counted was without this one.
  mark();
  --logs->missing;
}

void LaneChanges::close(const OpenLogs* logs) {
  const std::shared_ptr<Open> open = find(logs);
  if (open == nullptr) return;
  open->log->close();
  std::erase(logs_, open->log.get());
  std::erase(open_, open);
  mark();
  count();
}

/// Sets what is so now.
void LaneChanges::count() {
  int64_t readers = 0;
  uint64_t cuts = 0;
  uint64_t bytes = 0;
  size_t kept = 0;
  int64_t standbys = 0;
  for (const auto& open : open_) {
    kept += open->log->kept_bytes();
    const uint64_t end = open->log->end().cut;
    for (const auto& reader : open->readers) {
      ++readers;
      standbys += reader->has_answered ? 1 : 0;
      bytes += reader->given - reader->taken;
      // Until it has begun it is behind nothing.
      if (reader->has_begun) cuts += end - std::min(end, reader->position.cut);
    }
  }
  readers_.set(readers);
  standbys_.set(standbys);
  cuts_behind_.set(static_cast<int64_t>(cuts));
  untaken_.set(static_cast<int64_t>(bytes));
  kept_.set(static_cast<int64_t>(kept));
}

void LaneChanges::stop(const Status& why) {
  for (const auto& open : std::vector(open_)) {
    for (const auto& reader : std::vector(open->readers)) remove(reader.get(), why);
    close(open->logs.get());
  }
}

void LaneChanges::add(const std::shared_ptr<Reader>& reader, ChangeLogs* of_task) {
  const std::shared_ptr<Open> open = find(reader->logs.get());
  reader->of_task = of_task;
  if (open == nullptr) {
    reader->has_ended = true;
    return reader->sink->ended(is_stopping("the task"));
  }
  reader->heard = lane_->lane()->now();
  open->log->keep_up_to(static_cast<size_t>(reader->logs->container->manager.bytes()) /
                        reader->logs->lanes->size() / kLogPart);
  open->readers.push_back(reader);
  count();
  cut_later();
}

void LaneChanges::remove(Reader* reader, const Status& why) {
  if (std::exchange(reader->has_ended, true)) return;
  reader->snapshot.reset();
  reader->sink->ended(why);
  reader->of_task->leave(reader->logs, lane_);
  const std::shared_ptr<Open> open = find(reader->logs.get());
  if (std::exchange(reader->is_in_sync, false)) --reader->logs->standbys;
  reader->has_answered = false;
  std::erase_if(open->readers, [reader](const auto& one) { return one.get() == reader; });
  release(open);
  const StatusCode code = why.code();
  if (code == StatusCode::kOutOfRange || code == StatusCode::kDeadlineExceeded) cut_off_.add();
  count();
}

/// After the shortest time that any reader wants.
void LaneChanges::cut_later() {
  if (is_going_to_cut_) return;
  int64_t soonest = std::numeric_limits<int64_t>::max();
  for (const auto& open : open_) {
    for (const auto& reader : open->readers) {
      // Until all lanes have opened theirs, which they do between steps.
      soonest = std::min(soonest, reader->has_begun ? reader->wanted.cut_ns : kCutMin);
    }
  }
  if (soonest == std::numeric_limits<int64_t>::max()) return;
  is_going_to_cut_ = true;
  // Timers are also due within a step, and a cut is between two.
  lane_->lane()->run_after(soonest, [this] {
    static_cast<void>(lane_->post([this] {
      is_going_to_cut_ = false;
      cut();
      count();
      cut_later();
    }));
  });
}

void LaneChanges::cut(Open* open) {
  const auto reads = [](const auto& one) { return one->has_begun; };
  // Since the last reader left there was no cut.
  const bool is_much = open->log->pending_bytes() > kUnreadBytesMax;
  if (is_much && std::ranges::none_of(open->readers, reads)) return open->log->skip();
  open->log->cut();
}

void LaneChanges::cut() {
  const int64_t now = lane_->lane()->now();
  static_cast<void>(time_run());
  for (const auto& open : std::vector(open_)) {
    if (open->readers.empty()) continue;
    cut(open.get());
    for (const auto& reader : std::vector(open->readers)) {
      if (open->logs->container->ended.load(std::memory_order_acquire)) {
        remove(reader.get(), base::not_found("the sessions of the group have ended"));
        continue;
      }
      if (now - reader->heard > kReaderSilenceNs) {
        remove(reader.get(), base::deadline_exceeded("the reader has said nothing for {} s",
                                                     kReaderSilenceNs / sys::kSecond));
        continue;
      }
      if (is_late(*open, *reader)) {
        remove(reader.get(),
               base::deadline_exceeded("the standby has acknowledged cut {} and not {} in {} ms",
                                       reader->applied, open->held.front().cut,
                                       standby_timeout_ / sys::kMillisecond));
        continue;
      }
      go_on(reader.get());
      if (!reader->has_begun || reader->has_ended || reader->has_told_end) continue;
      if (reader->mark == 0 && now - reader->told < kTellEnd) continue;
      reader->has_told_end = true;
      reader->told = now;
      reader->sink->at(open->log->end().cut, std::exchange(reader->mark, 0));
    }
  }
}

/// How long the lane has run: a process that was stopped has not heard of its standbys, and they
/// have not been late.
int64_t LaneChanges::time_run() {
  const int64_t now = lane_->lane()->now();
  const int64_t most = standby_timeout_ / kLooks * 2;
  run_ += looked_ == 0 ? 1 : std::clamp<int64_t>(now - looked_, 0, most);
  looked_ = now;
  return run_;
}

/// Whether what waits has waited for this standby for too long.
bool LaneChanges::is_late(const Open& open, const Reader& reader) const {
  if (!reader.is_in_sync || open.held.empty()) return false;
  const Held& first = open.held.front();
  // It may have waited for another one before.
  const int64_t since = std::max(first.given, reader.in_sync_since);
  return first.given != 0 && first.cut > reader.applied && run_ - since > standby_timeout_;
}

/// A standby has said what it has.
void LaneChanges::acknowledged(Reader* reader) {
  const std::shared_ptr<Open> open = find(reader->logs.get());
  if (!reader->is_in_sync) {
    const uint64_t end = open->log->end().cut;
    if (reader->snapshot != nullptr || reader->taken < reader->snapshot_end) return;
    if (end - std::min(end, reader->applied) > kNearCuts) return;
    reader->is_in_sync = true;
    reader->in_sync_since = time_run();
    ++reader->logs->standbys;
    reader->answered_end = open->log->cut().cut;
    go_on(reader);
    if (reader->has_ended) return;
  }
  if (!reader->has_answered && reader->applied >= reader->answered_end) {
    reader->has_answered = true;
    count();
    reader->sink->in_sync(reader->answered_end);
  }
  release(open);
}

bool LaneChanges::has_standby(const Container& container) const {
  if (standbys_min_ > 0 && !container.is_own) return true;
  if (open_.empty()) return false;
  const std::shared_ptr<Open> open = find(container);
  return open != nullptr && open->logs->standbys.load(std::memory_order_acquire) > 0;
}

void LaneChanges::when_acknowledged(const Container& container, std::span<const int> changed,
                                    std::function<void()> then) {
  struct Waiting {
    size_t missing = 0;
    std::function<void()> then;
  };
  const std::shared_ptr<Open> open = find(container);
  if (open == nullptr || changed.empty()) return then();
  // Changed by this lane only.
  const auto waiting = std::make_shared<Waiting>(Waiting{changed.size(), std::move(then)});
  const auto one_has = [waiting] {
    if (--waiting->missing == 0) waiting->then();
  };
  for (const int index : changed) {
    if (index == lane_->index()) {
      hold(open->logs.get(), one_has);
      continue;
    }
    TaskLane* const other = (*open->logs->lanes)[static_cast<size_t>(index)].get();
    static_cast<void>(other->post([logs = open->logs, other, one_has, here = lane_] {
      other->changes()->hold(logs.get(),
                             [here, one_has] { static_cast<void>(here->post(one_has)); });
    }));
  }
}

/// Calls `then` when all standbys that are in sync with this lane have what it has now, and no
/// fewer than must be in sync.
void LaneChanges::hold(const OpenLogs* logs, std::function<void()> then) {
  const std::shared_ptr<Open> open = find(logs);
  if (open == nullptr) return then();
  open->held.push_back({.cut = open->log->cut_of_all(),
                        .since = lane_->lane()->now(),
                        .given = 0,
                        .then = std::move(then)});
  held_.add(1);
  release(open);
}

void LaneChanges::end_round() {
  for (size_t i = 0; i < open_.size(); ++i) {
    const std::shared_ptr<Open> open = open_[i];
    if (open->held.empty() || open->held.back().given != 0) continue;
    // One entry for all that the round has changed.
    const uint64_t end = open->log->cut().cut;
    const int64_t now = time_run();
    for (auto held = open->held.rbegin(); held != open->held.rend() && held->given == 0; ++held) {
      held->given = now;
      // What was noted may have been nothing.
      held->cut = std::min(held->cut, end);
    }
    for (const auto& reader : std::vector(open->readers)) go_on(reader.get());
    release(open);
  }
}

/// Standbys that something waits for, whoever they may be.
int LaneChanges::missing_standbys(const Open& open) const {
  if (standbys_min_ == 0 || open.held.empty()) return 0;
  const auto in_sync = std::ranges::count_if(open.readers, &Reader::is_in_sync);
  return std::max(standbys_min_ - static_cast<int>(in_sync), 0);
}

/// Lets go of what all standbys have that are in sync, in its order.
void LaneChanges::release(const std::shared_ptr<Open>& open) {
  int missing = 0;
  for (const auto& one : open_) missing += missing_standbys(*one);
  missing_.set(missing);
  if (missing_standbys(*open) > 0) return;
  uint64_t acknowledged = std::numeric_limits<uint64_t>::max();
  for (const auto& reader : open->readers) {
    if (reader->is_in_sync) acknowledged = std::min(acknowledged, reader->applied);
  }
  while (!open->held.empty() && open->held.front().cut <= acknowledged) {
    const Held first = std::move(open->held.front());
    open->held.pop_front();
    held_.add(-1);
    wait_ns_.record(lane_->lane()->now() - first.since);
    first.then();
  }
}

void LaneChanges::go_on(Reader* reader) {
  if (reader->has_ended) return;
  const Status status = pump(reader);
  if (!status.ok()) remove(reader, status);
}

Status LaneChanges::begin(Reader* reader, ChangeLog* log) {
  reader->has_begun = true;
  reader->sink->begun(log->end().incarnation);
  if (reader->wanted.after.has_value() && log->read(*reader->wanted.after, 0).ok()) {
    reader->position = *reader->wanted.after;
    return {};
  }
  SR_ASSIGN_OR_RETURN(reader->snapshot, log->snapshot(reader->wanted.names));
  reader->position = reader->snapshot->position();
  return {};
}

/// In the next iteration of the lane: what is posted here may run in this one, before steps.
void LaneChanges::go_on_later(Reader* reader) {
  if (std::exchange(reader->goes_on, true)) return;
  lane_->lane()->run_after(0, [self = reader->shared_from_this()] {
    static_cast<void>(self->lane->post([self] {
      self->goes_on = false;
      self->lane->changes()->go_on(self.get());
    }));
  });
}

/// Gives what there is room for.
Status LaneChanges::pump(Reader* reader) {
  ChangeLog* const log = find(reader->logs.get())->log.get();
  if (!reader->has_begun) {
    if (reader->logs->missing > 0) return {};
    SR_RETURN_IF_ERROR(begin(reader, log));
  }
  // What it has taken is no turn.
  if (reader->snapshot != nullptr && reader->goes_on) return {};
  const uint64_t began_at = reader->given;
  const auto give = [&](const ChangeLog::Bytes& bytes) {
    reader->given += bytes->size();
    reader->told = lane_->lane()->loop_now();
    reader->sink->give(bytes, log->end().cut);
  };
  while (true) {
    const uint64_t under_way = reader->given - reader->taken;
    const bool has_room = under_way < reader->wanted.window_bytes;
    const size_t turn_bytes = reader->snapshot != nullptr ? kPieceBytes : kTurnBytes;
    const bool is_turn = reader->given - began_at < turn_bytes;
    if (has_room && !is_turn) go_on_later(reader);
    if (reader->snapshot != nullptr) {
      if (!has_room || !is_turn) return {};
      SR_ASSIGN_OR_RETURN(std::optional<std::string> piece, reader->snapshot->next(kPieceBytes));
      if (piece.has_value()) {
        give(std::make_shared<const std::string>(*std::move(piece)));
      } else {
        reader->snapshot.reset();
        reader->snapshot_end = reader->given;
      }
      continue;
    }
    // Also for a reader that takes nothing: it is told when its entries are not kept any more.
    const size_t room = has_room ? reader->wanted.window_bytes - under_way : 0;
    SR_ASSIGN_OR_RETURN(const std::vector<ChangeLog::Bytes> entries,
                        log->read(reader->position, std::min(room, kTurnBytes)));
    if (entries.empty() || !has_room || !is_turn) return {};
    for (const ChangeLog::Bytes& entry : entries) give(entry);
    reader->position.cut += entries.size();
  }
}

}  // namespace sidereal::task
