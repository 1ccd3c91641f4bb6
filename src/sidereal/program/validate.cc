#include "sidereal/program/validate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sidereal/program/control.h"

namespace sidereal::program {
namespace {

class Validator {
 public:
  /// `whole` holds the bodies; `program` may name those below `limit`.
  Validator(const Program& program, const Program& whole, size_t limit)
      : program_(program),
        whole_(whole),
        limit_(limit),
        state_(program.slots.size(), State::kUnwritten),
        calls_(program.calls.size(), CallState::kUnstarted),
        kept_(program.slots.size(), 0) {}

  Status run() {
    SR_RETURN_IF_ERROR(check_slots());
    if (program_.parks && &program_ != &whole_) {
      return base::invalid_argument("a body parks nothing: it runs in its order");
    }
    if (program_.feed_names.size() != program_.feeds.size() ||
        program_.fetch_names.size() != program_.fetches.size()) {
      return base::invalid_argument("there must be one name per feed and fetch");
    }
    for (const int32_t slot : program_.feeds) SR_RETURN_IF_ERROR(write(slot));
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      Status status = check_order(instruction, static_cast<int32_t>(i));
      if (status.ok()) status = check(instruction);
      if (status.ok()) continue;
      return base::with_context(status, fmt::format("instruction {} '{}'", i, instruction.name));
    }
    for (size_t call = 0; call < calls_.size(); ++call) {
      if (calls_[call] != CallState::kAnswered) {
        return base::invalid_argument("call {} is never started or never waited for", call);
      }
    }
    for (const int32_t slot : program_.fetches) {
      SR_RETURN_IF_ERROR(base::with_context(read(slot), "a fetch"));
    }
    return {};
  }

 private:
  enum class State : uint8_t { kUnwritten, kLive, kReleased };
  enum class CallState : uint8_t { kUnstarted, kInFlight, kAnswered };

  Status check_slots() const {
    if (program_.slots.size() > kMaxSlots || program_.instructions.size() > kMaxInstructions ||
        program_.calls.size() > kMaxCalls) {
      return base::resource_exhausted("{} slots, {} instructions and {} calls are too many",
                                      program_.slots.size(), program_.instructions.size(),
                                      program_.calls.size());
    }
    if (program_.num_buffers < 0 ||
        static_cast<size_t>(program_.num_buffers) > program_.slots.size()) {
      return base::invalid_argument("{} buffers for {} slots", program_.num_buffers,
                                    program_.slots.size());
    }
    for (size_t s = 0; s < program_.slots.size(); ++s) {
      const SlotInfo& info = program_.slots[s];
      if (!tensor::is_valid(info.dtype)) {
        return base::invalid_argument("slot {} has no dtype", s);
      }
      if (info.buffer < -1 || info.buffer >= program_.num_buffers) {
        return base::invalid_argument("slot {} is in buffer {} of {}", s, info.buffer,
                                      program_.num_buffers);
      }
    }
    return {};
  }

  Status check_index(int32_t slot) const {
    if (slot >= 0 && static_cast<size_t>(slot) < state_.size()) return {};
    return base::invalid_argument("there is no slot {}", slot);
  }

  Status read(int32_t slot) const {
    SR_RETURN_IF_ERROR(check_index(slot));
    if (state_[slot] == State::kLive) return {};
    return base::invalid_argument(
        "slot {} is read {}", slot,
        state_[slot] == State::kReleased ? "after it was released" : "before it is written");
  }

  Status write(int32_t slot) {
    SR_RETURN_IF_ERROR(check_index(slot));
    if (state_[slot] != State::kUnwritten) {
      return base::invalid_argument("slot {} is written twice", slot);
    }
    state_[slot] = State::kLive;
    return {};
  }

  Status release(const Instruction& instruction) {
    for (const int32_t slot : instruction.releases) {
      SR_RETURN_IF_ERROR(read(slot));
      if (kept_[slot] > 0) {
        return base::invalid_argument("slot {} is released while a call sends it", slot);
      }
      state_[slot] = State::kReleased;
    }
    return {};
  }

  /// It may only run after what comes before it.
  Status check_order(const Instruction& instruction, int32_t index) const {
    if (!program_.parks && !instruction.after.empty()) {
      return base::invalid_argument("it names what it runs after in a program that parks nothing");
    }
    for (const int32_t before : instruction.after) {
      if (before < 0 || before >= index) {
        return base::invalid_argument("it cannot run after instruction {}", before);
      }
    }
    return {};
  }

  Status check(const Instruction& instruction) {
    switch (instruction.kind) {
      case InstructionKind::kCompute:
        if (!instruction.bodies.empty()) {
          return base::invalid_argument("a compute instruction has no bodies");
        }
        return check_compute(instruction);
      case InstructionKind::kControl:
        SR_RETURN_IF_ERROR(check_bodies(instruction));
        return check_compute(instruction);
      default:
        return check_call(instruction);
    }
  }

