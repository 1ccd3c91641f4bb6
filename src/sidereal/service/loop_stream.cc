#include "sidereal/service/internal/loop_stream.h"

#include <utility>
#include <vector>

#include "sidereal/base/log.h"
#include "sidereal/service/loop_message.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

using task::to_proto;

namespace v1 = session::v1;

namespace {

/// Messages and tensors that may wait to be written before the loop begins no more steps, and
/// so many that it goes on.
constexpr size_t kWaitingMax = 256;
constexpr size_t kWaitingFew = 64;
constexpr int kConstantsMax = 1 << 16;

Status gone() { return base::cancelled("the client has gone"); }

}  // namespace

Status LoopStream::take(v1::LoopRequest* request) {
  if (request->has_head()) SR_RETURN_IF_ERROR(begin(request->head()));
  if (request->has_piece()) {
    if (!joiner_) return base::invalid_argument("a piece before the head");
    SR_ASSIGN_OR_RETURN(auto value, joiner_->add(request->piece()));
    if (value) {
      options_.constants[static_cast<size_t>(value->first)].second = std::move(value->second);
      --missing_;
    }
  }
  if (request->has_control()) SR_RETURN_IF_ERROR(take_control(request->control()));
  return joiner_ && missing_ == 0 && !ran_ ? run() : Status();
}

Status LoopStream::take_control(const v1::LoopControl& control) {
  if (!ran_) return base::invalid_argument("a word to a loop that has not begun");
  std::shared_ptr<master::LoopRun> loop;
  {
    const std::lock_guard lock(loop_mutex_);
    loop = loop_;
  }
  if (loop == nullptr) return {};  // It has ended.
  SR_RETURN_IF_ERROR(loop->heard({control.heard().begin(), control.heard().end()}));
  if (control.drain()) loop->drain();
  if (control.stop()) loop->cancel(base::cancelled("the client stopped the loop"));
  return {};
}

Status LoopStream::begin(const v1::LoopHead& head) {
  if (joiner_) return base::invalid_argument("a second head");
  if (head.constants_size() > kConstantsMax) {
    return base::invalid_argument("{} constants", head.constants_size());
  }
  SR_ASSIGN_OR_RETURN(session_, service_.find(head.session()));
  SR_ASSIGN_OR_RETURN(options_, from_proto(head));
  SR_RETURN_IF_ERROR(master::check_loop(options_));
  missing_ = options_.constants.size();
  joiner_.emplace(head.constants_size(), service_.arriving);
  return {};
}

Status LoopStream::run() {
  ran_ = true;
  ++*service_.running;
  const auto self = std::static_pointer_cast<LoopStream>(shared_from_this());
  auto loop = session_->run_loop(std::move(options_), self);
  if (!loop.ok()) {
    ended(loop.status());
    return {};
  }
  bool is_late = false;
  {
    const std::lock_guard lock(loop_mutex_);
    is_late = has_gone_;
    if (!is_late) loop_ = *loop;
  }
  if (is_late) (*loop)->cancel(gone());
  return {};
}

bool LoopStream::take_progress(int lane, const task::LoopProgress& progress,
                               const std::vector<std::vector<double>>& series, bool is_last) {
  if (!is_last && !has_room()) return false;
  v1::LoopEvent event;
  to_proto(lane, progress, series, event.mutable_progress());
  event.mutable_progress()->set_is_last(is_last);
  put(std::move(event));
  note_waiting();
  return true;
}

void LoopStream::take_values(task::LoopValues values) {
  v1::LoopEvent event;
  v1::LoopValues* const head = event.mutable_values();
  head->set_lane(values.lane);
  head->set_step(values.step);
  head->set_rows(values.rows);
  std::vector<tensor::Tensor> tensors;
  for (auto& [index, value] : values.values) {
    head->add_indices(index);
    tensors.push_back(std::move(value));
  }
  put_all(std::move(event), tensors);
  note_waiting();
}

void LoopStream::take_trace(std::string trace) {
  v1::LoopEvent event;
  event.set_trace(std::move(trace));
  put(std::move(event));
  note_waiting();
}

void LoopStream::note_waiting() {
  if (waiting() < kWaitingMax) return;
  has_room_ = false;
  // It may have been written meanwhile, and nothing is going to be again.
  if (waiting() <= kWaitingFew) wrote(0);
}

void LoopStream::wrote(size_t waiting) {
  if (waiting > kWaitingFew || has_room_.exchange(true)) return;
  std::shared_ptr<master::LoopRun> loop;
  {
    const std::lock_guard lock(loop_mutex_);
    loop = loop_;
  }
  if (loop != nullptr) loop->go_on();
}

void LoopStream::ended(const Status& status) {
  --*service_.running;
  base::log_line(
      service_.log_level,
      fmt::format("loop ended status={}{}", base::code_name(status.code()),
                  status.ok() ? "" : fmt::format(" why=\"{}\"", base::message_of(status))));
  v1::LoopEvent event;
  v1::StepTail* const tail = event.mutable_tail();
  if (!status.ok()) to_proto(status, false, tail->mutable_failure());
  {
    const std::lock_guard lock(loop_mutex_);
    loop_ = nullptr;
    has_gone_ = true;
  }
  put_last(std::move(event));
}

Status LoopStream::half_closed() {
  if (ran_) return {};
  if (!joiner_) return base::invalid_argument("a loop without a head");
  return base::invalid_argument("the client closed its side of a loop that {} of {} constants lack",
                                missing_, options_.constants.size());
}

void LoopStream::hung_up() {
  std::shared_ptr<master::LoopRun> loop;
  {
    const std::lock_guard lock(loop_mutex_);
    has_gone_ = true;
    loop = loop_;
  }
  if (loop != nullptr) loop->cancel(gone());
}

}  // namespace sidereal::service
