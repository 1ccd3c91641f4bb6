#include "tests/sim/standby.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sidereal/task/change_reading.h"

namespace sidereal::sim {

using sys::kMillisecond;
using tensor::Tensor;

/// One reading of the log of a lane.
class Standby::Stream final : public task::ChangesSink,
                              public std::enable_shared_from_this<Stream> {
 public:
  Stream(Standby* of, int lane) : lane(lane), of_(of), is_there_(of->is_there_) {}

  void begun(uint64_t opening) override { incarnation = opening; }
  void give(const std::shared_ptr<const std::string>& bytes, uint64_t /*end*/) override {
    if (!is_read()) return;
    of_->deliver(shared_from_this(),
                 [of = of_, self = shared_from_this(), bytes] { of->arrived(self, *bytes); });
  }
  void at(uint64_t /*end*/, uint64_t /*mark*/) override {
    if (!is_read()) return;
    of_->deliver(shared_from_this(),
                 [of = of_, self = shared_from_this()] { of->acknowledge(self); });
  }
  void in_sync(uint64_t end) override { in_sync_from = end; }
  void ended(const Status& /*why*/) override {
    in_sync_from.reset();
    if (is_read()) of_->replace(shared_from_this(), false);
  }
  [[nodiscard]] bool is_read() const { return *is_there_ && !is_left; }

  const int lane;
  std::shared_ptr<task::ChangesReader> reader;  ///< Which keeps this; nullptr: it is not read.
  uint64_t incarnation = 0;                     ///< Of the opening of the log.
  std::optional<uint64_t> in_sync_from;         ///< The lane waits for what comes after this cut.
  uint64_t taken = 0;                           ///< Bytes.
  int64_t stands_until = 0;                     ///< Nothing gets there before.
  int64_t last_arrival = 0;
  bool is_left = false;  ///< There is another one, or will be.

 private:
  Standby* const of_;
  const std::shared_ptr<bool> is_there_;
};

Standby::Standby(const Context& context, TaskPs* ps, int index, PushTable* pushes)
    : context_(context),
      ps_(ps),
      index_(index),
      pushes_(pushes),
      rng_(context.world->random().fork()),
      streams_(static_cast<size_t>(ps->lanes())) {
  for (int lane = 0; lane < ps->lanes(); ++lane) open(lane, true);
}

Standby::~Standby() {
  *is_there_ = false;
  for (const StreamPtr& stream : streams_) stream->reader = nullptr;
}

void Standby::after(int64_t ns, std::function<void()> fn) {
  context_.world->after(ns, [is_there = is_there_, fn = std::move(fn)] {
    if (*is_there) fn();
  });
}

void Standby::open(int lane, bool from_the_start) {
  const auto stream = std::make_shared<Stream>(this, lane);
  task::ChangesWanted wanted = {.lane = lane, .is_synchronous = true};
  if (!from_the_start) wanted.after = replica_.position(lane);
  Result<std::shared_ptr<task::ChangesReader>> reader = ps_->task()->read_changes(wanted, stream);
  SR_CHECK(reader.ok(), "a log cannot be read: {}", base::message_of(reader.status()));
  stream->reader = *std::move(reader);
  stream_of(lane) = stream;
  disturb(stream);
}

void Standby::replace(const StreamPtr& stream, bool from_the_start) {
  stream->is_left = true;
  stream->reader = nullptr;
  after(rng_.around(50 * kMillisecond),
        [this, lane = stream->lane, from_the_start] { open(lane, from_the_start); });
}

void Standby::deliver(const StreamPtr& stream, std::function<void()> fn) {
  const int64_t now = context_.world->now();
  stream->last_arrival = std::max(
      {now + rng_.around(scenario().standby_delay_ns), stream->last_arrival, stream->stands_until});
  after(stream->last_arrival - now, [stream, fn = std::move(fn)] {
    if (!stream->is_left) fn();
  });
}

void Standby::arrived(const StreamPtr& stream, const std::string& bytes) {
  if (const Status status = replica_.apply(bytes); !status.ok()) {
    context_.ledger->complain("the standby of {} cannot take what it was given: {}",
                              ps_->task()->name(), base::message_of(status));
    return replace(stream, true);
  }
  stream->taken += bytes.size();
  acknowledge(stream);
}

void Standby::acknowledge(const StreamPtr& stream) {
  const int64_t now = context_.world->now();
  const int64_t at = std::max(now + rng_.around(scenario().standby_delay_ns), stream->stands_until);
  after(at - now, [stream, taken = stream->taken, has = applied(*stream)] {
    if (!stream->is_left) stream->reader->took(taken, has);
  });
}

void Standby::disturb(const StreamPtr& stream) {
  if (scenario().standby_break_ns == 0) return;
  after(rng_.around(scenario().standby_break_ns), [this, stream] {
    if (stream->is_left || context_.world->now() >= scenario().calm_at_ns) return;
    switch (rng_.below(4)) {
      case 0:  // It says good-bye.
        stream->reader->cancel();
        return replace(stream, rng_.chance(0.2));
      case 1:  // It goes, and the lane is not told.
        return replace(stream, rng_.chance(0.2));
      default:  // It stands still, for longer than the lane waits or not.
        stream->stands_until =
            std::min(context_.world->now() + rng_.around(scenario().standby_timeout_ns),
                     scenario().calm_at_ns);
        return disturb(stream);
    }
  });
}

uint64_t Standby::applied(const Stream& stream) const {
  const std::optional<resources::LogPosition> at = replica_.shown_position(stream.lane);
  return at.has_value() && at->incarnation == stream.incarnation ? at->cut : 0;
}

bool Standby::has_answered(int lane) {
  const Stream& stream = *stream_of(lane);
  return !stream.is_left && stream.in_sync_from.has_value() &&
         applied(stream) >= *stream.in_sync_from;
}

void Standby::compare(int lane, CopyIs is) {
  const Result<Tensor> rows = replica_.value("rows_" + std::to_string(lane));
  if (rows.ok()) {
    return pushes_->read_copy(static_cast<size_t>(index_ * ps_->lanes() + lane), ps_->life(), *rows,
                              is);
  }
  if (is == CopyIs::kACut) return;
  context_.ledger->complain("the standby of {} has nothing of lane {}: {}", ps_->task()->name(),
                            lane, base::message_of(rows.status()));
}

void Standby::check_after_death() {
  for (int lane = 0; lane < ps_->lanes(); ++lane) {
    compare(lane, has_answered(lane) ? CopyIs::kAllThatWasAnswered : CopyIs::kACut);
  }
}

void Standby::check_current() {
  for (int lane = 0; lane < ps_->lanes(); ++lane) {
    if (!has_answered(lane)) {
      context_.ledger->complain("lane {} of {} does not wait for its standby any more", lane,
                                ps_->task()->name());
    }
    compare(lane, CopyIs::kCurrent);
  }
}

}  // namespace sidereal::sim
