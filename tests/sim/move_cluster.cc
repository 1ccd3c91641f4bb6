#include "tests/sim/move_cluster.h"

#include <utility>

#include "tests/sim/process.h"

namespace sidereal::sim {

using sys::kMillisecond;
using sys::sim::Death;

MoveCluster::MoveCluster(const MoveContext& context)
    : context_(context),
      rng_(context.world->random().fork()),
      programs_(make_move_programs(*context.scenario).value()),
      slots_(static_cast<size_t>(context.scenario->ps)) {
  for (Slot& slot : slots_) slot.host = context.world->add_host();
  for (int i = 0; i < size(); ++i) {
    start(i);
    slots_[at(i)].is_let_in = true;
  }
  for (int i = 0; i < size(); ++i) follow(i);
}

MoveCluster::~MoveCluster() {
  for (const auto& fn : at_end_) fn();
  for (Slot& slot : slots_) slot.standby.reset();
  for (Slot& slot : slots_) {
    if (slot.ps == nullptr) continue;
    for (int i = 0; i < slot.ps->lanes(); ++i) {
      context_.world->kill(slot.ps->node(i), Death::kKilled);
    }
    slot.ps.reset();
  }
}

MovePs* MoveCluster::ps(int index) const {
  const Slot& slot = slots_[at(index)];
  return slot.is_let_in ? slot.ps.get() : nullptr;
}

void MoveCluster::send(std::function<void()> fn) {
  // A few are far later than others.
  const int64_t delay = context_.scenario->delay_ns * (rng_.chance(0.02) ? 50 : 1);
  context_.world->after(rng_.around(delay), [fn = std::move(fn)] { fn(); });
}

void MoveCluster::send(int index, uint64_t life, std::function<void(MovePs*)> fn) {
  send([this, index, life, fn = std::move(fn)] {
    MovePs* const there = ps(index);
    if (there != nullptr && there->life() == life) there->post([there, fn] { fn(there); });
  });
}

void MoveCluster::start(int index) {
  Slot& slot = slots_[at(index)];
  slot.ps = std::make_unique<MovePs>(context_, slot.host, index, rng_.next(), programs_);
  slot.is_let_in = false;
}

void MoveCluster::follow(int index) {
  slots_[at(index)].standby =
      std::make_unique<LateCopy>(context_, LateCopy::Options{.ps = index, .is_synchronous = true},
                                 [this, index] { return ps(index); });
}

bool MoveCluster::kill(int index) {
  Slot& slot = slots_[at(index)];
  if (ps(index) == nullptr || slot.standby == nullptr) return false;
  // It has the standby of the one before.
  if (ps(before(index)) == nullptr || !slot.standby->has_all_answered()) return false;
  ++deaths_;
  context_.world->note("ps dies", static_cast<uint64_t>(index));
  for (int i = 0; i < slot.ps->lanes(); ++i) {
    context_.world->kill(slot.ps->node(i), Death::kKilled);
  }
  slots_[at(before(index))].standby.reset();
  slot.ps.reset();
  context_.world->after(rng_.around(300 * kMillisecond), [this, index] {
    start(index);
    follow(before(index));
    MovePs* const begun = slots_[at(index)].ps.get();
    begun->task()->hold_off(base::unavailable("it takes its variables from its standby"));
    slots_[at(index)].standby->hold(begun->life());
    context_.world->after(rng_.around(50 * kMillisecond), [this, index] { fill(index); });
  });
  return true;
}

/// As service::Standbys::take_from(). The one that has the standby lives until then: see kill().
void MoveCluster::fill(int index) {
  Slot& slot = slots_[at(index)];
  task::TaskCopy& copy = slot.standby->copy();
  if (!copy.is_whole()) {
    context_.ledger->complain("the standby of ps {} has not all of it any more", index);
  }
  resources::Replica mine(size_t{1} << 30);
  resources::ReplicaPieces pieces(&copy.replica());
  while (const std::optional<std::string> piece = pieces.next(size_t{16} << 10)) {
    const Status applied = mine.apply(*piece);
    if (!applied.ok()) {
      context_.ledger->complain("ps {} cannot take what its standby has: {}", index,
                                base::message_of(applied));
    }
  }
  const Status filled = slot.ps->task()->fill(kMovedGroup, mine.take_all());
  if (!filled.ok()) {
    context_.ledger->complain("ps {} is not filled: {}", index, base::message_of(filled));
  }
  context_.world->note("ps is back", static_cast<uint64_t>(index));
  slot.ps->task()->let_in();
  slot.is_let_in = true;
  copy.let_go();
}

}  // namespace sidereal::sim
