#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>

#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"
#include "sidereal/reference/reference.h"

// Random steps, planned, cut, compiled and run by a small machine that takes buffers, releases and
// calls literally, must give what the graph gives as it stands.
namespace sidereal::program {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using ir::Tensor;
using reference::Values;

constexpr int64_t kWidth = 4;
constexpr int64_t kBatch = 5;

constexpr std::array<const char*, 3> kDevices = {"/ps0", "/ps1", "/w"};
constexpr const char* kDriver = "/w";

/// Makes a graph whose variables are read and updated in an order that control edges fix, on the
/// first few of kDevices.
class RandomStep {
 public:
  RandomStep(uint32_t seed, size_t devices, const ir::OpRegistry* registry)
      : b_(&graph, registry), random_(seed), devices_(devices) {
    declare("table", {11, kWidth});
    declare("other", {11, kWidth});
    declare("small", {2, kWidth});
    declare("bias", {kWidth});
    declare("kernel", {kWidth, kWidth});
    ids_.push_back(ops::placeholder(b_, "ids", DType::kInt64, {-1}));
    ids_.push_back(ops::placeholder(b_, "more_ids", DType::kInt64, {kBatch}));
    values_.push_back(ops::placeholder(b_, "x", DType::kFloat32, {-1, kWidth}));
    for (int i = 0; i < 40; ++i) add_something();
    for (int i = 0; i < 4; ++i) fetches.push_back(pick(values_));
    for (const auto& [name, use] : uses_) {
      if (use.update.valid()) targets.push_back(use.update);
    }
    for (size_t i = 0; i < graph.size(); ++i) {
      ir::Node& node = graph.mutable_node(NodeId(static_cast<int32_t>(i)));
      if (node.device.empty()) node.device = kDriver;
    }
  }

  Values feeds() {
    Values out;
    for (const char* name : {"ids", "more_ids"}) {
      std::vector<int64_t> ids(kBatch);
      for (int64_t& id : ids) id = static_cast<int64_t>(random_() % 2);
      out[name] = Tensor::of<int64_t>({kBatch}, ids);
    }
    out["x"] = random_tensor({kBatch, kWidth});
    return out;
  }

  Values variables() {
    Values out;
    for (const auto& [name, use] : uses_) out[name] = random_tensor(use.shape);
    return out;
  }

  ir::Graph graph;
  std::vector<Output> fetches;
  std::vector<NodeId> targets;

  [[nodiscard]] const Status& status() const { return b_.status(); }

 private:
  struct Use {
    Output handle;
    Shape shape;
    NodeId update;              ///< The last update.
    std::vector<NodeId> reads;  ///< Since then.
  };

  static ir::AttrMap spec(const Shape& shape) {
    return {{"dtype", DType::kFloat32}, {"shape", shape}};
  }

  void declare(const std::string& name, const Shape& shape) {
    ir::AttrMap attrs = spec(shape);
    attrs["shared_name"] = name;
    Use& use = uses_[name];
    use.shape = shape;
    use.handle = b_.add("Variable", {}, attrs, name);
    graph.mutable_node(use.handle.node).device = kDevices[random_() % devices_];
  }

  /// Adds a node where the handle of `use` is.
  NodeId add_at(const Use& use, const std::string& op, const std::vector<Output>& inputs,
                const ir::AttrMap& attrs, const std::vector<NodeId>& before) {
    const NodeId id = b_.add_node(op, inputs, attrs, before);
    if (id.valid()) graph.mutable_node(id).device = graph.node(use.handle.node).device;
    return id;
  }

  Tensor random_tensor(const Shape& shape) {
    Tensor out = Tensor::empty(DType::kFloat32, shape);
    for (float& v : out.data<float>()) v = static_cast<float>(random_() % 2001) / 1000.0F - 1;
    return out;
  }

  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[random_() % from.size()];
  }

  std::vector<NodeId> before_read(const std::string& var) {
    const NodeId update = uses_[var].update;
    return update.valid() ? std::vector<NodeId>{update} : std::vector<NodeId>{};
  }

  Output read(const std::string& var) {
    Use& use = uses_[var];
    const NodeId id = add_at(use, "VariableRead", {use.handle}, spec(use.shape), before_read(var));
    use.reads.push_back(id);
    return {id, 0};
  }

  /// Rows of a table.
  Output lookup(const std::string& var, Output ids) {
    const Output whole = read(var);
    Use& use = uses_[var];
    const NodeId id = add_at(use, "Gather", {whole, ids}, {}, {});
    use.reads.push_back(id);
    return {id, 0};
  }

  /// Updates by `inputs`: a gradient, or ids and rows.
  void update(const std::string& op, const std::string& var, std::vector<Output> inputs) {
    std::vector<NodeId> before = before_read(var);
    Use& use = uses_[var];
    before.insert(before.end(), use.reads.begin(), use.reads.end());
    inputs.insert(inputs.begin(), use.handle);
    inputs.push_back(ops::scalar(b_, DType::kFloat64, 1));
    inputs.push_back(ops::scalar(b_, DType::kFloat64, 0.25));
    use.update = add_at(use, op, inputs, {{"kind", std::string("sgd")}}, before);
    use.reads.clear();
  }

