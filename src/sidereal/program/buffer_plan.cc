#include "sidereal/program/internal/buffer_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

namespace sidereal::program {
namespace {

constexpr int32_t kForever = std::numeric_limits<int32_t>::max();
constexpr int32_t kNever = -1;

template <size_t N>
bool is_one_of(std::string_view op, const std::array<std::string_view, N>& ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

/// The output is the first input under another shape.
bool is_view(std::string_view op) {
  constexpr std::array<std::string_view, 8> kOps = {"Identity",     "Reshape",       "ReshapeLike",
                                                    "StopGradient", "CheckNumerics", "ExpandDims",
                                                    "Squeeze",      "EnsureShape"};
  return is_one_of(op, kOps);
}

/// The output is memory that the plan does not own: a variable's version, a constant, what another
/// device sent, a value that was lent to the step and updated in place.
bool is_outside(std::string_view op) {
  constexpr std::array<std::string_view, 12> kOps = {"Recv",
                                                     "Const",
                                                     "UpdateDense",
                                                     "UpdateRows",
                                                     "UpdateJoinedRows",
                                                     "VariableRead",
                                                     "VariableAssign",
                                                     "VariableAssignAdd",
                                                     "VariableAssignSub",
                                                     "VariableScatterAdd",
                                                     "VariableScatterSub",
                                                     "VariableScatterUpdate"};
  return is_one_of(op, kOps);
}

/// The output has the shape of the first input, whatever that is at run time.
bool is_like_first(std::string_view op) {
  constexpr std::array<std::string_view, 48> kOps = {
      "Neg",   "Exp",      "Log",         "Log1p",    "Sqrt",     "Square",    "Abs",
      "Sign",  "Sigmoid",  "Tanh",        "Relu",     "Softplus", "BiasAdd",   "Dropout",
      "AddN",  "ReluGrad", "SigmoidGrad", "TanhGrad", "Expm1",    "Rsqrt",     "Reciprocal",
      "Floor", "Ceil",     "Round",       "Trunc",    "Sin",      "Cos",       "Tan",
      "Asin",  "Acos",     "Atan",        "Sinh",     "Cosh",     "Asinh",     "Acosh",
      "Atanh", "Erf",      "Erfc",        "Lgamma",   "Digamma",  "Trigamma",  "Relu6",
      "Elu",   "Selu",     "Silu",        "Gelu",     "Invert",   "LogicalNot"};
  return is_one_of(op, kOps);
}

bool is_broadcasting(std::string_view op) {
  constexpr std::array<std::string_view, 23> kOps = {"Add",
                                                     "Sub",
                                                     "Mul",
                                                     "Div",
                                                     "Maximum",
                                                     "Minimum",
                                                     "FloorDiv",
                                                     "FloorMod",
                                                     "Pow",
                                                     "SquaredDifference",
                                                     "Atan2",
                                                     "DivNoNan",
                                                     "Xlogy",
                                                     "Xlog1py",
                                                     "LogicalAnd",
                                                     "LogicalOr",
                                                     "LogicalXor",
                                                     "BitwiseAnd",
                                                     "BitwiseOr",
                                                     "BitwiseXor",
                                                     "LeftShift",
                                                     "RightShift",
                                                     "FusedElementwise"};
  return is_one_of(op, kOps);
}

/// Extent `i`, counted from the last dimension, of a shape padded with ones as NumPy does.
int64_t extent_from_end(const ir::Shape& shape, int i) {
  return i < shape.rank() ? shape.dim(shape.rank() - 1 - i) : 1;
}

/// True when broadcasting `a` with `b` gives the shape of `a` for every value of unknown extents.
bool keeps_shape(const ir::Shape& a, const ir::Shape& b) {
  if (!a.has_rank() || !b.has_rank() || b.rank() > a.rank()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    const int64_t from_b = extent_from_end(b, i);
    const int64_t from_a = extent_from_end(a, i);
    if (from_b != 1 && (from_a < 0 || from_a != from_b)) return false;
  }
  return true;
}

/// True when a buffer that held `had` is likely to be large enough for `wanted`.
bool alike(const SlotInfo& had, const SlotInfo& wanted) {
  if (tensor::size_of(had.dtype) != tensor::size_of(wanted.dtype)) return false;
  if (!had.shape.has_rank() || !wanted.shape.has_rank()) return false;
  if (had.shape.rank() != wanted.shape.rank() || had.shape.rank() == 0) return false;
  const auto a = had.shape.dims();
  const auto b = wanted.shape.dims();
  return std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

class Planner {
 public:
  Planner(Program* program, const std::function<bool(const Instruction&)>& sends)
      : program_(*program),
        storage_(program->slots.size()),
        last_read_(program->slots.size(), kNever),
        storage_last_(program->slots.size(), kNever),
        sent_(program->slots.size(), false) {
    find_views();
    for (const Instruction& instruction : program->instructions) {
      if (!sends(instruction)) continue;
      for (const int32_t slot : instruction.inputs) sent_[storage_[slot]] = true;
    }
  }

  void run() {
    find_last_reads();
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction& instruction = program_.instructions[i];
      if (instruction.kind == InstructionKind::kCompute) assign(instruction, static_cast<int>(i));
      release(&instruction, static_cast<int>(i));
    }
    program_.num_buffers = static_cast<int32_t>(held_.size());
  }

 private:
  void find_views() {
    for (size_t s = 0; s < storage_.size(); ++s) storage_[s] = static_cast<int32_t>(s);
    for (const Instruction& instruction : program_.instructions) {
      if (instruction.kind == InstructionKind::kCompute && is_view(instruction.op)) {
        storage_[instruction.outputs[0]] = storage_[instruction.inputs[0]];
      }
    }
  }

  /// Instructions after which slots, and the memory below them, are not needed any more.
  void find_last_reads() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      const auto now = static_cast<int32_t>(i);
      for (const int32_t slot : instruction.inputs) last_read_[slot] = now;
      for (const int32_t slot : instruction.outputs) last_read_[slot] = now;
      if (instruction.kind != InstructionKind::kCallWait) continue;
      const CallSpec& call = program_.calls[instruction.call];
      // What was sent may still be on its way out until the answer is there.
      for (const int32_t slot : call.feeds) last_read_[slot] = std::max(last_read_[slot], now);
      for (const int32_t slot : call.fetches) last_read_[slot] = now;
    }
    for (const int32_t slot : program_.fetches) last_read_[slot] = kForever;
    for (size_t s = 0; s < storage_.size(); ++s) {
      int32_t& last = storage_last_[storage_[s]];
      last = std::max(last, last_read_[s]);
    }
  }

