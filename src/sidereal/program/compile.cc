#include "sidereal/program/compile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "sidereal/ir/control_ops.h"
#include "sidereal/ir/function.h"
#include "sidereal/program/internal/buffer_plan.h"
#include "sidereal/program/internal/schedule.h"
#include "sidereal/program/validate.h"

namespace sidereal::program {
namespace {

using ir::Node;
using ir::Output;

/// Multiply-adds from which a product takes long beside a call: some milliseconds.
constexpr double kLongProduct = 1 << 28;

/// Elements of a value, as far as its extents are known.
double known_elements(const tensor::Shape& shape) {
  double out = 1;
  for (int i = 0; shape.has_rank() && i < shape.rank(); ++i) {
    out *= static_cast<double>(std::max<int64_t>(shape.dim(i), 1));
  }
  return out;
}

/// About as many multiply-adds as the product has that `instruction` computes; 0: none.
double product_of(const Instruction& instruction, const std::vector<SlotInfo>& slots) {
  const std::string& op = instruction.op;
  if (op != "MatMul" && op != "FusedMatMul" && !op.starts_with("Conv2D")) return 0;
  const auto elements = [&](int32_t slot) { return known_elements(slots[slot].shape); };
  // Of m k, k n and m n the square root is m k n.
  return std::sqrt(elements(instruction.inputs[0]) * elements(instruction.inputs[1]) *
                   elements(instruction.outputs[0]));
}

/// The bodies of one program while it is made: each function once, after those it calls.
/// Thread: core-local.
class Bodies {
 public:
  std::vector<RemoteProgram> remotes;  ///< That `Call` nodes run, by their "call".
  std::vector<int32_t> rounds;         ///< By remote: when it runs.
  std::set<int64_t> seen;              ///< Remotes that a node runs.
  std::vector<size_t> calls;           ///< By call of all bodies: which remote it runs.

  /// The index of the body of `function`.
  Result<int32_t> index_of(const ir::FunctionPtr& function);
  std::vector<Program> take() { return std::move(programs_); }
  /// True when `instruction` sends something, or runs a body that does.
  [[nodiscard]] bool sends(const Instruction& instruction) const {
    if (instruction.op == "Send") return true;
    return std::any_of(instruction.bodies.begin(), instruction.bodies.end(),
                       [&](int32_t body) { return sends_[body]; });
  }
  /// True when `instruction` may compute for long beside a call, or runs a body that may.
  [[nodiscard]] bool takes_long(const Instruction& instruction,
                                const std::vector<SlotInfo>& slots) const {
    if (ir::is_loop(instruction.op) || product_of(instruction, slots) >= kLongProduct) return true;
    return std::any_of(instruction.bodies.begin(), instruction.bodies.end(),
                       [&](int32_t body) { return takes_long_[body]; });
  }

 private:
  std::vector<bool> sends_;       // By body.
  std::vector<bool> takes_long_;  // By body.
  std::map<ir::FunctionPtr, int32_t> index_;
  std::vector<Program> programs_;
};

/// Turns one graph into a program, or one function into a body. Thread: core-local.
class Compiler {
 public:
  Compiler(const ir::Graph& graph, Bodies* bodies, bool is_body = false)
      : graph_(graph), bodies_(*bodies), is_body_(is_body) {}

  Status run() {
    SR_RETURN_IF_ERROR(find_calls());
    make_slots();
    for (const Scheduled& item : schedule(graph_, bodies_.rounds)) SR_RETURN_IF_ERROR(emit(item));
    return {};
  }

  /// Lets what waits be parked, if anything does, or if an answer may let a call begin while the
  /// program still computes something else.
  void park() {
    program_.parks = may_wait(program_, program_) || computes_long_before_a_call();
    if (program_.parks) return;
    for (Instruction& instruction : program_.instructions) instruction.after.clear();
  }

  void add_fetch(Output fetch, std::string name) {
    program_.fetches.push_back(slot_.at(fetch));
    program_.fetch_names.push_back(std::move(name));
  }

  /// Takes the fetches of a remote graph from its `Ret` nodes.
  Status add_rets() {
    std::map<int64_t, Output> rets;
    for (const Node& node : graph_.nodes()) {
      if (node.op == "Ret") rets[ir::attr_or<int64_t>(node.attrs, "index", -1)] = node.inputs[0];
    }
    for (const auto& [index, value] : rets) {
      if (index != static_cast<int64_t>(program_.fetches.size())) {
        return base::invalid_argument("a remote graph has no Ret {}", program_.fetches.size());
      }
      add_fetch(value, "");
    }
    return {};
  }

  /// The body that was made; not valid by itself if it names others.
  Program finish_body() {
    plan();
    return std::move(program_);
  }

  Result<Program> finish() {
    plan();
    program_.bodies = bodies_.take();
    park();
    SR_RETURN_IF_ERROR(validate(program_));
    return std::move(program_);
  }

