#include "sidereal/membership/voter.h"

#include <utility>

namespace sidereal::membership {
namespace {

constexpr size_t kTasksMax = 65'536;
constexpr size_t kNameBytesMax = 1024;
constexpr int64_t kMillisecond = 1'000'000;
/// A lease is shorter than a promise by at least one of so many parts.
constexpr int64_t kLeastOfPromise = 50;

}  // namespace

Voter::Voter(int64_t promise_ns, int64_t now, std::vector<Record> records)
    : promise_(promise_ns), quiet_until_(now + promise_ns) {
  for (Record& one : records) {
    tasks_[std::move(one.task)] = {.view = one.view,
                                   .life = one.life,
                                   .until = quiet_until_,
                                   .second_view = one.view,
                                   .second_life = one.life};
  }
}

Status Voter::check(const Ask& ask) const {
  if (ask.task.empty() || ask.task.size() > kNameBytesMax ||
      ask.process.machine.size() > kNameBytesMax) {
    return base::invalid_argument("a vote is asked for with a name of {} bytes, 1 to {} are taken",
                                  ask.task.size(), kNameBytesMax);
  }
  if (ask.life == 0 || (!ask.gives_up && ask.view == 0) || ask.held > ask.view) {
    return base::invalid_argument(
        "{} asks for a vote as start {:016x}, in view {} after {}: starts and views are from 1 on, "
        "and views only grow",
        ask.task, ask.life, ask.view, ask.held);
  }
  if (ask.lease_ns < 0 || ask.lease_ns > promise_ - promise_ / kLeastOfPromise) {
    return base::invalid_argument(
        "{} asks for a lease of {} ms, and this voter keeps votes for {} ms; give all of the "
        "cluster the same lease_ms",
        ask.task, ask.lease_ns / kMillisecond, promise_ / kMillisecond);
  }
  return {};
}

Result<Vote> Voter::vote(const Ask& ask, int64_t now) {
  SR_RETURN_IF_ERROR(check(ask));
  if (!tasks_.contains(ask.task) && tasks_.size() >= kTasksMax) {
    return base::resource_exhausted("{} tasks have asked for votes, and no more can", kTasksMax);
  }
  State& state = tasks_.try_emplace(ask.task, State{.until = quiet_until_}).first->second;
  const bool is_its = state.life == ask.life;
  // That it once gave up says nothing of what it was given since.
  if (is_its && ask.round < state.round) return Vote{.view = state.view};
  if (ask.gives_up) {
    if (is_its) {
      state.until = now;
      state.is_watched = false;
    }
    return Vote{.view = state.view};
  }
  if (ask.gone != 0 && ask.gone == state.life && ask.gone != ask.life) state.until = now;
  if (ask.held != 0 && state.second_life != ask.life && ask.held < state.second_view) {
    return Vote{.is_deposed = true,
                .view = state.view,
                .life = state.second_life,
                .wait_ns = state.until - now};
  }
  const bool may = is_its || state.until <= now;
  if (!may || ask.view < state.view || (ask.view == state.view && !is_its && state.view != 0)) {
    return Vote{.view = state.view,
                .life = state.life,
                .process = state.process,
                .wait_ns = may ? 0 : state.until - now};
  }
  state.view = ask.view;
  state.life = ask.life;
  state.process = ask.process;
  state.round = ask.round;
  state.until = now + promise_;
  state.is_watched = true;
  if (ask.is_second && (state.second_view != ask.view || state.second_life != ask.life)) {
    state.second_view = ask.view;
    state.second_life = ask.life;
    records_changed_ = true;
  }
  return Vote{.is_granted = true, .view = ask.view, .life = ask.life};
}

bool Voter::take_records_changed() { return std::exchange(records_changed_, false); }

std::vector<Voter::Record> Voter::records() const {
  std::vector<Record> out;
  for (const auto& [task, state] : tasks_) {
    if (state.second_life == 0) continue;
    out.push_back({.task = task, .view = state.second_view, .life = state.second_life});
  }
  return out;
}

std::vector<Voter::Silent> Voter::take_silent(int64_t now) {
  std::vector<Silent> out;
  for (auto& [task, state] : tasks_) {
    if (state.until > now || !std::exchange(state.is_watched, false)) continue;
    out.push_back({.task = task, .life = state.life});
  }
  return out;
}

}  // namespace sidereal::membership
