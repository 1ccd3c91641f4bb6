#include "sidereal/membership/lease.h"

#include <algorithm>
#include <utility>

namespace sidereal::membership {

Lease::Lease(Options options) : options_(std::move(options)) {}

/// Half of it to all of it.
int64_t Lease::some_of(int64_t ns) {
  const auto half = static_cast<uint64_t>(std::max<int64_t>(ns / 2, 1));
  return static_cast<int64_t>(half + options_.random() % half);
}

Ask Lease::begin(int64_t now) {
  ++round_;
  answered_before_ = static_cast<int>(granted_.size() + refused_.size() + deposed_.size());
  wait_before_ = std::exchange(wait_, 0);
  granted_.clear();
  refused_.clear();
  deposed_.clear();
  sent_ = now;
  Ask ask{.task = options_.task,
          .life = options_.life,
          .process = options_.process,
          .round = round_,
          .lease_ns = options_.lease_ns,
          .held = held_,
          .gone = gone_};
  if (does_ == Does::kGivesUp) {
    does_ = Does::kAsks;
    ask.view = view_;
    ask.gives_up = true;
    // The others have that long to agree.
    due_ = now + some_of(options_.lease_ns / 2);
    return ask;
  }
  if (does_ == Does::kAsks && view_ <= seen_) view_ = seen_ + 1;
  ask.view = view_;
  ask.is_second = does_ != Does::kAsks;
  // Those that are late are asked again while the lease is still good.
  due_ = now + some_of(options_.lease_ns / 2);
  return ask;
}

void Lease::take(int voter, uint64_t round, const Vote& vote, int64_t now) {
  if (round != round_ || is_deposed_) return;
  if (!vote.is_granted) seen_ = std::max(seen_, vote.view);
  if (vote.is_deposed) {
    deposed_.insert(voter);
    deposed_by_ = vote.life;
    is_deposed_ = deposed_.size() >= majority();
  } else if (vote.is_granted) {
    granted_.insert(voter);
  } else {
    refused_.insert(voter);
    wait_ = std::max(wait_, vote.wait_ns);
    if (vote.life != 0 && vote.life != options_.life) {
      other_ = {.life = vote.life, .process = vote.process};
    }
  }
  if (granted_.size() == majority() && vote.is_granted) {
    if (does_ == Does::kAsks) {
      does_ = Does::kAsksAgain;
      due_ = now;
      return;
    }
    does_ = Does::kHolds;
    held_ = view_;
    until_ = std::max(until_, sent_ + options_.lease_ns);
    other_ = {};
    due_ = std::max(now, sent_ + options_.lease_ns / 4);
    return;
  }
  const size_t lost = refused_.size() + deposed_.size();
  if (lost == static_cast<size_t>(options_.voters) - majority() + 1 && !vote.is_granted) {
    refused(now);
  }
}

/// No majority any more in this round.
void Lease::refused(int64_t now) {
  if (holds(now)) return;  // It asks the same again, till it ends.
  // Votes that do not make a majority may be what another one lacks.
  does_ = granted_.empty() ? Does::kAsks : Does::kGivesUp;
  due_ = now + some_of(options_.lease_ns / 8);
}

void Lease::knows_gone(uint64_t life, int64_t now) {
  if (gone_ == life) return;
  gone_ = life;
  due_ = now;
}

}  // namespace sidereal::membership
