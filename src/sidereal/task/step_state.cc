#include "sidereal/task/step_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sidereal::task {

using ports::RendezvousKey;
using tensor::Tensor;

StepState::~StepState() { clear(); }

void StepState::clear() {
  cancel_receive_requests();
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
  pull_prefetch_ms = 0;
  turns = nullptr;
  blocked = false;
  failed_within = false;
  trace = nullptr;
  trace_process = 0;
}

void StepState::set_program(base::RefPtr<SessionProgram> program,
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
  cancel_receive_requests();
  incoming_.clear();
  received_.clear();
  if (!status.ok()) refuse_receive_requests(status);
  return std::exchange(finished_, {});
}

void StepState::count_down(Task::Receiver* receiver) {
  if (--receiver->missing_ == 0) receiver->end({});
}

Status StepState::send(const RendezvousKey& key, std::span<const Tensor> values) {
  const auto* const found = outgoing_.find(key);
  if (found == nullptr) {
    outgoing_.add(key).values.assign(values.begin(), values.end());
    return {};
  }
  if (found->about.receiver == nullptr) return base::internal("edge {} was sent twice", key.edge);
  const Outgoing asked = found->about;
  outgoing_.erase(key);
  --wanted_;
  asked.receiver->give(asked.index, values);
  count_down(asked.receiver.get());
  return {};
}

void StepState::answer(std::span<const RendezvousKey> keys,
                       const base::RefPtr<Task::Receiver>& receiver) {
  if (!refusal_.ok()) return receiver->end(refusal_);
  receiver->missing_ = keys.size() + 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto* const found = outgoing_.find(keys[i]);
    if (found == nullptr) {
      outgoing_.add(keys[i]).about = {.receiver = receiver, .index = i};
      ++wanted_;
    } else if (found->about.receiver == nullptr) {
      receiver->give(i, found->values);
      outgoing_.erase(keys[i]);
      count_down(receiver.get());
    } else {
      withdraw(receiver);
      return receiver->end(base::invalid_argument("edge {} was asked for twice", keys[i].edge));
    }
  }
  // For the receive request itself: one of no keys ends here.
  count_down(receiver.get());
}

void StepState::withdraw(const base::RefPtr<Task::Receiver>& receiver) {
  outgoing_.erase_if([&](const Outgoing& one) {
    if (one.receiver != receiver) return false;
    --wanted_;
    return true;
  });
}

void StepState::refuse_receive_requests(const Status& status) {
  refusal_ = status;
  outgoing_.each([&](const Outgoing& one) {
    // One who asked for several is told once.
    if (one.receiver == nullptr || std::exchange(one.receiver->missing_, 0) == 0) return;
    one.receiver->end(status);
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
    for (const Receives::TensorGroup& one : from.tensor_groups) {
      const RendezvousKey key = {.edge = one.edge, .step = step_id};
      if (incoming_.find(key) != nullptr) continue;
      incoming_.add(key);
      asking_.push_back({.key = key, .count = one.count});
    }
    std::span<const Peers::Wanted> left(asking_);
    while (!left.empty()) {
      const size_t count = std::min(left.size(), static_cast<size_t>(kReceiveRequestKeysMax));
      ask((*finished_.program->peers)[from.peer], left.first(count));
      left = left.subspan(count);
    }
  }
}

void StepState::ask(const ports::TensorSource& source, std::span<const Peers::Wanted> wanted) {
  base::RefPtr<Peers::ReceiveRequest> receive_request =
      peers_->ask(source, number_, wanted, requester_);
  if (receive_request != nullptr) receive_requests_.push_back(std::move(receive_request));
}

void StepState::arrived(const RendezvousKey& key, std::span<Tensor> values) {
  auto* const found = incoming_.find(key);
  if (found == nullptr) return;
  found->values.assign(std::make_move_iterator(values.begin()),
                       std::make_move_iterator(values.end()));
  found->about.is_here = true;
  if (running()) step()->arrived(key);
}

void StepState::ended(const Peers::ReceiveRequest* receive_request, const Status& status) {
  std::erase_if(receive_requests_,
                [receive_request](const auto& one) { return one.get() == receive_request; });
  if (failure_.ok()) failure_ = status;
  if (running()) step()->look_again();
}

/// What comes of them does not matter any more.
void StepState::cancel_receive_requests() {
  while (!receive_requests_.empty()) {
    // It may end at once.
    const base::RefPtr<Peers::ReceiveRequest> receive_request = std::move(receive_requests_.back());
    receive_requests_.pop_back();
    receive_request->cancel();
  }
}

}  // namespace sidereal::task
