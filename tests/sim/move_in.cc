#include "tests/sim/move_in.h"

#include <algorithm>
#include <utility>

#include "tests/sim/process.h"

namespace sidereal::sim {

using sys::kMillisecond;

namespace {

/// As service::MoveStream has them.
constexpr int64_t kTell = 50 * kMillisecond;
constexpr int64_t kCut = 2 * kMillisecond;
/// How often it is looked whether what is waited for is there.
constexpr int64_t kLook = 2 * kMillisecond;
/// What is asked of one source, once.
constexpr uint64_t kMark = 1;

}  // namespace

MoveIn::MoveIn(const MoveContext& context, MoveCluster* cluster, int to, Sources sources, Say say)
    : context_(context),
      cluster_(cluster),
      ps_(cluster->ps(to)),
      is_task_there_(ps_->is_there()),
      sources_(std::move(sources)),
      say_(std::move(say)),
      intake_(ps_->task(), kMovedGroup) {}

void MoveIn::later(int64_t ns, std::function<void()> fn) {
  context_.world->after(ns, [self = shared_from_this(), fn = std::move(fn)] {
    if (self->is_there()) {
      return self->ps_->post([self, fn] {
        if (self->is_there()) fn();
      });
    }
    // What follows for a task that has died goes with it.
    self->copies_.clear();
  });
}

void MoveIn::begin() {
  cluster_->at_end([weak = weak_from_this()] {
    if (const std::shared_ptr<MoveIn> self = weak.lock()) self->copies_.clear();
  });
  for (const auto& [from, names] : sources_) {
    copies_.push_back(std::make_unique<LateCopy>(
        context_, LateCopy::Options{.ps = from, .names = names, .cut_ns = kCut},
        [cluster = cluster_, from = from] { return cluster->ps(from); }));
  }
  const Status begun = intake_.begin();
  if (!begun.ok()) {
    has_ended_ = true;
    copies_.clear();
    return say_({.failure = begun});
  }
  look();
}

void MoveIn::look() {
  if (is_taking_) return;
  bool is_current = true;
  for (const auto& one : copies_) {
    const Status& status = one->copy().status();
    if (!task::VariableIntake::is_coming(status)) return end(status);
    is_current = is_current && one->copy().is_whole();
  }
  if (said_.is_current != is_current) {
    said_.is_current = is_current;
    say_(said_);
  }
  if (has_gone_) return end(base::cancelled("the move was given up"));
  later(kTell, [this] { look(); });
}

void MoveIn::take(int64_t limit_ns) {
  if (!is_there() || std::exchange(is_taking_, true)) return;
  for (const auto& one : copies_) one->ask(kMark);
  look_whether_here(kMark, context_.world->now() + limit_ns);
}

void MoveIn::look_whether_here(uint64_t mark, int64_t deadline) {
  if (has_gone_) return end(base::cancelled("the move was given up"));
  const auto is_here = [mark](const auto& one) { return one->copy().is_here(mark); };
  if (std::ranges::all_of(copies_, is_here)) return adopt();
  for (const auto& one : copies_) {
    const Status& status = one->copy().status();
    if (!is_here(one) && !task::VariableIntake::is_coming(status)) return end(status);
  }
  if (context_.world->now() < deadline) {
    return later(kLook, [this, mark, deadline] { look_whether_here(mark, deadline); });
  }
  end(base::deadline_exceeded("what is left is not here in time"));
}

void MoveIn::adopt() {
  for (const auto& one : copies_) {
    one->stop();
    const int from = one->options().ps;
    const Status added =
        intake_.add(task_of_ps(from), sources_.at(from), one->copy().replica().take_all());
    if (!added.ok()) return end(added);
  }
  is_adopting_ = true;
  number_ = ++ps_->given()->moves;
  for (const int variable : variables()) ps_->given()->by_variable[variable] = number_;
  intake_.adopt(context_.scenario->ps, [this, self = shared_from_this()](const Status& adopted) {
    // Not on the lane that says so.
    later(0, [this, adopted] {
      is_adopting_ = false;
      if (!adopted.ok()) return end(adopted);
      said_.is_taken = true;
      say_(said_);
      if (has_gone_) end(base::cancelled("the move was given up"));
    });
  });
}

void MoveIn::commit() {
  if (!is_there() || !said_.is_taken) return;
  commits_ = true;
  end({});
}

void MoveIn::hung_up() {
  has_gone_ = true;
  later(0, [this] {
    if (said_.is_taken && !is_adopting_) end(base::cancelled("the move was given up"));
  });
}

std::vector<int> MoveIn::variables() const {
  std::vector<int> out;
  for (int i = 0; i < context_.scenario->variables; ++i) {
    const auto has = [i](const auto& one) { return one.second.contains(moved_name(i)); };
    if (std::ranges::any_of(sources_, has)) out.push_back(i);
  }
  return out;
}

void MoveIn::check_nothing_stays() {
  if (ps_->sessions().empty()) return;
  for (const int variable : variables()) {
    ps_->run({.session = *ps_->sessions().begin(), .what = MoveWork::kRead, .variable = variable},
             [self = shared_from_this(), variable](const Status& status, const auto& /*fetches*/) {
               // Another move may have brought it since.
               const bool is_its = self->ps_->given()->by_variable[variable] == self->number_;
               if (!status.ok() || !is_its) return;
               self->context_.ledger->complain("'{}' stays of a move that was given up",
                                               moved_name(variable));
             });
  }
}

void MoveIn::end(Status why) {
  if (std::exchange(has_ended_, true)) return;
  copies_.clear();
  if (commits_) intake_.commit();
  intake_.end();
  if (!commits_ && said_.is_taken) check_nothing_stays();
  said_.is_committed = commits_;
  said_.failure = std::move(why);
  say_(said_);
}

}  // namespace sidereal::sim
