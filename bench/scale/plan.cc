#include "plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "sidereal/exec/one_op.h"
#include "sidereal/ir/text.h"
#include "sidereal/master/placement.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"

namespace sidereal::bench {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

constexpr size_t kIdTensors = 512;

/// A value for a slot of a program of the ps.
Value value_for(const program::SlotInfo& slot, int64_t ids) {
  if (slot.dtype == DType::kInt64 && slot.shape.rank() == 1) return {.is_ids = true, .tensor = {}};
  std::vector<int64_t> dims(slot.shape.dims().begin(), slot.shape.dims().end());
  std::replace(dims.begin(), dims.end(), int64_t{-1}, ids);
  return {.tensor = Tensor::zeros(slot.dtype, Shape(dims))};
}

Result<ScalePlan> plan_of_calls(const passes::StepGraph& step, const std::string& driver,
                                cluster::Protocol protocol, const ir::OpRegistry& registry,
                                int64_t ids) {
  using Mode = partition::PullPushOptions::Mode;
  const Mode mode = protocol == cluster::Protocol::kStarServerLite ? Mode::kLite : Mode::kLayers;
  SR_ASSIGN_OR_RETURN(const partition::PartitionedGraph cut,
                      partition::pull_push_by_device(step.graph, driver, step.fetches, step.targets,
                                                     registry, {.mode = mode}));
  SR_ASSIGN_OR_RETURN(const program::CompiledStep compiled, program::compile(cut));
  ScalePlan out;
  std::set<uint64_t> known;
  std::map<int32_t, std::vector<ScaleCall>> by_level;
  for (size_t i = 0; i < compiled.remotes.size(); ++i) {
    const program::RemoteProgram& remote = compiled.remotes[i];
    if (known.insert(remote.hash).second) out.programs.push_back({.bytes = remote.bytes});
    ScaleCall& call = by_level[cut.remotes[i].level].emplace_back();
    call.program = remote.hash;
    call.fetches = remote.program.fetches.size();
    call.repeatable = cut.remotes[i].repeatable;
    for (const int32_t slot : remote.program.feeds) {
      call.feeds.push_back(value_for(remote.program.slots[static_cast<size_t>(slot)], ids));
    }
  }
  for (auto& [level, calls] : by_level) out.rounds.push_back(std::move(calls));
  return out;
}

Result<ScalePlan> plan_of_parts(const passes::StepGraph& step, const ir::OpRegistry& registry,
                                int64_t ids) {
  SR_ASSIGN_OR_RETURN(const auto parts,
                      partition::by_device(step.graph, step.fetches, step.targets, registry));
  ScalePlan out;
  for (const partition::DevicePartition& part : parts) {
    if (!part.device.starts_with(kPs)) continue;
    SR_ASSIGN_OR_RETURN(const program::Program program, program::compile(part));
    for (const program::Instruction& one : program.instructions) {
      const auto edge = ir::attr_or<int64_t>(one.attrs, "edge", -1);
      if (one.op == "Send") out.sent[edge] = one.inputs.size();
      if (one.op != "Recv") continue;
      ScaleTensorGroup& tensor_group = out.received[edge];
      for (const int32_t slot : one.outputs) {
        tensor_group.values.push_back(value_for(program.slots[static_cast<size_t>(slot)], ids));
        tensor_group.has_gradients =
            tensor_group.has_gradients || !tensor_group.values.back().is_ids;
      }
    }
    task::NewProgram& made = out.programs.emplace_back();
    made.bytes = program::encode(program);
    for (const std::string& peer : part.peers) made.peers.push_back({.device = peer});
  }
  return out;
}

}  // namespace

Result<ScalePlan> make_plan(const ir::Graph& graph, const std::string& target,
                            const cluster::ClusterSpec& cluster, const std::string& task,
                            cluster::Protocol protocol, int64_t ids) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  SR_ASSIGN_OR_RETURN(const ir::Graph placed,
                      master::place_on_cluster(graph, cluster, {.master = task}, registry));
  const ir::Node* const node = placed.find(target);
  if (node == nullptr) return base::not_found("the graph has no node '{}'", target);
  exec::KernelTable kernels;
  exec::register_kernels(&kernels);
  const auto evaluate = [&](const ir::Node& one, const std::vector<Tensor>& inputs) {
    return exec::run_one_op(one, inputs, kernels);
  };
  SR_ASSIGN_OR_RETURN(const passes::StepGraph step,
                      passes::run_passes(placed, {}, {node->id}, registry, {.evaluate = evaluate}));
  if (!cluster::is_pull_push(protocol)) return plan_of_parts(step, registry, ids);
  return plan_of_calls(step, task + "/device:CPU:0", protocol, registry, ids);
}

IdTensors::IdTensors(int64_t rows, int64_t ids, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> draw(0, rows - 1);
  for (size_t i = 0; i < kIdTensors; ++i) {
    Tensor made = Tensor::empty(DType::kInt64, Shape{ids});
    for (int64_t& id : made.data<int64_t>()) id = draw(random);
    tensors_.push_back(std::move(made));
  }
}

}  // namespace sidereal::bench