  std::string table() {
    return std::array<std::string, 3>{"table", "other", "small"}[random_() % 3];
  }

  void add_something() {
    const Output v = pick(values_);
    const Output w = pick(values_);
    switch (random_() % 16) {
      case 0:
        return values_.push_back(ops::add(b_, v, w));
      case 1:
        return values_.push_back(ops::mul(b_, ops::tanh(b_, v), w));
      case 2:
        return values_.push_back(ops::sub(b_, ops::sigmoid(b_, v), w));
      case 3:
        return values_.push_back(ops::relu(b_, v));
      case 4:
        return values_.push_back(ops::tanh(b_, v));
      case 5: {
        const Output half = ops::reshape(b_, v, {-1, kWidth / 2});
        return values_.push_back(ops::reshape_like(b_, ops::neg(b_, half), v));
      }
      case 6:
        return values_.push_back(ops::identity(b_, v));
      case 7:
        return values_.push_back(ops::add(b_, v, ops::reduce_mean(b_, w, {0}, true)));
      case 8:
        return values_.push_back(ops::bias_add(b_, v, read("bias")));
      case 9:
        return values_.push_back(ops::tanh(b_, ops::mat_mul(b_, v, read("kernel"))));
      case 10:
      case 11:
        return values_.push_back(lookup(table(), pick(ids_)));
      case 12:
        return update("VariableUpdateRows", table(), {pick(ids_), ops::tanh(b_, v)});
      case 13:
        return update("VariableUpdateDense", "bias", {ops::reduce_mean(b_, v, {0})});
      case 14:
        return update("VariableUpdateDense", "kernel",
                      {ops::tanh(b_, ops::mat_mul(b_, v, w, true, false))});
      default:
        return values_.push_back(ops::maximum(b_, v, ops::constant(b_, random_tensor({kWidth}))));
    }
  }

  ir::Builder b_;
  std::mt19937 random_;
  const size_t devices_;
  std::vector<Output> ids_;
  std::vector<Output> values_;
  std::map<std::string, Use> uses_;
};

/// Runs programs, one instruction at a time, on memory laid out as their plans say.
class Machine {
 public:
  Machine(const CompiledStep& step, const ir::OpRegistry* registry, Values* variables,
          bool answer_late)
      : step_(step), registry_(registry), variables_(variables), answer_late_(answer_late) {}

  std::vector<Tensor> run(const Program& program, const std::vector<Tensor>& feeds) {
    Memory memory{program, std::vector<std::optional<Value>>(program.slots.size()),
                  std::vector<Tensor>(program.num_buffers)};
    for (size_t i = 0; i < feeds.size(); ++i) memory.put(program.feeds[i], feeds[i]);
    std::map<int32_t, std::vector<Tensor>> answers;
    for (const Instruction& instruction : program.instructions) {
      const bool starts = instruction.kind == InstructionKind::kCallStart;
      if (instruction.kind == InstructionKind::kCompute) {
        compute(instruction, &memory);
      } else if (starts != answer_late_) {
        // A late answer is made from what the feeds hold by then.
        std::vector<Tensor> sent;
        for (const int32_t slot : program.calls[instruction.call].feeds) {
          sent.push_back(memory.get(slot));
        }
        answers[instruction.call] = run(step_.remotes[instruction.call].program, sent);
      }
      if (instruction.kind == InstructionKind::kCallWait) {
        const CallSpec& call = program.calls[instruction.call];
        for (size_t i = 0; i < call.fetches.size(); ++i) {
          memory.put(call.fetches[i], answers.at(instruction.call)[i]);
        }
      }
      for (const int32_t slot : instruction.releases) memory.slots[slot].reset();
    }
    std::vector<Tensor> out;
    for (const int32_t slot : program.fetches) out.push_back(memory.get(slot).clone());
    return out;
  }

 private:
  /// A slot's value: a tensor of its own, or `shape` over whatever its buffer holds now.
  struct Value {
    Tensor own;
    int32_t buffer = -1;
    Shape shape;
  };

  struct Memory {
    const Program& program;
    std::vector<std::optional<Value>> slots;
    std::vector<Tensor> buffers;

    void put(int32_t slot, const Tensor& value) {
      const SlotInfo& info = program.slots[slot];
      EXPECT_EQ(value.dtype(), info.dtype);
      EXPECT_TRUE(info.shape.accepts(value.shape()));
      slots[slot] = Value{value, info.buffer, value.shape()};
      if (info.buffer >= 0) buffers[info.buffer] = value;
    }
    [[nodiscard]] Tensor get(int32_t slot) const {
      const Value& value = slots[slot].value();
      if (value.buffer < 0) return value.own;
      const Tensor& now = buffers[value.buffer];
      // Overwritten by something else: give numbers that no comparison can take for right.
      if (now.dtype() != value.own.dtype() || now.num_elements() != value.own.num_elements()) {
        return Tensor::zeros(value.own.dtype(), value.shape);
      }
      return now.reshaped(value.shape);
    }
  };

