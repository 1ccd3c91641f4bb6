#include "sidereal/runtime/step_state.h"

#include <algorithm>

namespace sidereal::runtime {

using ports::Parcel;
using ports::RendezvousKey;

StepState::~StepState() { clear(); }

void StepState::clear() {
  for (const auto& [id, question] : questions_) question->cancel();
  questions_.clear();
  sent_.clear();
  wanted_.clear();
  open_.clear();
  arrived_.clear();
  asked_.clear();
  refusal_ = {};
  next_question_ = 0;
  begun_ = false;
  finished_ = {};
  posted_stop_ = nullptr;
  session = 0;
  whole = false;
  pull_ahead_ms = 0;
  blocked = false;
  waits_for_tensor = false;
  trace = nullptr;
  trace_process = 0;
}

void StepState::set_program(base::CountedPtr<SessionProgram> program,
                            std::shared_ptr<exec::StopSignal> posted) {
  finished_.program = std::move(program);
  posted_stop_ = std::move(posted);
  if (posted_stop_ == nullptr) own_stop_.emplace(finished_.program->stop.get());
}

void StepState::start(std::unique_ptr<CallingStep> step, Task::Done done) {
  begun_ = true;
  finished_.step = std::move(step);
  finished_.done = std::move(done);
}

StepState::Finished StepState::finish(const Status& status) {
  blocked = false;
  for (const auto& [id, question] : questions_) question->cancel();
  questions_.clear();
  arrived_.clear();
  asked_.clear();
  if (!status.ok()) refuse_questions(status);
  return std::exchange(finished_, {});
}

void StepState::count_down(const std::shared_ptr<Task::Taker>& taker) {
  const auto found = open_.find(taker);
  if (--found->second > 0) return;
  taker->end({});
  open_.erase(found);
}

Status StepState::send(const RendezvousKey& key, Parcel values) {
  const auto found = wanted_.find(key);
  if (found != wanted_.end()) {
    const Asked asked = std::move(found->second);
    wanted_.erase(found);
    asked.taker->give(asked.index, std::move(values));
    count_down(asked.taker);
    return {};
  }
  if (sent_.try_emplace(key, std::move(values)).second) return {};
  return base::internal("edge {} was sent twice", key.edge);
}

void StepState::answer(const std::vector<RendezvousKey>& keys,
                       const std::shared_ptr<Task::Taker>& taker) {
  if (!refusal_.ok()) return taker->end(refusal_);
  open_[taker] = keys.size() + 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = sent_.find(keys[i]);
    if (found != sent_.end()) {
      Parcel values = std::move(found->second);
      sent_.erase(found);
      taker->give(i, std::move(values));
      count_down(taker);
    } else if (!wanted_.try_emplace(keys[i], Asked{taker, i}).second) {
      withdraw(taker);
      return taker->end(base::invalid_argument("edge {} was asked for twice", keys[i].edge));
    }
  }
  // For the question itself: one of no keys ends here.
  count_down(taker);
}

void StepState::withdraw(const std::shared_ptr<Task::Taker>& taker) {
  absl::erase_if(wanted_, [&](const auto& one) { return one.second.taker == taker; });
  open_.erase(taker);
}

void StepState::refuse_questions(const Status& status) {
  refusal_ = status;
  wanted_.clear();
  sent_.clear();
  for (const auto& [taker, count] : open_) taker->end(status);
  open_.clear();
}

Result<std::optional<Parcel>> StepState::receive(const RendezvousKey& key,
                                                 const ports::TensorSource& source, size_t count) {
  const auto found = arrived_.find(key);
  if (found != arrived_.end()) {
    std::optional<Parcel> values = std::move(found->second);
    arrived_.erase(found);
    asked_.erase(key);
    return values;
  }
  if (!asked_.contains(key)) {
    asked_.insert(key);
    ask(source, {{.key = key, .count = count}});
  }
  waits_for_tensor = true;
  return std::optional<Parcel>();
}

void StepState::ask_ahead(const std::vector<Receives>& receives, uint64_t step_id) {
  for (const Receives& from : receives) {
    std::vector<Peers::Wanted> wanted;
    for (const Receives::Parcel& one : from.parcels) {
      const RendezvousKey key = {.edge = one.edge, .step = step_id};
      if (asked_.insert(key).second) wanted.push_back({.key = key, .count = one.count});
    }
    for (auto at = wanted.begin(); at != wanted.end();) {
      const auto end = at + std::min<int64_t>(wanted.end() - at, kQuestionKeysMax);
      ask((*finished_.program->peers)[from.peer], {at, end});
      at = end;
    }
  }
}

void StepState::ask(const ports::TensorSource& source, const std::vector<Peers::Wanted>& wanted) {
  const auto post = [post = *post_, number = number_](News news) { post(number, std::move(news)); };
  const uint64_t id = ++next_question_;
  std::shared_ptr<Peers::Question> question = peers_->ask(
      source, number_, wanted,
      [post, wanted](size_t index, Parcel values) {
        auto held = std::make_shared<Parcel>(std::move(values));
        post([key = wanted[index].key, held](StepState* step) -> Status {
          step->arrived_[key] = std::move(*held);
          return {};
        });
      },
      [post, id](const Status& status) {
        post([status, id](StepState* step) -> Status {
          step->questions_.erase(id);
          return status;
        });
      });
  // What it tells comes after this, through the mail.
  if (question != nullptr) questions_[id] = std::move(question);
}

}  // namespace sidereal::runtime
