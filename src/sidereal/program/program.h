#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"

namespace sidereal::program {

/// What one instruction does.
enum class InstructionKind : uint8_t {
  kCompute = 0,    ///< Runs the kernel of `op`.
  kCallStart = 1,  ///< Sends the feeds of calls[call]; does not wait.
  kCallWait = 2,   ///< Goes on when the fetches of calls[call] are there.
  kControl = 3,    ///< Runs bodies as `op` says: FunctionCall, If, While or Scan.
};

/// What is known of one slot before a step runs.
struct SlotInfo {
  ir::DType dtype = ir::DType::kInvalid;
  ir::Shape shape;      ///< Unknown extents are -1.
  int32_t buffer = -1;  ///< Buffer of the plan that holds it; -1: comes from outside the plan
                        ///< (a feed, a fetch of a call, a variable, a constant, a view).
  friend bool operator==(const SlotInfo&, const SlotInfo&) = default;
};

/// One step of a program. Slots are indices into Program::slots.
struct Instruction {
  InstructionKind kind = InstructionKind::kCompute;
  std::string op;    ///< Op name (kCompute, kControl).
  std::string name;  ///< Name of the node it came from, for messages and traces.
  ir::AttrMap attrs;
  std::vector<int32_t> inputs;    ///< Slots read, in the op's input order.
  std::vector<int32_t> outputs;   ///< Slots written.
  std::vector<int32_t> releases;  ///< Slots nobody reads after this instruction.
  int32_t call = -1;              ///< Index into Program::calls (call instructions).
  std::vector<int32_t> bodies;    ///< Indices into the bodies of the whole program (kControl), in
                                  ///< the order of body_attrs().
  /// Earlier instructions that must have run, besides those that write what this one reads. Only
  /// where Program::parks.
  std::vector<int32_t> after = {};
};

/// One remote call of a step, or of a run of a body: a round trip to where its program runs.
struct CallSpec {
  std::string device;            ///< Where it runs.
  uint64_t program = 0;          ///< Content hash of the program that runs there.
  std::vector<int32_t> feeds;    ///< Slots sent.
  std::vector<int32_t> fetches;  ///< Slots filled by the answer.
  bool waits = false;            ///< It may wait for other steps, however long.
  bool async_push = false;       ///< partition::pull_push_by_device() says what that allows.
  bool ahead = false;            ///< The same; no feeds then.
  bool repeatable = false;       ///< It changes nothing, and may be run again.
};

/// The lane of its task that a call runs on.
int lane_of(const CallSpec& call);

/// The graph of a device as a flat list over integer slots. Immutable once made; equal content
/// means equal bytes and hash. Value type.
struct Program {
  std::vector<SlotInfo> slots;
  std::vector<Instruction> instructions;
  std::vector<CallSpec> calls;           ///< Its own; those of bodies are theirs.
  std::vector<int32_t> feeds;            ///< Slots filled before the first instruction.
  std::vector<std::string> feed_names;   ///< Placeholder names; "" for Args.
  std::vector<int32_t> fetches;          ///< Slots read after the last instruction.
  std::vector<std::string> fetch_names;  ///< Output names; "" for Rets.
  int32_t num_buffers = 0;
  /// An instruction that must wait is parked, and those that need nothing of it go on. Not of
  /// bodies, which run in their order.
  bool parks = false;
  /// What control instructions run: programs of their own slots, buffers and calls, without
  /// bodies. A body names bodies of lower index only.
  std::vector<Program> bodies;
};

/// All calls of a program by the number that ports::Exchange knows them by: its own, then those of
/// its bodies, in order. Empty for what is called.
std::vector<const CallSpec*> all_calls(const Program& program);

/// True when an instruction of `part`, whose bodies are those of `whole`, may wait for something
/// that the step itself, or another one, has still to do.
bool may_wait(const Program& whole, const Program& part);

/// The attributes of a control op's node that name its functions, in the order of
/// Instruction::bodies; empty for every other op.
std::span<const std::string_view> body_attrs(std::string_view op);

/// Versioned bytes of a program; the format is in docs/formats/program.md.
std::string encode(const Program& program);

/// The reverse of encode(). Bytes from anyone: every length, count and slot index is checked
/// against bounds before memory is taken; wrong bytes are kDataLoss or kInvalidArgument.
Result<Program> decode(std::string_view bytes);

/// Identity of a program: 64-bit hash of its bytes, never 0.
uint64_t content_hash(std::string_view bytes);

/// The program as text for people and goldens, one instruction a line.
std::string to_text(const Program& program);

}  // namespace sidereal::program