  /// True when it sends something, in bodies or not.
  [[nodiscard]] bool sends() const {
    return std::any_of(program_.instructions.begin(), program_.instructions.end(),
                       [&](const Instruction& one) { return bodies_.sends(one); });
  }

  [[nodiscard]] bool takes_long() const {
    return std::any_of(
        program_.instructions.begin(), program_.instructions.end(),
        [&](const Instruction& one) { return bodies_.takes_long(one, program_.slots); });
  }

  std::vector<size_t> calls;  ///< By call of the program: which remote it runs.

 private:
  /// True when something takes long behind the first call to a device, and before one that waits
  /// for an answer. (Workers of lanes have several steps in flight instead.)
  [[nodiscard]] bool computes_long_before_a_call() const {
    bool has_begun = false;
    bool has_waited = false;
    bool is_long = false;
    for (const Instruction& one : program_.instructions) {
      const bool starts =
          one.kind == InstructionKind::kCallStart && !program_.calls[one.call].device.empty();
      if (starts && has_waited && is_long) return true;
      has_begun = has_begun || starts;
      has_waited = has_waited || one.kind == InstructionKind::kCallWait;
      is_long = is_long || (has_begun && bodies_.takes_long(one, program_.slots));
    }
    return false;
  }

  void plan() {
    plan_buffers(&program_, [&](const Instruction& one) { return bodies_.sends(one); });
  }

  Status find_calls() {
    const std::vector<RemoteProgram>& remotes = bodies_.remotes;
    for (const Node& node : graph_.nodes()) {
      if (node.op != "Call") continue;
      const auto call = ir::attr_or<int64_t>(node.attrs, "call", -1);
      if (call < 0 || static_cast<size_t>(call) >= remotes.size() ||
          !bodies_.seen.insert(call).second) {
        return base::invalid_argument("node '{}': call {} is unknown or made twice", node.name,
                                      call);
      }
      const Program& remote = remotes[call].program;
      if (node.inputs.size() != remote.feeds.size() ||
          node.outputs.size() != remote.fetches.size()) {
        return base::invalid_argument(
            "node '{}' sends {} and takes {} values; its remote graph has {} Args and {} Rets",
            node.name, node.inputs.size(), node.outputs.size(), remote.feeds.size(),
            remote.fetches.size());
      }
      call_of_[node.id] = static_cast<int32_t>(program_.calls.size());
      calls.push_back(static_cast<size_t>(call));
      program::CallSpec& spec = program_.calls.emplace_back();
      spec.device = remotes[call].device;
      spec.program = remotes[call].hash;
      spec.waits = ir::attr_or(node.attrs, "waits", false);
      spec.async_push = ir::attr_or(node.attrs, "async_push", false);
      spec.ahead = ir::attr_or(node.attrs, "ahead", false) && node.inputs.empty();
      spec.repeatable = ir::attr_or(node.attrs, "repeatable", false);
    }
    return {};
  }

  void make_slots() {
    std::map<int64_t, ir::NodeId> args;
    for (const Node& node : graph_.nodes()) {
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        slot_[{node.id, static_cast<int32_t>(o)}] = static_cast<int32_t>(program_.slots.size());
        program_.slots.push_back({node.outputs[o].dtype, node.outputs[o].shape, -1});
      }
      if (node.op == "Placeholder") {
        program_.feeds.push_back(slot_.at({node.id, 0}));
        program_.feed_names.push_back(node.name);
      } else if (node.op == "Arg") {
        args[ir::attr_or<int64_t>(node.attrs, "index", -1)] = node.id;
      }
    }
    for (const auto& [index, arg] : args) {
      program_.feeds.push_back(slot_.at({arg, 0}));
      program_.feed_names.push_back(is_body_ ? graph_.node(arg).name : "");
    }
  }

  /// Makes a control instruction of one whose node calls functions.
  Status add_bodies(Instruction* instruction) {
    for (const std::string_view attr : body_attrs(instruction->op)) {
      const auto name = ir::attr_or<std::string>(instruction->attrs, attr, "");
      const ir::FunctionPtr function = graph_.find_function(name);
      if (function == nullptr) {
        return base::not_found("node '{}': there is no function '{}'", instruction->name, name);
      }
      SR_ASSIGN_OR_RETURN(instruction->bodies.emplace_back(), bodies_.index_of(function));
      instruction->attrs.erase(std::string(attr));
      instruction->kind = InstructionKind::kControl;
    }
    return {};
  }

