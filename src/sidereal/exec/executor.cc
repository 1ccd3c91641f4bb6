#include "sidereal/exec/executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/exec/control.h"

namespace sidereal::exec {

using base::invalid_argument;
using program::Instruction;
using program::InstructionKind;
using program::SlotInfo;
using tensor::Tensor;

namespace {

/// "MatMul 'tower/0' (float32[2,3], float32[3,4])" for error messages.
std::string describe(const Instruction& instruction, const std::vector<Tensor>& slots) {
  std::vector<std::string> inputs;
  for (const int32_t slot : instruction.inputs) inputs.push_back(slots[slot].to_string());
  return fmt::format("{} '{}' ({})", instruction.op, instruction.name, fmt::join(inputs, ", "));
}

Status check_value(const SlotInfo& info, tensor::DType dtype, const tensor::Shape& shape,
                   std::string_view what) {
  if (dtype == info.dtype && info.shape.accepts(shape)) return {};
  return invalid_argument("{} is {}{}, but {}{} is needed", what, tensor::name_of(dtype),
                          shape.to_string(), tensor::name_of(info.dtype), info.shape.to_string());
}

}  // namespace

const Tensor& KernelContext::input(int i) const { return step_->slots_[instruction_->inputs[i]]; }

tensor::DType KernelContext::output_dtype(int i) const {
  return step_->bound_->program().slots[instruction_->outputs[i]].dtype;
}

ports::Rendezvous* KernelContext::rendezvous() const { return step_->rendezvous_; }
std::span<const ports::TensorSource> KernelContext::peers() const { return step_->root_->peers_; }

uint64_t KernelContext::step_id() const { return step_->step_id_; }

Tensor& KernelContext::output(int i, const tensor::Shape& shape) {
  const int32_t slot = instruction_->outputs[i];
  const SlotInfo& info = step_->bound_->program().slots[slot];
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(info.dtype);
  Tensor& out = step_->slots_[slot];
  if (info.dtype == tensor::DType::kString) return out = strings(shape);
  if (info.buffer < 0) {
    out = Tensor(info.dtype, shape, step_->pool_->acquire(bytes));
    return out;
  }
  tensor::Buffer::Ptr& buffer = step_->buffers_[info.buffer];
  if (buffer == nullptr || buffer->bytes() < bytes) buffer = step_->pool_->acquire(bytes);
  // What the step before left there, most of the time.
  const bool is_ready = out.buffer() == buffer && out.shape() == shape &&
                        out.raw() == buffer->data() && out.dtype() == info.dtype;
  if (!is_ready) out = Tensor(info.dtype, shape, buffer);
  return out;
}

Tensor KernelContext::temporary(tensor::DType dtype, const tensor::Shape& shape) {
  if (dtype == tensor::DType::kString) return strings(shape);
  return step_->pool_->tensor(dtype, shape);
}

Tensor KernelContext::strings(const tensor::Shape& shape) const {
  Tensor out = Tensor::empty(tensor::DType::kString, shape);
  for (int i = 0; i < num_inputs(); ++i) {
    if (input(i).dtype() == tensor::DType::kString) out.buffer()->keep_all_of(*input(i).buffer());
  }
  return out;
}

std::string& KernelContext::waits_for() { return step_->waits_for_; }

std::shared_ptr<void>& KernelContext::waiting_state() { return step_->waiting_[instruction_]; }

Tensor& KernelContext::updated(int i, int from) {
  const int32_t source = instruction_->inputs[from];
  const int32_t target = instruction_->outputs[i];
  const Tensor& value = step_->slots_[source];
  Tensor& out = step_->slots_[target];
  // The slot and the lender.
  constexpr long kHolders = 2;
  const bool is_lent = !step_->lent_.empty() && step_->lent_[source] != 0;
  const std::vector<int32_t>& released = instruction_->releases;
  if (is_lent && value.buffer()->holders() == kHolders &&
      std::find(released.begin(), released.end(), source) != released.end()) {
    step_->lent_[target] = 1;
    out = value;
    return out;
  }
  Tensor copy = temporary(value.dtype(), value.shape());
  if (copy.nbytes() > 0) std::memcpy(copy.raw(), value.raw(), copy.nbytes());
  out = std::move(copy);
  return out;
}

int KernelContext::threads() const {
  return step_->workers_ == nullptr ? 1 : step_->workers_->threads();
}

void KernelContext::run_parts(int64_t parts, absl::FunctionRef<void(int64_t)> body) {
  if (step_->workers_ != nullptr) return step_->workers_->run(parts, body);
  for (int64_t i = 0; i < parts; ++i) body(i);
}

void KernelContext::run_ranges(int64_t n, int64_t grain,
                               absl::FunctionRef<void(int64_t, int64_t)> body) {
  // A few parts for each thread, so that one that is held up does not hold up the others.
  constexpr int64_t kPartsPerThread = 4;
  const int64_t parts = std::min(n / grain, kPartsPerThread * threads());
  const int64_t size = n / parts;
  run_parts(parts, [&](int64_t i) { body(i * size, i + 1 == parts ? n : (i + 1) * size); });
}

void KernelContext::set_output(int i, Tensor value) {
  step_->slots_[instruction_->outputs[i]] = std::move(value);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved.
void KernelTable::add(const std::string& op, KernelFactory factory) {
  const bool added = factories_.emplace(op, std::move(factory)).second;
  SR_CHECK(added, "two kernels for op {}", op);
}

const KernelFactory* KernelTable::find(std::string_view op) const {
  const auto it = factories_.find(std::string(op));
  return it == factories_.end() ? nullptr : &it->second;
}

Result<std::unique_ptr<BoundProgram>> BoundProgram::bind(program::Program program,
                                                         const KernelTable& table,
                                                         const Environment& environment) {
  std::unique_ptr<BoundProgram> bound(new BoundProgram(std::move(program), nullptr));
  const std::vector<program::Program>& bodies = bound->program_.bodies;
  if (!bodies.empty() && !table.allows_control()) {
    return base::unimplemented("node '{}': functions, branches and loops do not run on a ps",
                               bound->first_control());
  }
  auto calls = static_cast<int>(bound->program_.calls.size());
  for (size_t k = 0; k < bodies.size(); ++k) {
    std::unique_ptr<BoundProgram> body(new BoundProgram(bodies[k], bound.get()));
    SR_RETURN_IF_ERROR(body->find_kernels(table, environment));
    body->first_call_ = calls;
    calls += static_cast<int>(bodies[k].calls.size());
    bound->bodies_.push_back(std::move(body));
  }
  SR_RETURN_IF_ERROR(bound->find_kernels(table, environment));
  // Kernels have read the attributes of their instructions. There may be a program for each worker.
  const auto drop_attrs = [](program::Program* program) {
    program->slots.shrink_to_fit();
    program->instructions.shrink_to_fit();
    for (Instruction& instruction : program->instructions) {
      if (instruction.kind == InstructionKind::kCompute) instruction.attrs.clear();
    }
  };
  drop_attrs(&bound->program_);
  for (program::Program& body : bound->program_.bodies) drop_attrs(&body);
  for (const auto& body : bound->bodies_) drop_attrs(&body->program_);
  return bound;
}

std::string BoundProgram::first_control() const {
  for (const Instruction& instruction : program_.instructions) {
    if (instruction.kind == InstructionKind::kControl) return instruction.name;
  }
  return "";
}

Status BoundProgram::find_kernels(const KernelTable& table, const Environment& environment) {
  const std::vector<Instruction>& all = program_.instructions;
  for (const Instruction& instruction : all) {
    kernels_.emplace_back();
    if (instruction.kind != InstructionKind::kCompute) continue;
    const KernelFactory* factory = table.find(instruction.op);
    if (factory == nullptr) {
      return base::unimplemented("op {} of node '{}' has no kernel in this release", instruction.op,
                                 instruction.name);
    }
    Result<std::unique_ptr<Kernel>> kernel =
        (*factory)(BindContext{program_, instruction, environment});
    if (!kernel.ok()) {
      return base::with_context(kernel.status(),
                                fmt::format("{} '{}'", instruction.op, instruction.name));
    }
    kernels_.back() = std::move(*kernel);
  }
  tail_ = all.size();
  while (tail_ > 0 && all[tail_ - 1].kind == InstructionKind::kCallWait) --tail_;
  return {};
}

/// The answer of one call of one step.
class Step::PendingCall final : public ports::CallCompletion {
 public:
  PendingCall(Step* step, const program::CallSpec* spec) : step_(step), spec_(spec) {}

  Result<Tensor> allocate(int position, tensor::DType dtype, const tensor::Shape& shape) override {
    if (position < 0 || static_cast<size_t>(position) >= spec_->fetches.size()) {
      return invalid_argument("an answer has a value {} where {} were asked for", position,
                              spec_->fetches.size());
    }
    const SlotInfo& info = step_->bound_->program().slots[spec_->fetches[position]];
    SR_RETURN_IF_ERROR(check_value(info, dtype, shape, "a value of an answer"));
    return step_->pool_->try_tensor(dtype, shape);
  }

  void done(const Status& status, std::span<Tensor> fetches) override {
    --step_->root_->calls_in_flight_;
    finished = true;
    if (step_->trace_ != nullptr) answered_ns = step_->trace_->now();
    result = status;
    if (!result.ok()) return;
    if (fetches.size() != spec_->fetches.size()) {
      result = base::internal("an answer has {} values where {} were asked for", fetches.size(),
                              spec_->fetches.size());
      return;
    }
    for (size_t i = 0; i < fetches.size(); ++i) {
      if (!fetches[i].defined()) {
        result = base::unimplemented("value {} of an answer is dead", i);
        return;
      }
      step_->slots_[spec_->fetches[i]] = std::move(fetches[i]);
    }
  }

  bool finished = false;
  Status result;
  // Of a traced step.
  int64_t sent_ns = 0;
  int64_t answered_ns = 0;

 private:
  Step* step_;
  const program::CallSpec* spec_;
};

Step::Step(const BoundProgram* bound, BufferPool* pool, ports::Exchange* exchange)
    : bound_(bound),
      pool_(pool),
      exchange_(exchange),
      slots_(bound->program().slots.size()),
      buffers_(bound->program().num_buffers) {
  for (const program::CallSpec& call : bound->program().calls) {
    pending_.push_back(std::make_unique<PendingCall>(this, &call));
  }
  const std::vector<Instruction>& instructions = bound->program().instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].kind != InstructionKind::kControl) continue;
    controls_.resize(instructions.size());
    controls_[i] = std::make_unique<Control>(this, &instructions[i]);
  }
}