  void compute(const Instruction& instruction, Memory* memory) {
    std::vector<Tensor> inputs;
    for (const int32_t slot : instruction.inputs) inputs.push_back(memory->get(slot));
    std::vector<Tensor> outputs;
    if (instruction.op == "Variable") {
      // The handle is the name.
      outputs = {Tensor::strings(Shape(),
                                 {ir::attr_or<std::string>(instruction.attrs, "shared_name", "")})};
    } else {
      outputs = run_node(instruction, inputs);
    }
    ASSERT_EQ(outputs.size(), instruction.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) memory->put(instruction.outputs[i], outputs[i]);
    const bool view = instruction.op == "Identity" || instruction.op == "Reshape" ||
                      instruction.op == "ReshapeLike" || instruction.op == "StopGradient";
    if (!view) return;
    Value seen = memory->slots[instruction.inputs[0]].value();
    seen.shape = outputs[0].shape();
    if (seen.buffer < 0) seen.own = outputs[0];
    memory->slots[instruction.outputs[0]] = seen;
  }

  /// One node in a graph of its own, by the reference interpreter.
  std::vector<Tensor> run_node(const Instruction& instruction, const std::vector<Tensor>& inputs) {
    ir::Graph graph;
    ir::Builder b(&graph, registry_);
    reference::Request request;
    std::vector<Output> args;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = fmt::format("in{}", i);
      if (inputs[i].dtype() == DType::kString) {
        const std::string variable(inputs[i].data<const std::string_view>()[0]);
        const Shape& shape = variables_->find(variable)->second.shape();
        args.push_back(
            b.add("Variable", {},
                  {{"shared_name", variable}, {"dtype", DType::kFloat32}, {"shape", shape}}));
        continue;
      }
      args.push_back(ops::placeholder(b, name, inputs[i].dtype(), inputs[i].shape()));
      request.feeds[name] = inputs[i];
    }
    const NodeId id = b.add_node(instruction.op, args, instruction.attrs, {}, "node");
    EXPECT_TRUE(b.status().ok()) << base::message_of(b.status());
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      request.fetches.push_back({id, static_cast<int32_t>(i)});
    }
    request.targets = {id};
    request.variables = variables_;
    auto out = reference::evaluate(graph, request);
    EXPECT_TRUE(out.ok()) << base::message_of(out.status());
    return *std::move(out);
  }

  const CompiledStep& step_;
  const ir::OpRegistry* registry_;
  Values* variables_;
  bool answer_late_;
};

void expect_close(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double a = got.data<float>()[i];
    const double b = want.data<float>()[i];
    ASSERT_NEAR(a, b, 1e-4 * (1 + std::abs(b))) << what << " element " << i;
  }
}

Values copy_of(const Values& values) {
  Values out;
  for (const auto& [name, value] : values) out[name] = value.clone();
  return out;
}

void check_seed(uint32_t seed, size_t devices, bool answer_late) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  RandomStep random(seed, devices, &registry);
  ASSERT_TRUE(random.status().ok()) << base::message_of(random.status());
  const Values feeds = random.feeds();
  const Values before = random.variables();

  Values expected = copy_of(before);
  reference::Request request{feeds, random.fetches, random.targets, &expected, 0};
  const auto want = reference::evaluate(random.graph, request);
  ASSERT_TRUE(want.ok()) << base::message_of(want.status());

  const auto plan =
      passes::run_passes(random.graph, random.fetches, random.targets, registry, {.fuse = false});
  ASSERT_TRUE(plan.ok()) << base::message_of(plan.status());
  const auto parts =
      partition::pull_push_by_device(plan->graph, kDriver, plan->fetches, plan->targets, registry);
  ASSERT_TRUE(parts.ok()) << base::message_of(parts.status());
  const auto step = compile(*parts);
  ASSERT_TRUE(step.ok()) << base::message_of(step.status());

  Values actual = copy_of(before);
  Machine machine(*step, &registry, &actual, answer_late);
  std::vector<Tensor> inputs;
  for (const std::string& name : step->worker.feed_names) inputs.push_back(feeds.at(name));
  const std::vector<Tensor> got = machine.run(step->worker, inputs);
  ASSERT_EQ(got.size(), want->size());
  for (size_t i = 0; i < got.size(); ++i) {
    expect_close(got[i], (*want)[i], step->worker.fetch_names[i]);
  }
  for (const auto& [name, value] : expected) expect_close(actual.at(name), value, name);
}

TEST(Equivalence, ACompiledStepComputesWhatItsGraphSays) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    for (const size_t devices : {1, 2, 3}) {
      for (const bool answer_late : {false, true}) {
        SCOPED_TRACE(fmt::format("seed {}, {} devices, answers {}", seed, devices,
                                 answer_late ? "late" : "at once"));
        check_seed(seed, devices, answer_late);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace sidereal::program