  Status emit(const Scheduled& item) {
    const Node& node = graph_.node(item.node);
    // What the node runs after, besides what makes its inputs.
    std::set<int32_t> after;
    if (!is_body_) {
      for (const ir::NodeId source : node.control_inputs) {
        after.insert(done_[source].begin(), done_[source].end());
      }
    }
    if (node.op == "Placeholder" || node.op == "Arg" || node.op == "Ret" || node.op == "NoOp") {
      if (!after.empty()) done_[node.id].assign(after.begin(), after.end());
      return {};
    }
    const auto index = static_cast<int32_t>(program_.instructions.size());
    if (!is_body_ && item.kind != InstructionKind::kCallStart) done_[node.id] = {index};
    Instruction instruction;
    if (item.kind != InstructionKind::kCallWait) {
      instruction.after.assign(after.begin(), after.end());
    }
    instruction.kind = item.kind;
    instruction.name = node.name;
    std::vector<int32_t> inputs;
    std::vector<int32_t> outputs;
    for (const Output& input : node.inputs) inputs.push_back(slot_.at(input));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      outputs.push_back(slot_.at({node.id, static_cast<int32_t>(o)}));
    }
    if (item.kind == InstructionKind::kCompute) {
      instruction.op = node.op;
      instruction.attrs = node.attrs;
      std::erase_if(instruction.attrs, [](const auto& attr) { return ir::is_note(attr.first); });
      instruction.inputs = std::move(inputs);
      instruction.outputs = std::move(outputs);
      SR_RETURN_IF_ERROR(add_bodies(&instruction));
    } else {
      instruction.call = call_of_.at(node.id);
      CallSpec& call = program_.calls[instruction.call];
      call.feeds = std::move(inputs);
      call.fetches = std::move(outputs);
    }
    program_.instructions.push_back(std::move(instruction));
    return {};
  }

  const ir::Graph& graph_;
  Bodies& bodies_;
  bool is_body_;
  std::map<Output, int32_t> slot_;
  /// By node: the instructions after which it has run.
  std::map<ir::NodeId, std::vector<int32_t>> done_;
  std::map<ir::NodeId, int32_t> call_of_;  // By Call node: which of the program's calls.
  Program program_;
};

Result<int32_t> Bodies::index_of(const ir::FunctionPtr& function) {
  if (const auto known = index_.find(function); known != index_.end()) return known->second;
  Compiler compiler(function->body(), this, true);
  SR_RETURN_IF_ERROR(compiler.run());
  for (const Output& output : function->outputs()) compiler.add_fetch(output, "");
  sends_.push_back(compiler.sends());
  takes_long_.push_back(compiler.takes_long());
  programs_.push_back(compiler.finish_body());
  calls.insert(calls.end(), compiler.calls.begin(), compiler.calls.end());
  const auto index = static_cast<int32_t>(programs_.size() - 1);
  index_.emplace(function, index);
  return index;
}

Result<RemoteProgram> compile_remote(const partition::RemoteGraph& remote) {
  Bodies bodies;
  Compiler compiler(remote.graph, &bodies);
  SR_RETURN_IF_ERROR(compiler.run());
  SR_RETURN_IF_ERROR(compiler.add_rets());
  RemoteProgram out;
  out.device = remote.device;
  SR_ASSIGN_OR_RETURN(out.program, compiler.finish());
  out.bytes = encode(out.program);
  out.hash = content_hash(out.bytes);
  return out;
}

}  // namespace

Result<CompiledStep> compile(const partition::PartitionedGraph& partitioned) {
  Bodies bodies;
  for (size_t call = 0; call < partitioned.remotes.size(); ++call) {
    const partition::RemoteGraph& remote = partitioned.remotes[call];
    Result<RemoteProgram> compiled = compile_remote(remote);
    if (!compiled.ok()) {
      return base::with_context(compiled.status(),
                                fmt::format("call {} to {}", call, remote.device));
    }
    bodies.remotes.push_back(std::move(*compiled));
    bodies.rounds.push_back(remote.level);
  }
  Compiler compiler(partitioned.worker, &bodies);
  SR_RETURN_IF_ERROR(compiler.run());
  for (size_t call = 0; call < bodies.remotes.size(); ++call) {
    if (!bodies.seen.contains(static_cast<int64_t>(call))) {
      return base::invalid_argument("no node makes call {}", call);
    }
  }
  for (size_t i = 0; i < partitioned.fetches.size(); ++i) {
    const Output fetch = partitioned.fetches[i];
    compiler.add_fetch(fetch, i < partitioned.fetch_names.size()
                                  ? partitioned.fetch_names[i]
                                  : partitioned.worker.output_name(fetch));
  }
  CompiledStep step;
  SR_ASSIGN_OR_RETURN(step.worker, compiler.finish());
  for (const std::vector<size_t>& calls : {compiler.calls, bodies.calls}) {
    for (const size_t call : calls) step.remotes.push_back(std::move(bodies.remotes[call]));
  }
  return step;
}

Result<Program> compile(const partition::DevicePartition& partition) {
  Bodies bodies;
  Compiler compiler(partition.graph, &bodies);
  SR_RETURN_IF_ERROR(compiler.run());
  for (size_t i = 0; i < partition.fetches.size(); ++i) {
    compiler.add_fetch(partition.fetches[i], partition.fetch_names[i]);
  }
  return compiler.finish();
}

}  // namespace sidereal::program
