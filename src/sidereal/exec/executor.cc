#include "sidereal/exec/executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/exec/control.h"
#include "sidereal/exec/owned_variables.h"
#include "sidereal/ir/schema.h"

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
  // What the handle of a variable holds is nothing that anybody has written.
  const bool has_handle = instruction.op.starts_with("Variable") && !inputs.empty();
  if (has_handle) inputs[0] = "handle";
  return fmt::format("{} '{}' ({})", instruction.op, instruction.name, fmt::join(inputs, ", "));
}

Status check_value(const SlotInfo& info, tensor::DType dtype, const tensor::Shape& shape,
                   std::string_view what) {
  if (dtype == info.dtype && info.shape.accepts(shape)) return {};
  return invalid_argument("{} is {}{}, but {}{} is needed", what, tensor::name_of(dtype),
                          shape.to_string(), tensor::name_of(info.dtype), info.shape.to_string());
}

/// What a kernel, or what makes one, says; also when it has no memory or must end at once.
template <class F>
auto guarded(const F& run) -> decltype(run()) {
  try {
    return run();
  } catch (const KernelFailure& failure) {
    return failure.status;
  } catch (const std::bad_alloc& error) {
    return base::resource_exhausted("{}", error.what());
  } catch (const std::length_error& error) {
    return base::resource_exhausted("{}: there is no memory for so much", error.what());
  }
}

/// Bytes of a value that a kernel asks for.
size_t bytes_of(tensor::DType dtype, const tensor::Shape& shape) {
  const Status fits = ir::check_shape(shape);
  if (!fits.ok()) throw KernelFailure{fits};
  return static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
}

}  // namespace

const Tensor& KernelContext::input(int i) const { return step_->slots_[instruction_->input(i)]; }

tensor::DType KernelContext::output_dtype(int i) const {
  return step_->bound_->slot(instruction_->output(i)).dtype;
}

ports::Rendezvous* KernelContext::rendezvous() const { return step_->rendezvous_; }
bool KernelContext::is_told_of_arrivals() const {
  return step_->rendezvous_tells_ && step_->parking_ != nullptr;
}
std::span<const ports::TensorSource> KernelContext::peers() const { return step_->root_->peers_; }

uint64_t KernelContext::step_id() const { return step_->step_id_; }
const resources::ClosureKey& KernelContext::closure() const { return step_->closure_; }
uint64_t KernelContext::number_on_lane() const { return step_->root_->number_; }
int KernelContext::pusher() const { return step_->root_->pusher_; }

Tensor& KernelContext::output(int i, const tensor::Shape& shape) {
  const int32_t slot = instruction_->output(i);
  const BoundProgram::Slot& info = step_->bound_->slot(slot);
  const size_t bytes = bytes_of(info.dtype, shape);
  Tensor& out = step_->slots_[slot];
  if (info.dtype == tensor::DType::kString) return out = strings(shape);
  if (info.buffer < 0) {
    out = Tensor(info.dtype, shape, step_->pool_->acquire(bytes));
    return out;
  }
  tensor::Buffer::Ptr& buffer = step_->buffers_[info.buffer];
  // The plan is that of the program's order. In another one, somebody may still have to read it.
  const auto is_read = [&] {
    return step_->parking_ != nullptr &&
           buffer->holders() > step_->holders_to_expect(*instruction_, slot, buffer.get());
  };
  if (buffer == nullptr || buffer->bytes() < bytes || is_read()) {
    buffer = step_->pool_->acquire(bytes);
  }
  // What the step before left there, most of the time.
  const bool is_ready = out.buffer() == buffer && out.shape() == shape &&
                        out.raw() == buffer->data() && out.dtype() == info.dtype;
  if (!is_ready) out = Tensor(info.dtype, shape, buffer);
  return out;
}