void Step::set_root(Step* root) {
  root_ = root;
  for (auto& control : controls_) {
    if (control != nullptr) control->set_root(root);
  }
}

void Step::set_stop_signal(const StopSignal* stop) {
  stop_ = stop;
  for (auto& control : controls_) {
    if (control != nullptr) control->set_stop_signal(stop);
  }
}

void Step::set_trace(Trace* trace, int32_t track, std::string_view label) {
  label_ = label;
  if (trace == trace_ && track == track_) return;
  trace_ = trace;
  track_ = track;
  for (auto& control : controls_) {
    if (control != nullptr) control->set_trace(trace, track);
  }
}

void Step::set_workers(Workers* workers) {
  if (workers == workers_) return;
  workers_ = workers;
  for (auto& control : controls_) {
    if (control != nullptr) control->set_workers(workers);
  }
}

void Step::set_rendezvous(ports::Rendezvous* rendezvous) {
  rendezvous_ = rendezvous;
  for (auto& control : controls_) {
    if (control != nullptr) control->set_rendezvous(rendezvous);
  }
}

Step::~Step() { SR_CHECK(calls_in_flight_ == 0, "step {} dies with calls in flight", step_id_); }

void Step::begin(uint64_t step_id) {
  if (root_ == this) {
    SR_CHECK(calls_in_flight_ == 0, "step {} begins with calls in flight", step_id);
  }
  step_id_ = step_id;
  pc_ = 0;
  end();
  renew_held_buffers();
  for (auto& call : pending_) call->finished = false;
  if (trace_ != nullptr) {
    traced_step_ = step_id;
    step_began_ns_ = trace_->now();
    began_ns_ = -1;
  }
}

