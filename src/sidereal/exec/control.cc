#include "sidereal/exec/control.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::exec {

using base::invalid_argument;
using program::SlotInfo;
using tensor::Shape;
using tensor::Tensor;
using Kind = program::ControlSpec::Kind;

namespace {

/// Rows for which a stack of unknown height takes memory at first.
constexpr int64_t kFirstRows = 16;

/// The number that ops in iteration `row` of a loop take for that of the step, so that random
/// numbers differ between iterations and agree between a loop and its reverse.
uint64_t iteration_id(uint64_t step, int64_t row) {
  uint64_t x = step + 0x9e3779b97f4a7c15U * (static_cast<uint64_t>(row) + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

Shape stacked_shape(int64_t rows, const Shape& row) {
  Shape out{rows};
  for (const int64_t extent : row.dims()) out.append(extent);
  return out;
}

}  // namespace

Status StopSignal::status() const {
  switch (reason_.load(std::memory_order_relaxed)) {
    case Reason::kNone:
      return wider_ != nullptr ? wider_->status() : Status();
    case Reason::kCancelled:
      return base::make_status(StatusCode::kCancelled, "the step was cancelled");
    case Reason::kDeadline:
      return base::make_status(StatusCode::kDeadlineExceeded,
                               "the deadline of the step has passed");
  }
  return {};
}

void Stack::begin() {
  // Two holders are the pool and this.
  const bool strings = dtype_ == tensor::DType::kString;
  if (buffer_ != nullptr && (strings || buffer_->holders() > 2)) buffer_.reset();
  dtype_ = tensor::DType::kInvalid;
}

void Stack::reserve(size_t bytes, size_t used) {
  if (buffer_ != nullptr && buffer_->bytes() >= bytes) return;
  const bool strings = dtype_ == tensor::DType::kString;
  // What strings show is kept by their buffer, so theirs is not one of the pool's.
  tensor::Buffer::Ptr larger = strings ? tensor::Buffer::allocate(bytes) : pool_->acquire(bytes);
  if (strings && buffer_ != nullptr) larger->keep_all_of(*buffer_);
  if (used > 0) __builtin_memcpy(larger->data(), buffer_->data(), used);
  buffer_ = std::move(larger);
}

Status Stack::put(int64_t at, int64_t rows, const Tensor& row) {
  const size_t bytes = row.nbytes();
  if (dtype_ == tensor::DType::kInvalid) {
    dtype_ = row.dtype();
    row_ = row.shape();
    reserve(static_cast<size_t>(rows < 0 ? kFirstRows : rows) * bytes, 0);
  } else if (!(row.shape() == row_)) {
    return base::unimplemented(
        "a value that is stacked over the iterations has shape {} in one iteration and {} in "
        "another; gradients of such loops, and their outputs, need one shape",
        row_.to_string(), row.shape().to_string());
  }
  const size_t used = static_cast<size_t>(at) * bytes;
  if (rows < 0 && buffer_->bytes() < used + bytes) reserve(2 * (used + bytes), used);
  if (bytes > 0) __builtin_memcpy(buffer_->data() + used, row.raw(), bytes);
  if (dtype_ == tensor::DType::kString) buffer_->keep_all_of(*row.buffer());
  return {};
}

Tensor Stack::take(int64_t rows, const SlotInfo& info) const {
  if (dtype_ != tensor::DType::kInvalid) return {dtype_, stacked_shape(rows, row_), buffer_};
  Shape shape{0};
  for (int i = 1; info.shape.has_rank() && i < info.shape.rank(); ++i) {
    shape.append(std::max<int64_t>(info.shape.dim(i), 0));
  }
  return Tensor::empty(info.dtype, shape);
}

Step::Control::Control(Step* parent, const program::Instruction* instruction)
    : parent_(parent), instruction_(*instruction) {
  auto spec = program::control_spec(instruction_);
  SR_CHECK(spec.ok(), "{}", base::message_of(spec.status()));
  spec_ = *spec;
  for (const int32_t body : instruction_.bodies) {
    steps_.push_back(
        std::make_unique<Step>(parent->bound_->body(body), parent->pool_, parent->exchange_));
    steps_.back()->set_root(parent->root_);
  }
  variables_.resize(spec_.variables);
  row_shapes_.resize(spec_.sequences);
  if (is_loop()) {
    for (auto& step : steps_) step->take_turns();
    stacks_.resize(instruction_.outputs.size() - spec_.variables, Stack(parent->pool_));
  }
}

bool Step::Control::is_loop() const {
  return spec_.kind == Kind::kWhile || spec_.kind == Kind::kScan;
}

const Tensor& Step::Control::input(size_t i) const {
  return parent_->slots_[instruction_.inputs[i]];
}

void Step::Control::set_root(Step* root) {
  for (auto& step : steps_) step->set_root(root);
}

void Step::Control::set_stop_signal(const StopSignal* stop) {
  for (auto& step : steps_) step->set_stop_signal(stop);
}

std::string Step::Control::waits_for() const { return running()->waits_for(); }

bool Step::Control::waits_for_message() const { return running()->waits_for_messages(); }

void Step::Control::set_trace(Trace* trace, int32_t track) {
  for (auto& step : steps_) step->set_trace(trace, track);
}

void Step::Control::set_workers(Workers* workers) {
  for (auto& step : steps_) step->set_workers(workers);
}

void Step::Control::set_rendezvous(ports::Rendezvous* rendezvous) {
  for (auto& step : steps_) step->set_rendezvous(rendezvous);
}

void Step::Control::reset() {
  if (phase_ == Phase::kIdle) return;
  phase_ = Phase::kIdle;
  for (Tensor& variable : variables_) variable = Tensor();
  for (auto& step : steps_) step->end();
}

Status Step::Control::in_context(const Status& status) const {
  const std::string where = is_loop() ? fmt::format(", iteration {}", iteration_) : "";
  return base::with_context(status,
                            fmt::format("{} '{}'{}", instruction_.op, instruction_.name, where));
}

Result<bool> Step::Control::read_flag(const Tensor& value) const {
  if (value.dtype() == tensor::DType::kBool && value.num_elements() == 1) {
    return value.data<const bool>()[0];
  }
  return invalid_argument("the condition is {}; it must be one bool", value.to_string());
}

/// The number of rows of the sequences, which must agree.
Status Step::Control::find_rows() {
  rows_ = spec_.length;
  for (size_t i = 0; i < spec_.sequences; ++i) {
    const Shape& shape = input(spec_.variables + i).shape();
    if (shape.rank() == 0) return invalid_argument("sequence {} is a scalar", i);
    if (rows_ < 0) rows_ = shape.dim(0);
    if (shape.dim(0) != rows_) {
      return invalid_argument("sequence {} has {} rows where {} are expected", i, shape.dim(0),
                              rows_);
    }
    row_shapes_[i] = Shape(shape.dims().subspan(1));
  }
  return {};
}

int64_t Step::Control::row() const { return spec_.reverse ? rows_ - 1 - iteration_ : iteration_; }

Status Step::Control::start() {
  taken_ = 0;
  iteration_ = 0;
  if (spec_.kind == Kind::kFunctionCall) return start_body();
  if (spec_.kind == Kind::kIf) {
    SR_ASSIGN_OR_RETURN(const bool yes, read_flag(input(0)));
    taken_ = yes ? 0 : 1;
    return start_body();
  }
  if (spec_.kind == Kind::kScan) SR_RETURN_IF_ERROR(find_rows());
  if (spec_.kind == Kind::kWhile) taken_ = 1;
  for (size_t i = 0; i < variables_.size(); ++i) variables_[i] = input(i);
  for (Stack& stack : stacks_) stack.begin();
  return {};
}

Status Step::Control::feed_body(Step* body) {
  const size_t first = spec_.kind == Kind::kIf ? 1 : 0;
  for (size_t i = first; i < instruction_.inputs.size(); ++i) {
    const auto at = static_cast<int>(i - first);
    if (i < spec_.variables) {
      SR_RETURN_IF_ERROR(body->feed(at, variables_[i]));
    } else if (i < spec_.variables + spec_.sequences) {
      const Shape& shape = row_shapes_[i - spec_.variables];
      SR_RETURN_IF_ERROR(body->feed(at, input(i).rows(row(), 1).reshaped(shape)));
    } else {
      SR_RETURN_IF_ERROR(body->feed(at, input(i)));
    }
  }
  return {};
}

/// Begins a step of a body, under the number of the iteration.
void Step::Control::begin(Step* body) {
  body->begin(is_loop() ? iteration_id(parent_->step_id_, row()) : parent_->step_id_,
              parent_->closure_);
  body->traced_step_ = parent_->traced_step_;
}

Status Step::Control::start_body() {
  Step* body = steps_[taken_].get();
  begin(body);
  SR_RETURN_IF_ERROR(feed_body(body));
  phase_ = Phase::kBody;
  return {};
}

Result<bool> Step::Control::next_iteration() {
  if (spec_.kind == Kind::kScan) {
    if (iteration_ >= rows_) return false;
    SR_RETURN_IF_ERROR(start_body());
    return true;
  }
  if (spec_.maximum_iterations >= 0 && iteration_ >= spec_.maximum_iterations) return false;
  begin(steps_[0].get());
  SR_RETURN_IF_ERROR(feed_body(steps_[0].get()));
  phase_ = Phase::kCondition;
  return true;
}

/// Takes what a body that has run returned.
Status Step::Control::take_body(Step* body) {
  for (size_t i = 0; i < variables_.size(); ++i) variables_[i] = body->fetch(static_cast<int>(i));
  for (size_t i = 0; i < stacks_.size(); ++i) {
    const Tensor& y = body->fetch(static_cast<int>(i + variables_.size()));
    SR_RETURN_IF_ERROR(stacks_[i].put(row(), rows_, y));
  }
  if (!is_loop()) {
    for (size_t i = 0; i < instruction_.outputs.size(); ++i) {
      set_output(i, body->fetch(static_cast<int>(i)));
    }
  }
  body->end();
  ++iteration_;
  return {};
}

void Step::Control::set_output(size_t i, Tensor value) {
  // A body may return what it was given. If the plan owns that memory, it will use it again.
  const tensor::Buffer* memory = value.buffer().get();
  const auto is_memory = [&](const tensor::Buffer::Ptr& held) { return held.get() == memory; };
  const bool given =
      std::any_of(instruction_.inputs.begin(), instruction_.inputs.end(),
                  [&](int32_t slot) { return is_memory(parent_->slots_[slot].buffer()); });
  if (given && std::any_of(parent_->buffers_.begin(), parent_->buffers_.end(), is_memory)) {
    Tensor copy = parent_->pool_->tensor(value.dtype(), value.shape());
    if (value.nbytes() > 0) __builtin_memcpy(copy.raw(), value.raw(), value.nbytes());
    copy.buffer()->keep_all_of(*value.buffer());
    value = std::move(copy);
  }
  parent_->slots_[instruction_.outputs[i]] = std::move(value);
}

Status Step::Control::finish() {
  phase_ = Phase::kIdle;
  if (!is_loop()) return {};
  for (size_t i = 0; i < variables_.size(); ++i) {
    set_output(i, variables_[i]);
    variables_[i] = Tensor();
  }
  for (size_t i = 0; i < stacks_.size(); ++i) {
    const int32_t slot = instruction_.outputs[i + variables_.size()];
    parent_->slots_[slot] = stacks_[i].take(iteration_, parent_->bound_->program().slots[slot]);
  }
  return {};
}

Result<Step::Progress> Step::Control::advance(bool stop_at_wait) {
  const auto go_on = [&]() -> Result<Progress> {
    if (phase_ == Phase::kIdle) {
      SR_RETURN_IF_ERROR(start());
      if (is_loop()) {
        SR_ASSIGN_OR_RETURN(const bool more, next_iteration());
        if (!more) {
          SR_RETURN_IF_ERROR(finish());
          return Progress::kDone;
        }
      }
    }
    while (true) {
      Step* const body = running();
      SR_ASSIGN_OR_RETURN(const Progress progress, body->run(stop_at_wait));
      if (progress == Progress::kBlocked) return progress;
      bool more = false;
      if (phase_ == Phase::kCondition) {
        SR_ASSIGN_OR_RETURN(more, read_flag(body->fetch(0)));
        body->end();
        if (more) SR_RETURN_IF_ERROR(start_body());
      } else {
        SR_RETURN_IF_ERROR(take_body(body));
        if (is_loop()) {
          SR_ASSIGN_OR_RETURN(more, next_iteration());
        }
      }
      if (more) continue;
      SR_RETURN_IF_ERROR(finish());
      return Progress::kDone;
    }
  };
  Result<Progress> progress = go_on();
  if (progress.ok()) return progress;
  // As if it had run, so that reset() lets go of everything.
  phase_ = Phase::kBody;
  return in_context(progress.status());
}

}  // namespace sidereal::exec