  Status check_bodies(const Instruction& instruction) const {
    const auto attrs = body_attrs(instruction.op);
    if (attrs.empty() || attrs.size() != instruction.bodies.size()) {
      return base::invalid_argument("op {} with {} bodies", instruction.op,
                                    instruction.bodies.size());
    }
    for (const int32_t body : instruction.bodies) {
      if (body < 0 || static_cast<size_t>(body) >= limit_) {
        return base::invalid_argument("body {} cannot be run from here: {} bodies come before",
                                      body, limit_);
      }
    }
    for (const int32_t slot : instruction.inputs) SR_RETURN_IF_ERROR(check_index(slot));
    for (const int32_t slot : instruction.outputs) SR_RETURN_IF_ERROR(check_index(slot));
    return check_control(whole_, program_, instruction);
  }

  Status check_compute(const Instruction& instruction) {
    if (instruction.op.empty() || instruction.call != -1) {
      return base::invalid_argument("a compute instruction has an op and no call");
    }
    for (const int32_t slot : instruction.inputs) SR_RETURN_IF_ERROR(read(slot));
    for (const int32_t slot : instruction.outputs) SR_RETURN_IF_ERROR(write(slot));
    return release(instruction);
  }

  Status check_call(const Instruction& instruction) {
    if (!instruction.op.empty() || !instruction.inputs.empty() || !instruction.outputs.empty() ||
        !instruction.attrs.empty() || !instruction.bodies.empty()) {
      return base::invalid_argument("a call instruction has no op, attributes, inputs or outputs");
    }
    if (instruction.call < 0 || static_cast<size_t>(instruction.call) >= calls_.size()) {
      return base::invalid_argument("there is no call {}", instruction.call);
    }
    const CallSpec& call = program_.calls[instruction.call];
    CallState& state = calls_[instruction.call];
    if (instruction.kind == InstructionKind::kCallStart) {
      if (state != CallState::kUnstarted) {
        return base::invalid_argument("call {} is started twice", instruction.call);
      }
      state = CallState::kInFlight;
      for (const int32_t slot : call.feeds) {
        SR_RETURN_IF_ERROR(read(slot));
        ++kept_[slot];
      }
    } else {
      if (state != CallState::kInFlight) {
        return base::invalid_argument("call {} is waited for while it is not in flight",
                                      instruction.call);
      }
      state = CallState::kAnswered;
      for (const int32_t slot : call.feeds) --kept_[slot];
      for (const int32_t slot : call.fetches) SR_RETURN_IF_ERROR(write(slot));
    }
    return release(instruction);
  }

  const Program& program_;
  const Program& whole_;
  size_t limit_;
  std::vector<State> state_;      // By slot.
  std::vector<CallState> calls_;  // By call.
  std::vector<int32_t> kept_;     // By slot: calls in flight that send it.
};

/// What running one body, or the program, takes with all that it runs.
struct Unfolded {
  int64_t slots = 0;
  int depth = 0;
};

/// Sums up over the bodies that the instructions of `part` run; `bodies` are known already.
Status unfold(const Program& part, const std::vector<Unfolded>& bodies, Unfolded* out) {
  out->slots = static_cast<int64_t>(part.slots.size()) + 1;
  for (const Instruction& instruction : part.instructions) {
    for (const int32_t body : instruction.bodies) {
      out->slots += bodies[body].slots;
      out->depth = std::max(out->depth, bodies[body].depth + 1);
      if (out->slots > kMaxUnfoldedSlots || out->depth > kMaxControlDepth) {
        return base::resource_exhausted(
            "control instructions nest {} deep and take more than {} slots together; {} and {} "
            "are allowed",
            out->depth, out->slots, kMaxControlDepth, kMaxUnfoldedSlots);
      }
    }
  }
  return {};
}

Status validate_bodies(const Program& program) {
  if (program.bodies.size() > kMaxBodies) {
    return base::resource_exhausted("{} bodies are too many", program.bodies.size());
  }
  size_t calls = program.calls.size();
  for (size_t k = 0; k < program.bodies.size(); ++k) {
    const Program& body = program.bodies[k];
    Status status;
    calls += body.calls.size();
    if (calls > kMaxCalls) {
      status = base::resource_exhausted("{} calls are too many", calls);
    } else if (!body.bodies.empty()) {
      status = base::invalid_argument("a body has bodies of its own");
    } else {
      status = Validator(body, program, k).run();
    }
    SR_RETURN_IF_ERROR(base::with_context(status, fmt::format("body {}", k)));
  }
  return {};
}

}  // namespace

Status validate(const Program& program) {
  SR_RETURN_IF_ERROR(validate_bodies(program));
  SR_RETURN_IF_ERROR(Validator(program, program, program.bodies.size()).run());
  std::vector<Unfolded> bodies(program.bodies.size());
  for (size_t k = 0; k < bodies.size(); ++k) {
    SR_RETURN_IF_ERROR(unfold(program.bodies[k], bodies, &bodies[k]));
  }
  Unfolded whole;
  return unfold(program, bodies, &whole);
}

}  // namespace sidereal::program