const std::string& Step::waits_for() const {
  if (waits_for_.empty() && pc_ < controls_.size() && controls_[pc_] != nullptr) {
    return controls_[pc_]->waits_for();
  }
  return waits_for_;
}

bool Step::is_planned(int32_t slot) const {
  const int32_t b = bound_->program().slots[slot].buffer;
  return b >= 0 && slots_[slot].buffer() == buffers_[b];
}

/// Somebody may still hold a result of the step before: that memory is theirs now.
void Step::renew_held_buffers() {
  const std::vector<SlotInfo>& infos = bound_->program().slots;
  // This step holds each buffer once, and slots show it.
  holders_.assign(buffers_.size(), 1);
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].defined()) ++holders_[infos[s].buffer];
  }
  for (size_t b = 0; b < buffers_.size(); ++b) {
    tensor::Buffer::Ptr& buffer = buffers_[b];
    if (buffer == nullptr || buffer->holders() <= holders_[b]) continue;
    if (!spares_.empty()) std::swap(buffer, spares_[b]);
    if (buffer != nullptr && buffer->holders() > 1) buffer.reset();
  }
}

void Step::end() {
  if (!waiting_.empty()) [[unlikely]]
    waiting_.clear();
  // Slots that show planned memory are left as they are: the next step writes there again.
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].defined() && !is_planned(static_cast<int32_t>(s))) slots_[s] = Tensor();
  }
  std::fill(lent_.begin(), lent_.end(), uint8_t{0});
  for (auto& control : controls_) {
    if (control != nullptr) control->reset();
  }
}