Tensor KernelContext::temporary(tensor::DType dtype, const tensor::Shape& shape) {
  static_cast<void>(bytes_of(dtype, shape));
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

void KernelContext::fail_dtype(int i, tensor::DType wanted) const {
  throw KernelFailure{base::invalid_argument("input {} is {}, but {} is needed", i,
                                             tensor::name_of(input(i).dtype()),
                                             tensor::name_of(wanted))};
}

void KernelContext::check_stop() const {
  if (step_->stop_ != nullptr && step_->stop_->raised()) [[unlikely]]
    throw KernelFailure{step_->stop_->status()};
}

std::string& KernelContext::waits_for() { return step_->waits_for_; }

std::shared_ptr<void>& KernelContext::waiting_state() {
  return step_->waiting_[instruction_->source];
}

void* KernelContext::kept_while_waiting() const {
  if (step_->waiting_.empty()) return nullptr;
  const auto found = step_->waiting_.find(instruction_->source);
  return found == step_->waiting_.end() ? nullptr : found->second.get();
}

Tensor& KernelContext::updated(int i, int from) {
  const int32_t source = instruction_->input(from);
  const int32_t target = instruction_->output(i);
  const Tensor& value = step_->slots_[source];
  Tensor& out = step_->slots_[target];
  // The slot and the lender.
  constexpr long kHolders = 2;
  const bool is_lent = !step_->lent_.empty() && step_->lent_[source] != 0;
  const std::span<const int32_t> released = instruction_->releases();
  const auto is_released = [&] {
    if (step_->parking_ != nullptr) return step_->parking_->uses[source] == 1;
    return std::find(released.begin(), released.end(), source) != released.end();
  };
  if (is_lent && value.buffer()->holders() == kHolders && is_released()) {
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
  ports::Exchange* const exchange = step_->exchange_;
  if (exchange == nullptr || parts <= 1) {
    if (step_->workers_ != nullptr) return step_->workers_->run(parts, body);
    for (int64_t i = 0; i < parts; ++i) body(i);
    return;
  }
  // Between two parts the lane comes up for air.
  const std::thread::id lane = std::this_thread::get_id();
  const auto part = [&](int64_t i) {
    body(i);
    if (std::this_thread::get_id() == lane) step_->root_->serve();
  };
  if (step_->workers_ != nullptr) return step_->workers_->run(parts, part);
  for (int64_t i = 0; i < parts; ++i) part(i);
}

void KernelContext::run_ranges(int64_t n, int64_t grain,
                               absl::FunctionRef<void(int64_t, int64_t)> body) {
  // A few parts for each thread, so that one that is held up does not hold up the others. One
  // thread alone takes so much at a time that it does not notice.
  constexpr int64_t kPartsPerThread = 4;
  constexpr int64_t kGrainsAlone = 32;
  const int64_t parts =
      threads() > 1 ? std::min(n / grain, kPartsPerThread * threads()) : n / grain / kGrainsAlone;
  if (parts <= 1) return body(0, n);
  const int64_t size = n / parts;
  run_parts(parts, [&](int64_t i) { body(i * size, i + 1 == parts ? n : (i + 1) * size); });
}

void KernelContext::set_output(int i, Tensor value) {
  step_->slots_[instruction_->output(i)] = std::move(value);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved.
void KernelTable::add(const std::string& op, KernelFactory factory) {
  const bool added = factories_.emplace(op, std::move(factory)).second;
  SR_CHECK(added, "two kernels for op {}", op);
}

std::vector<std::string> KernelTable::names() const {
  std::vector<std::string> out;
  for (const auto& [name, factory] : factories_) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
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
  auto calls = static_cast<int>(bound->program_.calls.size());
  for (size_t k = 0; k < bodies.size(); ++k) {
    std::unique_ptr<BoundProgram> body(new BoundProgram(bodies[k], bound.get()));
    SR_RETURN_IF_ERROR(body->find_kernels(table, environment));
    body->first_call_ = calls;
    calls += static_cast<int>(bodies[k].calls.size());
    bound->bodies_.push_back(std::move(body));
  }
  SR_RETURN_IF_ERROR(bound->find_kernels(table, environment));
  if (bound->program_.parks) bound->needs_ = std::make_unique<const Needs>(bound->program_);
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
  bound->lay_out();
  for (const auto& body : bound->bodies_) body->lay_out();
  return bound;
}

void BoundProgram::lay_out() {
  const std::vector<Instruction>& all = program_.instructions;
  size_t count = 0;
  for (const Instruction& one : all) {
    count += one.inputs.size() + one.outputs.size() + one.releases.size();
  }
  slots_of_.reserve(count);
  instructions_.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Instruction& one = all[i];
    instructions_.push_back({.kernel = kernels_[i].get(),
                             .source = &one,
                             .slots = slots_of_.data() + slots_of_.size(),
                             .num_inputs = static_cast<int32_t>(one.inputs.size()),
                             .num_outputs = static_cast<int32_t>(one.outputs.size()),
                             .num_releases = static_cast<int32_t>(one.releases.size()),
                             .call = one.call,
                             .kind = one.kind});
    for (const auto* const list : {&one.inputs, &one.outputs, &one.releases}) {
      slots_of_.insert(slots_of_.end(), list->begin(), list->end());
    }
  }
  slots_.reserve(program_.slots.size());
  for (const SlotInfo& slot : program_.slots) {
    slots_.push_back({.buffer = slot.buffer, .dtype = slot.dtype});
  }
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
    const BindContext context{program_, instruction, environment};
    Result<std::unique_ptr<Kernel>> kernel = guarded([&] { return (*factory)(context); });
    if (kernel.ok()) kernel = where_owned(context, *std::move(kernel), &table);
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
    step_->root_->look_again();
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
  if (bound->needs() != nullptr) parking_ = std::make_unique<Parking>();
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

void Step::set_rendezvous(ports::Rendezvous* rendezvous, bool tells) {
  rendezvous_ = rendezvous;
  rendezvous_tells_ = tells;
  for (auto& control : controls_) {
    if (control != nullptr) control->set_rendezvous(rendezvous);
  }
}

Step::~Step() { SR_CHECK(calls_in_flight_ == 0, "step {} dies with calls in flight", step_id_); }

void Step::begin(uint64_t step_id, const resources::ClosureKey& closure) {
  if (root_ == this) {
    SR_CHECK(calls_in_flight_ == 0, "step {} begins with calls in flight", step_id);
  }
  step_id_ = step_id;
  closure_ = closure;
  pc_ = 0;
  end();
  renew_held_buffers();
  if (parking_ != nullptr) begin_parking();
  for (auto& call : pending_) call->finished = false;
  if (trace_ != nullptr) {
    traced_step_ = step_id;
    step_began_ns_ = trace_->now();
    began_ns_ = -1;
  }
}

void Step::begin_parking() {
  Parking& p = *parking_;
  p.missing = bound_->needs()->missing();
  p.uses = bound_->needs()->uses();
  p.ready.clear();
  p.parked.clear();
  p.messages.assign(p.missing.size(), Parking::Message::kNone);
  p.began_ns.assign(trace_ != nullptr ? p.missing.size() : 0, -1);
  p.next = 0;
  p.done = 0;
  p.to_start = bound_->needs()->started();
  p.shown = -1;
  p.has_news = p.may_begin_calls = false;
}

std::string Step::waits_for() const {
  if (parking_ == nullptr) {
    const bool in_body = pc_ < controls_.size() && controls_[pc_] != nullptr;
    return waits_for_.empty() && in_body ? controls_[pc_]->waits_for() : waits_for_;
  }
  const Parking& p = *parking_;
  if (p.shown >= 0 && !p.shows_message) return shown_wait();
  const auto awaited = std::find(p.messages.begin(), p.messages.end(), Parking::Message::kAwaited);
  if (awaited == p.messages.end()) return p.shown < 0 ? "" : shown_wait();
  const auto index = static_cast<size_t>(awaited - p.messages.begin());
  return bound_->instruction(index).kernel->awaited(root_->peers_);
}

/// What the instruction that is shown waits for.
std::string Step::shown_wait() const {
  const auto at = static_cast<size_t>(parking_->shown);
  const bool in_body = at < controls_.size() && controls_[at] != nullptr;
  return in_body ? controls_[at]->waits_for() : parking_->text;
}

bool Step::waits_for_message(size_t index) const {
  const BoundInstruction& instruction = bound_->instruction(index);
  if (instruction.kind == InstructionKind::kCallWait) return true;
  if (instruction.kind == InstructionKind::kControl) return controls_[index]->waits_for_message();
  return instruction.source->op == "Recv";
}

bool Step::waits_for_messages() const {
  if (parking_ != nullptr) return parking_->shown < 0 || parking_->shows_message;
  return pc_ < bound_->size() && waits_for_message(pc_);
}

bool Step::is_planned(int32_t slot) const {
  const int32_t b = bound_->slot(slot).buffer;
  return b >= 0 && slots_[slot].buffer() == buffers_[b];
}

/// Somebody may still hold a result of the step before: that memory is theirs now.
void Step::renew_held_buffers() {
  // This step holds each buffer once, and slots show it.
  holders_.assign(buffers_.size(), 1);
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].defined()) ++holders_[bound_->slot(static_cast<int32_t>(s)).buffer];
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
  // Slots that show planned memory are left as they are: the next step writes there again. Where
  // instructions are parked, slots say who still reads what.
  for (size_t s = 0; s < slots_.size(); ++s) {
    const bool stays = parking_ == nullptr && is_planned(static_cast<int32_t>(s));
    if (slots_[s].defined() && !stays) slots_[s] = Tensor();
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

Status Step::start_call(int32_t number) {
  if (exchange_ == nullptr) {
    return base::failed_precondition("a program with calls runs where nobody carries them");
  }
  const program::CallSpec& call = bound_->program().calls[number];
  call_feeds_.clear();
  for (const int32_t slot : call.feeds) call_feeds_.push_back(slots_[slot]);
  ++root_->calls_in_flight_;
  if (trace_ != nullptr) pending_[number]->sent_ns = trace_->now();
  Status started = exchange_->start(bound_->first_call() + number, step_id_, call_feeds_,
                                    pending_[number].get());
  if (!started.ok()) --root_->calls_in_flight_;
  call_feeds_.clear();
  return started;
}

Status Step::run_instruction(size_t index) {
  const BoundInstruction& instruction = bound_->instruction(index);
  if (instruction.kind == InstructionKind::kCallStart) return start_call(instruction.call);
  KernelContext context(this, &instruction);
  waits_for_.clear();
  Status status = guarded([&] { return instruction.kernel->run(context); });
  if (status.ok() || !waits_for_.empty()) [[likely]]
    return status;
  return base::with_context(status, describe(*instruction.source, slots_));
}

Status Step::run_only() {
  const BoundInstruction& instruction = bound_->instruction(0);
  KernelContext context(this, &instruction);
  return guarded([&] { return instruction.kernel->run(context); });
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
  event.sent_ns = pending.sent_ns;
  if (instruction.kind == InstructionKind::kCallStart) {
    event.kind = Kind::kSend;
    trace_->record(event, instruction, call.feeds, {}, slots_, call.device);
  } else {
    event.kind = Kind::kWait;
    event.answered_ns = pending.answered_ns;
    trace_->record(event, instruction, {}, call.fetches, slots_, call.device);
  }
}

/// Writes down the step that has just ended.
void Step::note_step() {
  if (label_.empty() || step_began_ns_ < 0) return;
  TraceEvent event;
  event.track = track_;
  event.step = traced_step_;
  event.begin_ns = std::exchange(step_began_ns_, -1);
  event.end_ns = trace_->now();
  trace_->record_step(event, label_);
}

/// Runs an instruction, or goes on with it. kBlocked: it must wait.
inline Result<Step::Progress> Step::run_one(size_t index, bool stop_at_wait) {
  const BoundInstruction& instruction = bound_->instruction(index);
  if (instruction.kind == InstructionKind::kControl) return controls_[index]->advance(stop_at_wait);
  if (instruction.kind == InstructionKind::kCallWait) {
    const PendingCall& call = *pending_[instruction.call];
    if (stop_at_wait || !call.finished) return Progress::kBlocked;
    SR_RETURN_IF_ERROR(call.result);
    return Progress::kDone;
  }
  Status status = run_instruction(index);
  if (status.ok()) [[likely]]
    return Progress::kDone;
  if (!waits_for_.empty()) return Progress::kBlocked;
  return status;
}

template <bool traced>
Result<Step::Progress> Step::run_all(bool stop_at_wait) {
  for (; pc_ < bound_->size(); ++pc_) {
    if (stop_ != nullptr && stop_->raised()) [[unlikely]]
      return stop_->status();
    if constexpr (traced) {
      // It may have begun before, and blocked.
      if (began_ns_ < 0) began_ns_ = trace_->now();
    }
    Result<Progress> progress = run_one(pc_, stop_at_wait);
    if (!progress.ok() || *progress == Progress::kBlocked) return progress;
    const BoundInstruction& instruction = bound_->instruction(pc_);
    if constexpr (traced) note(*instruction.source);
    for (const int32_t slot : instruction.releases()) {
      if (!is_planned(slot)) slots_[slot] = Tensor();
    }
    if (exchange_ != nullptr) root_->serve();
  }
  if constexpr (traced) note_step();
  return Progress::kDone;
}

template Result<Step::Progress> Step::run_all<false>(bool stop_at_wait);
template Result<Step::Progress> Step::run_all<true>(bool stop_at_wait);

/// How many may hold the buffer that the plan gives `output` where nobody has still to read what is
/// in it: this step, and inputs that `instruction` is the last one to read.
int Step::holders_to_expect(const BoundInstruction& instruction, int32_t output,
                            const tensor::Buffer* buffer) const {
  int holders = slots_[output].buffer().get() == buffer ? 2 : 1;
  const auto index = static_cast<size_t>(&instruction - &bound_->instruction(0));
  for (const int32_t slot : bound_->needs()->slots(index)) {
    if (slot == output || slots_[slot].buffer().get() != buffer) continue;
    if (parking_->uses[slot] == 1) ++holders;
  }
  return holders;
}

/// Puts an instruction that must wait aside. It is tried again in the next advance(), or, a Recv
/// that is told of arrivals, once its tensors have come.
void Step::park(size_t index) {
  Parking& p = *parking_;
  if (rendezvous_tells_ && bound_->instruction(index).source->op == "Recv") {
    Parking::Message& message = p.messages[index];
    if (message == Parking::Message::kHere) return make_ready(static_cast<int32_t>(index));
    message = Parking::Message::kAwaited;
    return;
  }
  p.parked.push_back(static_cast<int32_t>(index));
  const bool is_message = waits_for_message(index);
  if (p.shown >= 0 && (is_message || !p.shows_message)) return;
  p.shown = static_cast<int32_t>(index);
  p.shows_message = is_message;
  p.text.swap(waits_for_);
}

/// Lets go of what nobody reads after an instruction has run, and finds what can run now.
void Step::go_on_after(size_t index) {
  Parking& p = *parking_;
  const Needs& needs = *bound_->needs();
  ++p.done;
  p.missing[index] = Parking::kRan;
  if (bound_->instruction(index).kind != InstructionKind::kCallWait) --p.to_start;
  for (const int32_t slot : needs.slots(index)) {
    if (--p.uses[slot] == 0) slots_[slot] = Tensor();
  }
  for (const int32_t reader : needs.readers(index)) {
    // Those from `next` on come in their turn.
    if (--p.missing[reader] > 0 || static_cast<size_t>(reader) >= p.next) continue;
    make_ready(reader);
  }
}

/// Has an instruction below `next` run before others that come after it.
void Step::make_ready(int32_t index) {
  std::vector<int32_t>& ready = parking_->ready;
  ready.push_back(index);
  std::push_heap(ready.begin(), ready.end(), std::greater<>());
}

void Step::arrived(const ports::RendezvousKey& key) {
  if (parking_ == nullptr) return;
  const int32_t index = key.step == step_id_ ? bound_->needs()->recv_of(key.edge) : -1;
  // Of a body: whatever runs it looks.
  if (index < 0 || !rendezvous_tells_) return look_again();
  parking_->may_begin_calls = true;
  Parking::Message& message = parking_->messages[index];
  if (message == Parking::Message::kAwaited) make_ready(index);
  message = Parking::Message::kHere;
}

/// Lets what waits look again.
void Step::take_up_parked() {
  Parking& p = *parking_;
  if (std::exchange(p.has_news, false) && rendezvous_tells_) {
    for (size_t i = 0; i < p.messages.size(); ++i) {
      if (p.messages[i] != Parking::Message::kAwaited) continue;
      p.messages[i] = Parking::Message::kNone;
      p.parked.push_back(static_cast<int32_t>(i));
    }
  }
  p.ready.insert(p.ready.end(), p.parked.begin(), p.parked.end());
  std::make_heap(p.ready.begin(), p.ready.end(), std::greater<>());
  p.parked.clear();
  p.shown = -1;
}

/// In the middle of an instruction: lets the lane serve others, and begins calls that can begin by
/// what has come meanwhile. Of the outermost step.
void Step::serve() {
  exchange_->yield();
  if (parking_ != nullptr && parking_->may_begin_calls) [[unlikely]]
    begin_calls();
}

/// Runs the halves of calls that can run. One that fails is left to run_parking().
void Step::begin_calls() {
  Parking& p = *parking_;
  p.may_begin_calls = false;
  const int64_t began_ns = began_ns_;
  for (const int32_t index : bound_->needs()->calls()) {
    if (p.missing[index] != 0) continue;
    const BoundInstruction& instruction = bound_->instruction(static_cast<size_t>(index));
    const PendingCall& call = *pending_[instruction.call];
    if (trace_ != nullptr) began_ns_ = trace_->now();
    if (instruction.kind == InstructionKind::kCallWait) {
      if (!call.finished || !call.result.ok()) continue;
    } else {
      // What it reads of variables is read by an instruction of its own, just before it.
      const auto reads = bound_->needs()->late_reads(index);
      const bool is_ready = std::all_of(reads.begin(), reads.end(), [&](int32_t read) {
        return p.missing[read] == Parking::kRan;
      });
      if (!is_ready || !start_call(instruction.call).ok()) continue;
    }
    if (trace_ != nullptr) note(*instruction.source);
    go_on_after(static_cast<size_t>(index));
  }
  began_ns_ = began_ns;
}

template <bool traced>
Result<Step::Progress> Step::run_parking(bool stop_at_wait) {
  Parking& p = *parking_;
  take_up_parked();
  while (true) {
    if (p.has_news) [[unlikely]]
      take_up_parked();
    size_t index = p.next;
    if (!p.ready.empty()) {
      std::pop_heap(p.ready.begin(), p.ready.end(), std::greater<>());
      index = static_cast<size_t>(p.ready.back());
      p.ready.pop_back();
    } else {
      if (index == p.missing.size()) break;
      ++p.next;
    }
    // begin_calls() may have run it.
    if (p.missing[index] != 0) continue;
    if (stop_ != nullptr && stop_->raised()) [[unlikely]]
      return stop_->status();
    if constexpr (traced) {
      if (p.began_ns[index] < 0) p.began_ns[index] = trace_->now();
      began_ns_ = p.began_ns[index];
    }
    Progress progress = Progress::kDone;
    for (const int32_t read : bound_->needs()->late_reads(index)) {
      if (p.missing[read] != Needs::kLate) continue;
      SR_ASSIGN_OR_RETURN(progress, run_one(static_cast<size_t>(read), stop_at_wait));
      if (progress == Progress::kBlocked) break;
      if constexpr (traced) note(bound_->program().instructions[read]);
      go_on_after(static_cast<size_t>(read));
      if constexpr (traced) began_ns_ = p.began_ns[index] = trace_->now();
    }
    if (progress == Progress::kDone) {
      SR_ASSIGN_OR_RETURN(progress, run_one(index, stop_at_wait));
    }
    if (progress == Progress::kBlocked) {
      park(index);
      continue;
    }
    if constexpr (traced) note(bound_->program().instructions[index]);
    go_on_after(index);
    if (exchange_ != nullptr) exchange_->yield();
  }
  if (p.done < p.missing.size()) return Progress::kBlocked;
  if constexpr (traced) note_step();
  return Progress::kDone;
}

template Result<Step::Progress> Step::run_parking<false>(bool stop_at_wait);
template Result<Step::Progress> Step::run_parking<true>(bool stop_at_wait);

Result<Step::Progress> Step::advance() {
  waits_for_.clear();
  return run(false);
}

Result<Step::Progress> Step::advance_to_wait() {
  waits_for_.clear();
  return run(true);
}

}  // namespace sidereal::exec