  void assign(const Instruction& instruction, int now) {
    if (is_view(instruction.op) || is_outside(instruction.op)) return;
    for (size_t o = 0; o < instruction.outputs.size(); ++o) {
      const int32_t slot = instruction.outputs[o];
      // Views may show bytes of any input, so strings live by counting, not by plan.
      if (program_.slots[slot].dtype == ir::DType::kString || sent_[slot]) continue;
      int32_t buffer = o == 0 ? buffer_to_overwrite(instruction, now) : -1;
      if (buffer < 0) buffer = take_free(program_.slots[slot]);
      program_.slots[slot].buffer = buffer;
      held_[buffer] = slot;
    }
  }

  /// The buffer of an input that nobody needs after this element-wise instruction, or -1.
  [[nodiscard]] int32_t buffer_to_overwrite(const Instruction& instruction, int now) const {
    const auto usable = [&](size_t i) {
      const int32_t storage = storage_[instruction.inputs[i]];
      if (program_.slots[storage].dtype != program_.slots[instruction.outputs[0]].dtype) {
        return false;
      }
      return program_.slots[storage].buffer >= 0 && storage_last_[storage] == now;
    };
    const auto buffer = [&](size_t i) {
      return program_.slots[storage_[instruction.inputs[i]]].buffer;
    };
    if (instruction.inputs.empty()) return -1;
    if (is_like_first(instruction.op)) {
      // Another view of the same memory would be read after it was written.
      for (size_t i = 1; i < instruction.inputs.size(); ++i) {
        if (storage_[instruction.inputs[i]] == storage_[instruction.inputs[0]]) return -1;
      }
      return usable(0) ? buffer(0) : -1;
    }
    if (!is_broadcasting(instruction.op)) return -1;
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      const ir::Shape& mine = program_.slots[instruction.inputs[i]].shape;
      const bool keeps =
          std::all_of(instruction.inputs.begin(), instruction.inputs.end(), [&](int32_t other) {
            return other == instruction.inputs[i] || keeps_shape(mine, program_.slots[other].shape);
          });
      if (usable(i) && keeps) return buffer(i);
    }
    return -1;
  }

  int32_t take_free(const SlotInfo& wanted) {
    int32_t best = -1;
    for (size_t b = 0; b < held_.size(); ++b) {
      if (held_[b] >= 0) continue;
      const SlotInfo& had = last_held_[b];
      if (had.dtype == wanted.dtype && had.shape == wanted.shape) {
        best = static_cast<int32_t>(b);
        break;
      }
      if (best < 0 && alike(had, wanted)) best = static_cast<int32_t>(b);
    }
    if (best < 0) {
      best = static_cast<int32_t>(held_.size());
      held_.push_back(-1);
      last_held_.emplace_back();
    }
    last_held_[best] = wanted;
    return best;
  }

  void release(Instruction* instruction, int now) {
    std::vector<int32_t> touched = instruction->inputs;
    const auto add = [&](const std::vector<int32_t>& slots) {
      touched.insert(touched.end(), slots.begin(), slots.end());
    };
    add(instruction->outputs);
    if (instruction->kind == InstructionKind::kCallWait) {
      add(program_.calls[instruction->call].feeds);
      add(program_.calls[instruction->call].fetches);
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const int32_t slot : touched) {
      if (last_read_[slot] == now) instruction->releases.push_back(slot);
      const int32_t storage = storage_[slot];
      const int32_t buffer = program_.slots[storage].buffer;
      // After an overwrite the buffer is held by the output, which lives on.
      if (storage_last_[storage] == now && buffer >= 0 && held_[buffer] == storage) {
        held_[buffer] = -1;
      }
    }
  }

  Program& program_;
  std::vector<int32_t> storage_;       // By slot: the slot whose memory it shows.
  std::vector<int32_t> last_read_;     // By slot.
  std::vector<int32_t> storage_last_;  // By storage slot: last read of it or of a view of it.
  std::vector<bool> sent_;             // By storage slot: it or a view of it is sent.
  std::vector<int32_t> held_;          // By buffer: the slot in it, or -1.
  std::vector<SlotInfo> last_held_;    // By buffer.
};

}  // namespace

void plan_buffers(Program* program, const std::function<bool(const Instruction&)>& sends) {
  Planner(program, sends).run();
}

}  // namespace sidereal::program
