#include "sidereal/resources/step_barrier.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/strings.h"

namespace sidereal::resources {

using base::invalid_argument;
using tensor::Tensor;

std::shared_ptr<StepBarrier> StepBarrier::make(std::string name) {
  return std::shared_ptr<StepBarrier>(new StepBarrier(std::move(name)));
}

Status StepBarrier::restart(int64_t first, int64_t bound, std::vector<std::string> names) {
  if (first < 0 || bound < 0) {
    return invalid_argument(
        "barrier '{}' from replica {} on with a bound of {}; neither may be "
        "negative",
        name_, first, bound);
  }
  const auto count = static_cast<int64_t>(names.size());
  if (names.empty() || names.size() > kReplicasMax ||
      first > std::numeric_limits<int64_t>::max() - count) {
    return invalid_argument("barrier '{}' of {} replicas from {} on; there must be 1 to {}", name_,
                            count, first, kReplicasMax);
  }
  const std::lock_guard lock(mutex_);
  end_all(base::aborted("barrier '{}' begins anew", name_));
  first_ = first;
  bound_ = bound;
  replicas_.clear();
  for (std::string& name : names) replicas_.push_back({.name = std::move(name)});
  return {};
}

Status StepBarrier::check(int64_t replica) const {
  if (replica >= 0 && replica - first_ < static_cast<int64_t>(replicas_.size())) {
    if (is_of_before(replica)) return {};
    const Replica& one = replicas_[static_cast<size_t>(replica - first_)];
    if (!one.is_replaced) return {};
    return base::failed_precondition(
        "another worker has joined barrier '{}' as '{}': each has a name of its own", name_,
        one.name);
  }
  return invalid_argument("replica {} at barrier '{}', which has {} from {} on", replica, name_,
                          replicas_.size(), first_);
}

/// Of what waits, which one of before may not.
Status StepBarrier::check_now(int64_t replica) const {
  SR_RETURN_IF_ERROR(check(replica));
  if (is_of_before(replica)) return base::aborted("barrier '{}' has begun anew", name_);
  return {};
}

Result<std::unique_ptr<Ticket>> StepBarrier::await(int64_t replica) {
  auto request = std::make_shared<Request>();
  request->count = replica;
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(check_now(replica));
  take_back(&at(replica));
  waiting_.push_back(request);
  serve();
  return std::make_unique<Ticket>(shared_from_this(), std::move(request));
}

Status StepBarrier::advance(int64_t replica) {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(check(replica));
  if (is_of_before(replica)) return {};
  Replica& one = at(replica);
  take_back(&one);
  ++one.steps;
  serve();
  return {};
}

Status StepBarrier::leave(int64_t replica, int64_t steps) {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(check(replica));
  if (steps < 0) {
    return invalid_argument("replica {} leaves barrier '{}' after {} steps", replica, name_, steps);
  }
  if (is_of_before(replica)) return {};
  at(replica).last = steps;
  serve();
  return {};
}

Result<int64_t> StepBarrier::join(const std::string& name, int64_t bound) {
  if (bound < 0) return invalid_argument("a bound of {}; it may not be negative", bound);
  const std::lock_guard lock(mutex_);
  int64_t before = 0;
  bool any_trains = false;
  for (Replica& one : replicas_) {
    if (one.name == name) one.is_replaced = true;
    any_trains |= one.trains();
    before = std::max(before, one.steps);
  }
  if (any_trains && bound != bound_) {
    return invalid_argument("'{}' joins barrier '{}' with a bound of {}, and that of others is {}",
                            name, name_, bound, bound_);
  }
  // Those that have left; what is replaced may be heard of yet, and is refused by its number.
  while (!replicas_.empty() && replicas_.front().has_left()) {
    replicas_.pop_front();
    ++first_;
  }
  if (replicas_.size() >= kReplicasMax) {
    return base::resource_exhausted("barrier '{}' has {} replicas", name_, replicas_.size());
  }
  bound_ = bound;
  replicas_.push_back({.name = name, .steps = any_trains ? fewest_steps() : before});
  serve();
  return first_ + static_cast<int64_t>(replicas_.size()) - 1;
}

Result<std::vector<std::string>> StepBarrier::expel(int64_t replica) {
  std::vector<std::string> out;
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(check(replica));
  if (is_of_before(replica)) return out;
  const int64_t least = at(replica).steps - bound_;
  for (Replica& one : replicas_) {
    if (!one.trains() || one.steps >= least) continue;
    one.is_expelled = true;
    out.push_back(one.name);
  }
  serve();
  return out;
}

/// One that was expelled is heard of.
void StepBarrier::take_back(Replica* replica) {
  if (!replica->is_expelled) return;
  const int64_t fewest = fewest_steps();
  replica->is_expelled = false;
  if (fewest != std::numeric_limits<int64_t>::max()) replica->steps = fewest;
}

/// Of those that train.
int64_t StepBarrier::fewest_steps() const {
  int64_t out = std::numeric_limits<int64_t>::max();
  for (const Replica& one : replicas_) {
    if (one.trains()) out = std::min(out, one.steps);
  }
  return out;
}

void StepBarrier::serve() {
  if (waiting_.empty()) return;
  const int64_t fewest = fewest_steps();
  std::erase_if(waiting_, [&](const RequestPtr& request) {
    // One that has left may ask all the same, and a name may have another replica by now.
    if (Status known = check_now(request->count); !known.ok()) {
      request->status = std::move(known);
      request->done = true;
      return true;
    }
    const int64_t step = at(request->count).steps;
    if (step - bound_ > fewest) return false;
    request->result = {Tensor::scalar(step)};
    request->done = true;
    return true;
  });
}

void StepBarrier::end_all(const Status& why) {
  for (const RequestPtr& request : waiting_) {
    request->done = true;
    request->status = why;
  }
  waiting_.clear();
}

std::string StepBarrier::describe(int64_t replica) const {
  const std::lock_guard lock(mutex_);
  if (!check(replica).ok() || is_of_before(replica)) return fmt::format("barrier '{}'", name_);
  const Replica& mine = replicas_[static_cast<size_t>(replica - first_)];
  const Replica* slowest = nullptr;
  size_t behind = 0;
  for (const Replica& one : replicas_) {
    if (!one.trains() || one.steps >= mine.steps - bound_) continue;
    ++behind;
    if (slowest == nullptr || one.steps < slowest->steps) slowest = &one;
  }
  const std::string step = fmt::format("step {} of {}", mine.steps, mine.name);
  if (slowest == nullptr) return fmt::format("barrier '{}', for {}", name_, step);
  return fmt::format("barrier '{}', where {} has ended {} steps{}, for {}", name_, slowest->name,
                     slowest->steps,
                     behind > 1 ? fmt::format(" and {} more are behind", behind - 1) : "", step);
}

void StepBarrier::cancel() {
  const std::lock_guard lock(mutex_);
  end_all(base::cancelled("barrier '{}' is gone", name_));
}

bool StepBarrier::poll(const Request& request) {
  const std::lock_guard lock(mutex_);
  return request.done;
}

void StepBarrier::withdraw(const RequestPtr& request) {
  const std::lock_guard lock(mutex_);
  std::erase(waiting_, request);
}

}  // namespace sidereal::resources