Status Step::feed(int i, Tensor value) {
  const program::Program& program = bound_->program();
  if (i < 0 || static_cast<size_t>(i) >= program.feeds.size()) {
    return invalid_argument("feed {} of a program that takes {}", i, program.feeds.size());
  }
  const SlotInfo& info = program.slots[program.feeds[i]];
  if (value.dtype() != info.dtype || !info.shape.accepts(value.shape())) [[unlikely]] {
    return check_value(info, value.dtype(), value.shape(),
                       fmt::format("feed {} '{}'", i, program.feed_names[i]));
  }
  slots_[program.feeds[i]] = std::move(value);
  return {};
}

Status Step::lend(int i, Tensor value) {
  SR_RETURN_IF_ERROR(feed(i, std::move(value)));
  lent_.resize(slots_.size());
  lent_[bound_->program().feeds[i]] = 1;
  return {};
}

const Tensor& Step::fetch(int i) const { return slots_[bound_->program().fetches[i]]; }

Status Step::start_call(const Instruction& instruction) {
  if (exchange_ == nullptr) {
    return base::failed_precondition("a program with calls runs where nobody carries them");
  }
  const program::CallSpec& call = bound_->program().calls[instruction.call];
  call_feeds_.clear();
  for (const int32_t slot : call.feeds) call_feeds_.push_back(slots_[slot]);
  ++root_->calls_in_flight_;
  if (trace_ != nullptr) pending_[instruction.call]->sent_ns = trace_->now();
  Status started = exchange_->start(bound_->first_call() + instruction.call, step_id_, call_feeds_,
                                    pending_[instruction.call].get());
  if (!started.ok()) --root_->calls_in_flight_;
  call_feeds_.clear();
  return started;
}

