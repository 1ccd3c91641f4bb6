#include "tests/sim/mover.h"

#include <algorithm>

namespace sidereal::sim {

using sys::kMillisecond;
using sys::kSecond;

namespace {

constexpr int64_t kLook = 20 * kMillisecond;
/// For copies to come, and for tries that are under way to end.
constexpr int64_t kCopyLimit = 30 * kSecond;
/// Beside the time that a task has to take variables: to say that it has not.
constexpr int64_t kSayLimit = 2 * kSecond;
constexpr int64_t kCommitLimit = 2 * kSecond;

}  // namespace

Mover::Mover(const MoveContext& context, MoveCluster* cluster, Training* training,
             MoveClients* clients)
    : context_(context),
      cluster_(cluster),
      training_(training),
      clients_(clients),
      rng_(context.world->random().fork()) {
  training_->session = rng_.next();
  training_->wanted = {training_->session};
  quiet();
  is_quiet_ = false;
  clients_->go_on();
  next_move_at_ = context.world->now() + rng_.around(scenario().rest_ns);
  look();
}

Mover::~Mover() {
  *is_there_ = false;
  hang_up();
}

void Mover::quiet() {
  is_quiet_ = true;
  for (int ps = 0; ps < cluster_->size(); ++ps) {
    for (int i = 0; i < scenario().variables; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool is_going = stage_ != Stage::kIdle && next_owners_[at] == ps;
      if (training_->owners[at] != ps && !is_going) leftovers_.try_emplace({ps, i}, 0);
    }
  }
}

bool Mover::is_idle() const {
  return stage_ == Stage::kIdle && leftovers_.empty() && has_only_wanted_sessions();
}

void Mover::after(int64_t ns, std::function<void()> fn) {
  context_.world->after(ns, [is_there = is_there_, fn = std::move(fn)] {
    if (*is_there) fn();
  });
}

void Mover::look() {
  look_after_sessions();
  look_after_leftovers();
  if (stage_ != Stage::kIdle) {
    look_at_move();
  } else if (!is_quiet_ && context_.world->now() >= next_move_at_ && leftovers_.empty() &&
             has_only_wanted_sessions()) {
    begin();
  }
  after(kLook, [this] { look(); });
}

// ---- Sessions, and what is left behind ---------------------------------------------------------

void Mover::look_after_sessions() {
  for (int i = 0; i < cluster_->size(); ++i) {
    const MovePs* const ps = cluster_->ps(i);
    if (ps == nullptr) continue;
    for (const uint64_t session : training_->wanted) {
      if (ps->has(session)) continue;
      cluster_->send(i, ps->life(), [training = training_, session](MovePs* there) {
        // With a session, groups that are kept for one are that of others.
        if (training->wanted.contains(session) && there->open(session)) {
          there->task()->stop_keeping_groups();
        }
      });
    }
    for (const uint64_t session : ps->sessions()) {
      if (training_->wanted.contains(session) || !ps->has(training_->session)) continue;
      cluster_->send(i, ps->life(), [session](MovePs* there) { there->close(session); });
    }
  }
}

bool Mover::has_only_wanted_sessions() const {
  for (int i = 0; i < cluster_->size(); ++i) {
    const MovePs* const ps = cluster_->ps(i);
    if (ps == nullptr || ps->sessions() != training_->wanted) return false;
  }
  return true;
}

bool Mover::are_next_sessions_open() const {
  return std::ranges::all_of(next_owners_, [this](int owner) {
    const MovePs* const ps = cluster_->ps(owner);
    return ps != nullptr && ps->has(next_session_);
  });
}

void Mover::look_after_leftovers() {
  for (auto& [what, told] : leftovers_) {
    const MovePs* const ps = cluster_->ps(what.first);
    if (ps == nullptr || ps->life() == told || !ps->has(training_->session)) continue;
    told = ps->life();
    destroy(what.first, what.second);
  }
}

void Mover::destroy(int ps, int variable) {
  const uint64_t session = training_->session;
  cluster_->send(ps, cluster_->ps(ps)->life(), [=, this, is_there = is_there_](MovePs* there) {
    const MovePs::Work work = {
        .session = session, .what = MoveWork::kDestroy, .variable = variable};
    there->run(work, [=, this](const Status& status, const auto& /*fetches*/) {
      if (!*is_there) return;
      cluster_->send([=, this, is_well = status.ok()] {
        if (!*is_there) return;
        const auto found = leftovers_.find({ps, variable});
        if (found == leftovers_.end()) return;
        if (is_well) {
          leftovers_.erase(found);
        } else {
          found->second = 0;  // Again.
        }
      });
    });
  });
}

// ---- A move ------------------------------------------------------------------------------------

void Mover::enter(Stage stage) {
  stage_ = stage;
  stage_began_ = context_.world->now();
  context_.world->note("a move comes to stage", static_cast<uint64_t>(stage), move_);
  const bool is_calm = context_.world->now() >= scenario().calm_at_ns;
  if (is_calm || going_.empty() || !rng_.chance(scenario().accident)) return;
  // One that gets something, or any.
  const int one = rng_.chance(0.5)
                      ? going_[rng_.below(going_.size())].to
                      : static_cast<int>(rng_.below(next_owners_.size())) % cluster_->size();
  after(rng_.around(5 * kMillisecond), [this, one] { static_cast<void>(cluster_->kill(one)); });
}

void Mover::begin() {
  next_owners_ = training_->owners;
  const int parts = scenario().variables / 2;
  std::map<int, MoveIn::Sources> routes;
  std::map<int, std::set<int>> variables;
  for (int64_t i = rng_.between(1, parts); i > 0; --i) {
    const auto part = static_cast<int>(rng_.below(static_cast<uint64_t>(parts)));
    const int from = training_->owners[static_cast<size_t>(2 * part)];
    const int to =
        (from + static_cast<int>(rng_.between(1, cluster_->size() - 1))) % cluster_->size();
    if (next_owners_[static_cast<size_t>(2 * part)] != from) continue;
    for (const int variable : {2 * part, 2 * part + 1}) {
      next_owners_[static_cast<size_t>(variable)] = to;
      routes[to][from].insert(moved_name(variable));
      variables[to].insert(variable);
    }
  }
  ++move_;
  next_session_ = rng_.next();
  training_->wanted.insert(next_session_);
  going_.clear();
  committed_ = 0;
  enter(Stage::kCopying);
  for (auto& [to, sources] : routes) {
    const MovePs* const ps = cluster_->ps(to);
    going_.push_back(
        {.to = to, .life = ps != nullptr ? ps->life() : 0, .variables = std::move(variables[to])});
  }
  for (Going& one : going_) call(&one, std::move(routes[one.to]));
}

void Mover::call(Going* going, MoveIn::Sources sources) {
  const auto index = static_cast<size_t>(going - going_.data());
  const auto say = [this, is_there = is_there_, move = move_, index](const MoveSays& says) {
    if (!*is_there) return;
    cluster_->send([this, is_there, move, index, says] {
      if (*is_there) heard(move, index, says);
    });
  };
  cluster_->send(going->to, going->life,
                 [this, call = going->call, to = going->to, sources = std::move(sources), say,
                  context = &context_, cluster = cluster_](MovePs* /*there*/) mutable {
                   if (call->is_hung_up) return;
                   call->there =
                       std::make_shared<MoveIn>(*context, cluster, to, std::move(sources), say);
                   call->there->begin();
                 });
}

void Mover::heard(uint64_t move, size_t index, const MoveSays& says) {
  if (move != move_ || index >= going_.size()) return;
  MoveSays& now = going_[index].heard;
  now.is_current |= says.is_current;
  now.is_taken |= says.is_taken;
  now.is_committed |= says.is_committed;
  if (!says.failure.ok()) now.failure = says.failure;
}

void Mover::look_at_move() {
  const int64_t lasted = context_.world->now() - stage_began_;
  for (const Going& one : going_) {
    const MovePs* const ps = cluster_->ps(one.to);
    const bool is_lost = ps == nullptr || ps->life() != one.life;
    if (is_lost || !one.heard.failure.ok()) return abandon();
  }
  const bool is_calm = context_.world->now() >= scenario().calm_at_ns;
  if (stage_ != Stage::kCommitting && !is_calm && rng_.chance(scenario().cancelled)) {
    return abandon();
  }
  const auto all = [this](bool MoveSays::*said) {
    return std::ranges::all_of(going_, [said](const Going& one) { return one.heard.*said; });
  };
  switch (stage_) {
    case Stage::kIdle:
      return;
    case Stage::kCopying:
      if (lasted > kCopyLimit) return abandon();
      if (!all(&MoveSays::is_current) || !are_next_sessions_open()) return;
      clients_->hold();
      return enter(Stage::kDraining);
    case Stage::kDraining:
      if (lasted > kCopyLimit) return abandon();
      if (!clients_->is_drained()) return;
      for (const Going& one : going_) {
        cluster_->send(one.to, one.life, [call = one.call, limit = scenario().take_ns](MovePs*) {
          if (call->there != nullptr) call->there->take(limit);
        });
      }
      return enter(Stage::kTaking);
    case Stage::kTaking:
      if (lasted > scenario().take_ns + kSayLimit) return abandon();
      if (!all(&MoveSays::is_taken)) return;
      enter(Stage::kCommitting);
      return commit_next();
    case Stage::kCommitting:
      if (lasted > kCommitLimit) return abandon();
      if (!going_[committed_].heard.is_committed) return;
      if (++committed_ == going_.size()) return take_over();
      return commit_next();
  }
}

void Mover::commit_next() {
  const Going& one = going_[committed_];
  stage_began_ = context_.world->now();
  cluster_->send(one.to, one.life, [call = one.call](MovePs*) { call->there->commit(); });
}

void Mover::take_over() {
  ++moves_;
  for (const Going& one : going_) {
    for (const int variable : one.variables) {
      leftovers_[{training_->owners[static_cast<size_t>(variable)], variable}] = 0;
      // What is in use now may have been left there before.
      leftovers_.erase({one.to, variable});
    }
  }
  training_->owners = next_owners_;
  for (const Going& one : going_) {
    for (const int variable : one.variables) {
      context_.world->note("moved", static_cast<uint64_t>(variable), static_cast<uint64_t>(one.to));
    }
  }
  training_->session = next_session_;
  training_->wanted = {next_session_};
  going_.clear();
  enter(Stage::kIdle);
  next_move_at_ = context_.world->now() + rng_.around(scenario().rest_ns);
  clients_->go_on();
}

void Mover::abandon() {
  ++given_up_;
  // Those that have committed, or whose standbys have what they had taken, may keep it.
  if (stage_ >= Stage::kTaking) {
    for (const Going& one : going_) {
      for (const int variable : one.variables) leftovers_[{one.to, variable}] = 0;
    }
  }
  hang_up();
  training_->wanted = {training_->session};
  enter(Stage::kIdle);
  next_move_at_ = context_.world->now() + rng_.around(scenario().rest_ns);
  clients_->go_on();
}

void Mover::hang_up() {
  const int64_t now = context_.world->now();
  const bool is_calm = now >= scenario().calm_at_ns;
  for (const Going& one : going_) {
    int64_t at = now + rng_.around(scenario().notice_ns);
    // A connection that is silent is found to be at the latest when all is calm.
    if (!is_calm && rng_.chance(0.2)) at = now + rng_.around(20 * scenario().notice_ns);
    if (!is_calm) at = std::min(at, scenario().calm_at_ns);
    context_.world->at(at, [call = one.call] {
      call->is_hung_up = true;
      if (call->there != nullptr) call->there->hung_up();
    });
  }
  going_.clear();
}

}  // namespace sidereal::sim
