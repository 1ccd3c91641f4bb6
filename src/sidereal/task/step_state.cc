#include "sidereal/task/step_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sidereal::task {

using ports::RendezvousKey;
using tensor::Tensor;

StepState::~StepState() { clear(); }

void StepState::clear() {
  cancel_questions();
  outgoing_.clear();
  wanted_ = 0;
  refusal_ = {};
  incoming_.clear();
  received_.clear();
  failure_ = {};
  begun_ = false;
  finished_ = {};
  posted_stop_ = nullptr;
  session = 0;
  whole = false;
  pull_ahead_ms = 0;
  turns = nullptr;
  blocked = false;
  failed_within = false;
  trace = nullptr;
  trace_process = 0;
}

void StepState::set_program(base::CountedPtr<SessionProgram> program,
                            std::shared_ptr<exec::StopSignal> posted,
                            const exec::StopSignal* wider) {
  finished_.program = std::move(program);
  posted_stop_ = std::move(posted);
  if (posted_stop_ != nullptr) return;
  own_stop_.emplace(wider != nullptr ? wider : finished_.program->stop.get());
}

void StepState::start(std::unique_ptr<CallingStep> step, Task::Done done) {
  begun_ = true;
  finished_.step = std::move(step);
  finished_.done = std::move(done);
}

StepState::Finished StepState::finish(const Status& status) {
  blocked = false;
  cancel_questions();
  incoming_.clear();
  received_.clear();
  if (!status.ok()) refuse_questions(status);
  return std::exchange(finished_, {});
}

void StepState::count_down(Task::Taker* taker) {
  if (--taker->missing_ == 0) taker->end({});
}

Status StepState::send(const RendezvousKey& key, std::span<const Tensor> values) {
  const auto* const found = outgoing_.find(key);
  if (found == nullptr) {
    outgoing_.add(key).values.assign(values.begin(), values.end());
    return {};
  }
  if (found->about.taker == nullptr) return base::internal("edge {} was sent twice", key.edge);
  const Outgoing asked = found->about;
  outgoing_.erase(key);
  --wanted_;
  asked.taker->give(asked.index, values);
  count_down(asked.taker.get());
  return {};
}

void StepState::answer(std::span<const RendezvousKey> keys,
                       const base::CountedPtr<Task::Taker>& taker) {
  if (!refusal_.ok()) return taker->end(refusal_);
  taker->missing_ = keys.size() + 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto* const found = outgoing_.find(keys[i]);
    if (found == nullptr) {
      outgoing_.add(keys[i]).about = {.taker = taker, .index = i};
      ++wanted_;
    } else if (found->about.taker == nullptr) {
      taker->give(i, found->values);
      outgoing_.erase(keys[i]);
      count_down(taker.get());
    } else {
      withdraw(taker);
      return taker->end(base::invalid_argument("edge {} was asked for twice", keys[i].edge));
    }
  }
  // For the question itself: one of no keys ends here.
  count_down(taker.get());
}

void StepState::withdraw(const base::CountedPtr<Task::Taker>& taker) {
  outgoing_.erase_if([&](const Outgoing& one) {
    if (one.taker != taker) return false;
    --wanted_;
    return true;
  });
}

void StepState::refuse_questions(const Status& status) {
  refusal_ = status;
  outgoing_.each([&](const Outgoing& one) {
    // One who asked for several is told once.
    if (one.taker == nullptr || std::exchange(one.taker->missing_, 0) == 0) return;
    one.taker->end(status);
  });
  outgoing_.clear();
  wanted_ = 0;
}

Result<std::span<Tensor>> StepState::receive(const RendezvousKey& key,
                                             const ports::TensorSource& source, size_t count) {
  auto* const found = incoming_.find(key);
  if (found != nullptr && found->about.is_here) {
    received_.swap(found->values);
    incoming_.erase(key);
    return std::span<Tensor>(received_);
  }
  if (found == nullptr) {
    incoming_.add(key);
    const Peers::Wanted wanted = {.key = key, .count = count};
    ask(source, {&wanted, 1});
  }
  return std::span<Tensor>();
}

void StepState::ask_ahead(const std::vector<Receives>& receives, uint64_t step_id) {
  for (const Receives& from : receives) {
    asking_.clear();
    for (const Receives::Parcel& one : from.parcels) {
      const RendezvousKey key = {.edge = one.edge, .step = step_id};
      if (incoming_.find(key) != nullptr) continue;
      incoming_.add(key);
      asking_.push_back({.key = key, .count = one.count});
    }
    std::span<const Peers::Wanted> left(asking_);
    while (!left.empty()) {
      const size_t count = std::min(left.size(), static_cast<size_t>(kQuestionKeysMax));
      ask((*finished_.program->peers)[from.peer], left.first(count));
      left = left.subspan(count);
    }
  }
}

void StepState::ask(const ports::TensorSource& source, std::span<const Peers::Wanted> wanted) {
  base::CountedPtr<Peers::Question> question = peers_->ask(source, number_, wanted, asker_);
  if (question != nullptr) questions_.push_back(std::move(question));
}

void StepState::arrived(const RendezvousKey& key, std::span<Tensor> values) {
  auto* const found = incoming_.find(key);
  if (found == nullptr) return;
  found->values.assign(std::make_move_iterator(values.begin()),
                       std::make_move_iterator(values.end()));
  found->about.is_here = true;
}

void StepState::ended(const Peers::Question* question, const Status& status) {
  std::erase_if(questions_, [question](const auto& one) { return one.get() == question; });
  if (failure_.ok()) failure_ = status;
}

/// What comes of them does not matter any more.
void StepState::cancel_questions() {
  while (!questions_.empty()) {
    // It may end at once.
    const base::CountedPtr<Peers::Question> question = std::move(questions_.back());
    questions_.pop_back();
    question->cancel();
  }
}

}  // namespace sidereal::task
