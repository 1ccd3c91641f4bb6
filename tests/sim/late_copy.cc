#include "tests/sim/late_copy.h"

#include <algorithm>
#include <utility>

#include "tests/sim/process.h"

namespace sidereal::sim {

using sys::kMillisecond;
using task::LaneSays;

namespace {

/// How often streams that broke are looked after: as service::Follower does.
constexpr int64_t kLook = 100 * kMillisecond;

}  // namespace

LateStream::LateStream(const MoveContext& context, LateCopy* copy, int lane, sys::sim::Rng rng)
    : context_(context), copy_(copy), lane_(lane), rng_(rng) {}

void LateStream::send(int64_t* last, std::function<void()> fn) {
  const int64_t now = context_.world->now();
  *last = std::max({now + rng_.around(context_.scenario->delay_ns), *last, stands_until_});
  context_.world->at(*last, [self = shared_from_this(), fn = std::move(fn)] { fn(); });
}

void LateStream::up(std::function<void()> fn) {
  send(&up_at_, [this, fn = std::move(fn)] {
    if (ps_ != nullptr) ps_->post([self = shared_from_this(), fn] { fn(); });
  });
}

void LateStream::start(task::ChangesWanted wanted) {
  send(&up_at_, [this, wanted = std::move(wanted)] {
    if (is_cancelled_) return;
    ps_ = copy_ != nullptr ? copy_->find() : nullptr;
    if (ps_ == nullptr) return down([this] { end(base::unavailable("the task is not there")); });
    lanes_ = ps_->lanes();
    life_ = ps_->life();
    ps_->add(shared_from_this());
    ps_->post([this, self = shared_from_this(), wanted] {
      auto reader = ps_->task()->read_changes(wanted, shared_from_this());
      if (reader.ok()) {
        reader_ = *std::move(reader);
      } else {
        down([this, why = reader.status()] { end(why); });
      }
    });
  });
}

void LateStream::ask(uint64_t mark) {
  up([this, mark] {
    if (reader_ == nullptr) return;
    reader_->took(taken_, 0);
    reader_->ask(mark);
  });
}

void LateStream::hang_up(bool tells) {
  is_cancelled_ = true;
  if (tells) {
    up([this] {
      if (reader_ != nullptr) reader_->cancel();
    });
  }
  // A stream that is cancelled ends soon, whoever is told.
  context_.world->after(rng_.around(kMillisecond), [self = shared_from_this()] {
    self->end(base::cancelled("nobody reads it any more"));
  });
}

void LateStream::task_ends() {
  is_task_dead_ = true;
  ps_ = nullptr;
  reader_ = nullptr;
  answers_from_.reset();
  // Its machine may have gone with it: then nobody is told.
  if (rng_.chance(0.9)) down([this] { end(base::unavailable("the task has ended")); });
}

void LateStream::begun(uint64_t incarnation) {
  incarnation_ = incarnation;
  say({.begun = LaneSays::Begun{.lanes = lanes_, .incarnation = incarnation, .life = life_}});
}

void LateStream::give(const std::shared_ptr<const std::string>& bytes, uint64_t end) {
  say({.entry = *bytes, .end = end}, bytes);
}

void LateStream::at(uint64_t end, uint64_t mark) { say({.end = end, .mark = mark}); }

void LateStream::in_sync(uint64_t end) {
  answers_from_ = {.incarnation = incarnation_, .cut = end};
  say({.end = end, .is_in_sync = true});
}

void LateStream::ended(const Status& why) {
  answers_from_.reset();
  if (is_task_dead_) return;
  reader_ = nullptr;
  down([this, why] { end(why); });
}

void LateStream::say(LaneSays said, std::shared_ptr<const std::string> bytes) {
  if (is_task_dead_) return;
  // What an entry shows is kept meanwhile.
  down([this, said, bytes = std::move(bytes)] { arrived(said); });
}

void LateStream::arrived(const LaneSays& said) {
  if (!is_read() || is_cancelled_) return;
  LateCopy* const copy = copy_;
  taken_ += said.entry.size();
  const task::TaskCopy::Taken taken = copy->copy_.take(lane_, this, said, context_.world->now());
  for (const auto& stream : taken.ending) copy->hang_up(stream);
  if (!taken.is_read) return hang_up(true);
  up([this, taken = taken_, applied = taken.applied] {
    if (reader_ != nullptr) reader_->took(taken, applied);
  });
}

void LateStream::end(const Status& why) {
  if (std::exchange(has_ended_, true) || copy_ == nullptr) return;
  const int64_t now = context_.world->now();
  task::TaskCopy& copy = copy_->copy_;
  // A task says why before its stream ends.
  if (!why.ok() && why.code() != StatusCode::kCancelled && why.code() != StatusCode::kUnavailable) {
    static_cast<void>(copy.failed(lane_, this, why, now));
    return copy.ended(lane_, this, {}, now);
  }
  copy.ended(lane_, this, why, now);
}

LateCopy::LateCopy(const MoveContext& context, Options options, Find find)
    : context_(context),
      options_(std::move(options)),
      find_(std::move(find)),
      rng_(context.world->random().fork()),
      copy_({.task = task_of_ps(options_.ps),
             .address = "its host",
             .bytes_max = size_t{1} << 30,
             .names = options_.names,
             .is_synchronous = options_.is_synchronous}) {
  look();
}

LateCopy::~LateCopy() {
  *is_there_ = false;
  for (const auto& one : opened_) {
    const std::shared_ptr<LateStream> stream = one.lock();
    if (stream == nullptr) continue;
    if (stream->is_read()) stream->hang_up(rng_.chance(0.8));
    stream->let_go();
  }
}

void LateCopy::after(int64_t ns, std::function<void()> fn) {
  context_.world->after(ns, [is_there = is_there_, fn = std::move(fn)] {
    if (*is_there) fn();
  });
}

void LateCopy::look() {
  if (has_stopped_) return;
  const int64_t now = context_.world->now();
  for (const auto& stream : copy_.silent(now)) hang_up(stream);
  std::vector<std::shared_ptr<LateStream>> starting;
  for (const int lane : copy_.due(now)) {
    const auto stream = std::make_shared<LateStream>(context_, this, lane, rng_.fork());
    task::ChangesWanted wanted = {.state_group = kMovedGroup,
                                  .lane = lane,
                                  .after = copy_.open(lane, stream, now),
                                  .cut_ns = options_.cut_ns,
                                  .names = options_.names,
                                  .is_synchronous = options_.is_synchronous};
    std::erase_if(opened_, [](const auto& one) { return one.expired(); });
    opened_.push_back(stream);
    stream->start(std::move(wanted));
    disturb(stream);
    starting.push_back(stream);
  }
  const uint64_t mark = copy_.started();
  for (const auto& stream : starting) {
    if (mark != 0) stream->ask(mark);
  }
  after(kLook, [this] { look(); });
}

void LateCopy::ask(uint64_t mark) {
  for (const auto& stream : copy_.ask(mark)) of(stream)->ask(mark);
}

void LateCopy::hang_up(const task::TaskCopy::Stream& stream) { of(stream)->hang_up(true); }

void LateCopy::stop() {
  has_stopped_ = true;
  for (const auto& stream : copy_.streams()) hang_up(stream);
}

void LateCopy::hold(uint64_t life) {
  for (const auto& stream : copy_.hold(life)) hang_up(stream);
}

void LateCopy::disturb(const std::shared_ptr<LateStream>& stream) {
  if (context_.scenario->break_ns == 0) return;
  after(rng_.around(context_.scenario->break_ns), [this, stream] {
    const int64_t calm_at = context_.scenario->calm_at_ns;
    if (!stream->is_read() || context_.world->now() >= calm_at) return;
    switch (rng_.below(4)) {
      case 0:
        return stream->hang_up(true);
      case 1:  // The task is not told.
        return stream->hang_up(false);
      default:  // It stands still, for longer than the lane waits or not.
        stream->stand_until(std::min(
            context_.world->now() + rng_.around(context_.scenario->standby_timeout_ns), calm_at));
        return disturb(stream);
    }
  });
}

bool LateCopy::has_all_answered() {
  if (!copy_.is_whole()) return false;
  const task::TaskCopy::Streams streams = copy_.streams();
  const MovePs* const ps = find();
  if (ps == nullptr || static_cast<int>(streams.size()) != ps->lanes()) return false;
  return std::ranges::all_of(streams, [this](const auto& one) {
    const LateStream& stream = *of(one);
    const auto& from = stream.answers_from();
    const auto here = copy_.replica().position(stream.lane());
    return from.has_value() && here.has_value() && here->incarnation == from->incarnation &&
           here->cut >= from->cut;
  });
}

}  // namespace sidereal::sim