Status Step::run_instruction(size_t index) {
  const Instruction& instruction = bound_->program().instructions[index];
  if (instruction.kind == InstructionKind::kCallStart) return start_call(instruction);
  KernelContext context(this, &instruction);
  Status status = bound_->kernel(index)->run(context);
  if (status.ok() || !waits_for_.empty()) [[likely]]
    return status;
  return base::with_context(status, describe(instruction, slots_));
}

/// Writes down the instruction that has just run, while its inputs are still there.
void Step::note(const Instruction& instruction) {
  using Kind = TraceEvent::Kind;
  TraceEvent event;
  event.track = track_;
  event.step = traced_step_;
  event.begin_ns = began_ns_;
  event.end_ns = trace_->now();
  began_ns_ = -1;
  if (instruction.call < 0) {
    const bool control = instruction.kind == InstructionKind::kControl;
    event.kind = control ? Kind::kControl : Kind::kOp;
    trace_->record(event, instruction, instruction.inputs, instruction.outputs, slots_);
    return;
  }
  const program::CallSpec& call = bound_->program().calls[instruction.call];
  const PendingCall& pending = *pending_[instruction.call];
  event.call = bound_->first_call() + instruction.call;
  event.location = call.location;
  event.sent_ns = pending.sent_ns;
  if (instruction.kind == InstructionKind::kCallStart) {
    event.kind = Kind::kSend;
    trace_->record(event, instruction, call.feeds, {}, slots_);
  } else {
    event.kind = Kind::kWait;
    event.answered_ns = pending.answered_ns;
    trace_->record(event, instruction, {}, call.fetches, slots_);
  }
}

template <bool traced>
Result<Step::Progress> Step::run_all(bool stop_at_wait) {
  const std::vector<Instruction>& instructions = bound_->program().instructions;
  for (; pc_ < instructions.size(); ++pc_) {
    if (stop_ != nullptr && stop_->raised()) [[unlikely]]
      return stop_->status();
    const Instruction& instruction = instructions[pc_];
    if constexpr (traced) {
      // It may have begun before, and blocked.
      if (began_ns_ < 0) began_ns_ = trace_->now();
    }
    if (instruction.kind == InstructionKind::kControl) {
      SR_ASSIGN_OR_RETURN(const Progress progress, controls_[pc_]->advance(stop_at_wait));
      if (progress == Progress::kBlocked) return progress;
    } else if (instruction.kind == InstructionKind::kCallWait) {
      const PendingCall& call = *pending_[instruction.call];
      if (stop_at_wait || !call.finished) return Progress::kBlocked;
      SR_RETURN_IF_ERROR(call.result);
    } else {
      Status status = run_instruction(pc_);
      if (!status.ok()) [[unlikely]] {
        if (!waits_for_.empty()) return Progress::kBlocked;
        return status;
      }
    }
    if constexpr (traced) note(instruction);
    for (const int32_t slot : instruction.releases) {
      if (!is_planned(slot)) slots_[slot] = Tensor();
    }
    if (exchange_ != nullptr) exchange_->yield();
  }
  if constexpr (traced) {
    if (!label_.empty() && step_began_ns_ >= 0) {
      TraceEvent event;
      event.track = track_;
      event.step = traced_step_;
      event.begin_ns = std::exchange(step_began_ns_, -1);
      event.end_ns = trace_->now();
      trace_->record_step(event, label_);
    }
  }
  return Progress::kDone;
}

template Result<Step::Progress> Step::run_all<false>(bool stop_at_wait);
template Result<Step::Progress> Step::run_all<true>(bool stop_at_wait);

Result<Step::Progress> Step::advance() {
  waits_for_.clear();
  return run(false);
}

Result<Step::Progress> Step::advance_to_wait() {
  waits_for_.clear();
  return run(true);
}

}  // namespace sidereal::exec
