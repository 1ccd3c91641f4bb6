#include "tests/sim/plans.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/lanes.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/program/compile.h"
#include "tests/sim/process.h"
#include "tests/sim/push_table.h"

namespace sidereal::sim {

using tensor::DType;
using tensor::Shape;

namespace {

std::string device_of(int ps) { return task_of_ps(ps) + "/device:CPU:0"; }

/// A graph whose nodes name their devices.
class Builder {
 public:
  explicit Builder(const Scenario& scenario) : scenario_(scenario) {
    ops::register_all(&registry_);
  }

  ir::Output add(std::string_view op, const std::vector<ir::Output>& inputs, ir::AttrMap attrs,
                 const std::string& device, std::string_view name = {}) {
    const ir::Output out = builder_.add(op, inputs, std::move(attrs), name);
    if (out.valid()) graph_.mutable_node(out.node).device = device;
    return out;
  }
  ir::Output placeholder(const std::string& name, DType dtype, const Shape& shape,
                         const std::string& device) {
    return add("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, device, name);
  }
  [[nodiscard]] Shape rows_shape() const { return {PushTable::kRows, scenario_.width}; }
  [[nodiscard]] Shape weights_shape() const { return {weights(scenario_)}; }
  ir::Output variable(const std::string& name, const Shape& shape, const std::string& device) {
    return add("Variable", {},
               {{"dtype", DType::kFloat32}, {"shape", shape}, {"shared_name", name}}, device);
  }
  ir::Output read(ir::Output handle, const Shape& shape, const std::string& device) {
    return add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", shape}}, device);
  }
  [[nodiscard]] const ir::Graph& graph() const { return graph_; }
  [[nodiscard]] const ir::OpRegistry& registry() const { return registry_; }
  [[nodiscard]] const Status& status() const { return builder_.status(); }

 private:
  const Scenario& scenario_;
  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder builder_{&graph_, &registry_};
};

/// One step's graph.
struct StepGraph {
  explicit StepGraph(const Scenario& scenario) : builder(scenario) {}
  Builder builder;
  std::vector<ir::Output> fetches;
  std::vector<ir::NodeId> targets;
};

std::string rows_name(int lane) { return fmt::format("rows_{}", lane); }
std::string weights_name(int lane) { return fmt::format("weights_{}", lane); }
std::string nothing_name(int lane) { return fmt::format("nothing_{}", lane); }

void add_place(const Scenario& scenario, Work work, size_t at, size_t place, StepGraph* out) {
  Builder& b = out->builder;
  const auto lane = static_cast<int>(place) % scenario.lanes;
  std::string ps = device_of(static_cast<int>(place) / scenario.lanes);
  if (scenario.cut != Cut::kParts) ps = partition::on_lane(ps, lane);
  const std::string worker = kPlanWorker;
  if (work == Work::kRead || work == Work::kWrite) {
    const ir::Output handle = b.variable(weights_name(lane), b.weights_shape(), ps);
    if (work == Work::kWrite) {
      const ir::Output value =
          b.placeholder(fmt::format("weights_{}", at), DType::kFloat32, b.weights_shape(), worker);
      out->targets.push_back(b.add("VariableAssign", {handle, value}, {}, ps).node);
      return;
    }
    const ir::Output all = b.read(handle, b.weights_shape(), ps);
    out->fetches.push_back(b.add("Identity", {all}, {}, worker));
    return;
  }
  const ir::Output handle = b.variable(rows_name(lane), b.rows_shape(), ps);
  const ir::Output ids = b.placeholder(fmt::format("ids_{}", at), DType::kInt64, Shape{-1}, worker);
  ir::Output nothing;
  if (work == Work::kTrain && scenario.cut == Cut::kLite) {
    // What needs no feed may be asked for before the step.
    nothing = b.read(b.variable(nothing_name(lane), Shape{1}, ps), Shape{1}, ps);
  } else if (work != Work::kPush) {
    const ir::Output rows = b.add("Gather", {b.read(handle, b.rows_shape(), ps), ids}, {}, ps);
    const ir::Output pulled = b.add("Identity", {rows}, {}, worker);
    out->fetches.push_back(pulled);
    nothing = b.add("Sub", {pulled, pulled}, {}, worker);
  }
  if (work == Work::kPull) return;
  ir::Output updates = b.placeholder(fmt::format("updates_{}", at), DType::kFloat32,
                                     Shape{-1, scenario.width}, worker);
  if (work == Work::kTrain) updates = b.add("Add", {updates, nothing}, {}, worker);
  out->targets.push_back(b.add("VariableScatterAdd", {handle, ids, updates}, {}, ps).node);
}

Status plan_of_calls(const Scenario& scenario, const StepGraph& step, StepPlan* out) {
  using Mode = partition::PullPushOptions::Mode;
  const Mode mode = scenario.cut == Cut::kLite ? Mode::kLite : Mode::kLayers;
  SR_ASSIGN_OR_RETURN(
      const partition::PartitionedGraph cut,
      partition::pull_push_by_device(step.builder.graph(), kPlanWorker, step.fetches, step.targets,
                                     step.builder.registry(), {.mode = mode}));
  SR_ASSIGN_OR_RETURN(const program::CompiledStep compiled, program::compile(cut));
  out->own = {.bytes = program::encode(compiled.worker), .lane = -1};
  out->feeds = compiled.worker.feed_names;
  for (const program::RemoteProgram& remote : compiled.remotes) {
    const int lane = partition::lane_of(remote.device);
    int ps = 0;
    while (partition::on_lane(device_of(ps), lane) != remote.device) ++ps;
    out->remotes.push_back({.ps = ps, .program = {.bytes = remote.bytes, .lane = lane}});
  }
  return {};
}

Status plan_of_parts(const StepGraph& step, StepPlan* out) {
  SR_ASSIGN_OR_RETURN(const std::vector<partition::DevicePartition> parts,
                      partition::by_device(step.builder.graph(), step.fetches, step.targets,
                                           step.builder.registry()));
  for (const partition::DevicePartition& part : parts) {
    SR_ASSIGN_OR_RETURN(const program::Program program, program::compile(part));
    PlannedProgram made = {.bytes = program::encode(program), .lane = -1, .peers = part.peers};
    if (part.device == kPlanWorker) {
      out->own = std::move(made);
      out->feeds = program.feed_names;
      continue;
    }
    int ps = 0;
    while (device_of(ps) != part.device) ++ps;
    out->remotes.push_back({.ps = ps, .program = std::move(made)});
  }
  return {};
}

Result<StepPlan> make_plan(const Scenario& scenario, Work work, size_t first) {
  const auto all = static_cast<size_t>(scenario.ps) * static_cast<size_t>(scenario.lanes);
  StepPlan out;
  out.work = work;
  StepGraph step(scenario);
  for (size_t i = 0; i < std::min(all, static_cast<size_t>(scenario.spread)); ++i) {
    out.places.push_back((first + i) % all);
    add_place(scenario, work, i, out.places.back(), &step);
  }
  out.fetches = !step.fetches.empty();
  SR_RETURN_IF_ERROR(step.builder.status());
  SR_RETURN_IF_ERROR(scenario.cut == Cut::kParts ? plan_of_parts(step, &out)
                                                 : plan_of_calls(scenario, step, &out));
  return out;
}

/// What runs on one device alone.
Result<std::string> program_of(const StepGraph& step) {
  SR_ASSIGN_OR_RETURN(const std::vector<partition::DevicePartition> parts,
                      partition::by_device(step.builder.graph(), step.fetches, step.targets,
                                           step.builder.registry()));
  SR_ASSIGN_OR_RETURN(const program::Program program, program::compile(parts.at(0)));
  return program::encode(program);
}

}  // namespace

int64_t weights(const Scenario& scenario) {
  // So that an answer, with what stands beside it, is not larger than messages may be.
  return std::max<int64_t>(1, (scenario.bytes_large - 1024) / static_cast<int64_t>(sizeof(float)));
}

Result<std::vector<StepPlan>> make_plans(const Scenario& scenario) {
  std::vector<StepPlan> out;
  const auto places = static_cast<size_t>(scenario.ps) * static_cast<size_t>(scenario.lanes);
  for (const Work work : {Work::kPull, Work::kPush, Work::kTrain, Work::kRead, Work::kWrite}) {
    for (size_t first = 0; first < places; ++first) {
      SR_ASSIGN_OR_RETURN(out.emplace_back(), make_plan(scenario, work, first));
    }
  }
  return out;
}

Result<std::vector<StatePrograms>> make_state_programs(const Scenario& scenario, int ps) {
  const std::string device = device_of(ps);
  std::vector<StatePrograms> out;
  for (int lane = 0; lane < scenario.lanes; ++lane) {
    StepGraph begin(scenario);
    StepGraph end(scenario);
    Builder& b = begin.builder;
    for (const auto& [name, shape] : {std::pair(rows_name(lane), b.rows_shape()),
                                      std::pair(weights_name(lane), b.weights_shape()),
                                      std::pair(nothing_name(lane), Shape{1})}) {
      const ir::Output value = b.placeholder("value_of_" + name, DType::kFloat32, shape, device);
      const ir::Output handle = b.variable(name, shape, device);
      begin.targets.push_back(b.add("VariableAssign", {handle, value}, {}, device).node);
    }
    const ir::Output handle = end.builder.variable(rows_name(lane), b.rows_shape(), device);
    end.fetches.push_back(end.builder.read(handle, b.rows_shape(), device));
    SR_RETURN_IF_ERROR(begin.builder.status());
    SR_RETURN_IF_ERROR(end.builder.status());
    StatePrograms& programs = out.emplace_back();
    SR_ASSIGN_OR_RETURN(programs.begin, program_of(begin));
    SR_ASSIGN_OR_RETURN(programs.end, program_of(end));
  }
  return out;
}

}  // namespace sidereal::sim
