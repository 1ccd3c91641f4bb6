#include "sidereal/eager/local_function.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/needed.h"
#include "sidereal/kernels/prepared_matmul.h"
#include "sidereal/kernels/thread.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/ports/ports.h"
#include "sidereal/program/compile.h"

namespace sidereal::eager {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// What a function's buffers may hold between two runs: a step that needs more takes memory in
/// each.
constexpr size_t kPoolBytes = size_t{1} << 30;
/// What a caller gets of a function's outputs. Small ones are copied, so that a program which keeps
/// many (losses) does not keep the function's buffers; into memory of an earlier one if that has
/// been dropped since.
class Results {
 public:
  Tensor tensor(const Tensor& output) {
    if (output.nbytes() > kCopiedBytes || output.nbytes() == 0) return output;
    if (output.dtype() == ir::DType::kString) return output.clone();
    Tensor out(output.dtype(), output.shape(), acquire(output.nbytes()));
    std::memcpy(out.raw(), output.raw(), output.nbytes());
    return out;
  }

 private:
  static constexpr size_t kCopiedBytes = 4096;

  tensor::Buffer::Ptr acquire(size_t bytes) {
    for (const tensor::Buffer::Ptr& one : recent_) {
      if (one != nullptr && one->has_one_holder() && one->bytes() >= bytes) return one;
    }
    next_ = (next_ + 1) % recent_.size();
    return recent_[next_] = tensor::Buffer::allocate(bytes);
  }

  std::array<tensor::Buffer::Ptr, 8> recent_;
  size_t next_ = 0;
};

std::vector<Value> copy_of(std::span<const Value* const> values) {
  std::vector<Value> out;
  out.reserve(values.size());
  for (const Value* value : values) out.push_back(*value);
  return out;
}

std::vector<const Value*> pointers_to(const std::vector<Value>& values) {
  std::vector<const Value*> out;
  out.reserve(values.size());
  for (const Value& value : values) out.push_back(&value);
  return out;
}

Status check_local(const ir::Graph& graph, const ir::OpRegistry& registry) {
  for (const Node& node : graph.nodes()) {
    const ir::OpSchema* schema = registry.find(node.op);
    if (schema == nullptr || node.op == "Placeholder") continue;
    SR_RETURN_IF_ERROR(
        base::with_context(check_runs_alone(*schema), fmt::format("{} '{}'", node.op, node.name)));
  }
  return {};
}

/// The part of `graph` from node `first` on that `wanted` needs, as a graph of its own. Values made
/// before `first` become placeholders, listed in `saved`; constants are copied.
class Tail {
 public:
  Tail(const ir::Graph& graph, int32_t first) : graph_(graph), first_(first) {}

  FunctionDef cut(const std::vector<Output>& wanted) {
    out_.graph.mutable_functions() = graph_.functions();
    const std::vector<bool> needed = ir::needed_for(graph_, wanted);
    // Placeholders first, so that every node follows its inputs.
    for (auto i = first_; i < static_cast<int32_t>(graph_.size()); ++i) {
      if (!needed[i]) continue;
      for (const Output& input : graph_.node(NodeId(i)).inputs) bring(input);
    }
    for (const Output& output : wanted) bring(output);
    for (auto i = first_; i < static_cast<int32_t>(graph_.size()); ++i) {
      if (needed[i]) copy(graph_.node(NodeId(i)));
    }
    for (const Output& output : wanted) out_.outputs.push_back(moved_.at(output));
    return std::move(out_);
  }

  [[nodiscard]] const std::vector<Output>& saved() const { return saved_; }

 private:
  void bring(Output value) {
    if (value.node.value >= first_ || moved_.contains(value)) return;
    const Node& node = graph_.node(value.node);
    if (node.op == "Const") {
      copy(node);
      return;
    }
    Node source;
    source.op = "Placeholder";
    source.name = out_.graph.unique_name("saved/" + node.name);
    const ir::TensorSpec& spec = node.outputs[value.index];
    source.attrs = {{"dtype", spec.dtype}, {"shape", spec.shape}};
    source.outputs = {spec};
    moved_[value] = {out_.graph.append(std::move(source)), 0};
    out_.inputs.push_back(moved_[value]);
    saved_.push_back(value);
  }

  void copy(Node node) {
    const NodeId old = node.id;
    const size_t outputs = node.outputs.size();
    for (Output& input : node.inputs) input = moved_.at(input);
    std::vector<NodeId> controls;
    for (const NodeId control : node.control_inputs) {
      const auto it = nodes_.find(control);
      if (it != nodes_.end()) controls.push_back(it->second);
    }
    node.control_inputs = std::move(controls);
    const NodeId made = out_.graph.append(std::move(node));
    nodes_[old] = made;
    for (size_t o = 0; o < outputs; ++o) {
      const auto index = static_cast<int32_t>(o);
      moved_[{old, index}] = {made, index};
    }
  }

  const ir::Graph& graph_;
  int32_t first_;
  FunctionDef out_;
  std::vector<Output> saved_;
  std::map<Output, Output> moved_;
  std::map<NodeId, NodeId> nodes_;
};

}  // namespace

namespace {

/// Lets a call that takes long be interrupted, and ends it in time. Thread: core-local.
class Watcher final : public ports::Exchange {
 public:
  explicit Watcher(const Engine* engine) : engine_(*engine) {}

  Status start(int /*call*/, uint64_t /*step*/, std::span<const Tensor> /*feeds*/,
               ports::CallCompletion* /*completion*/) override {
    return base::internal("a local function has no calls");
  }
  void yield() override {
    if (++count_ % kEvery != 0) return;
    if (engine_.interrupted()) stop.raise(exec::StopSignal::Reason::kCancelled);
    if (until_ != Clock::time_point() && Clock::now() > until_) {
      stop.raise(exec::StopSignal::Reason::kDeadline);
    }
  }
  /// Begins a call, which may take `limit`, or for ever when that is 0.
  void begin(std::chrono::nanoseconds limit) {
    stop.raise(exec::StopSignal::Reason::kNone);
    until_ = limit.count() > 0 ? Clock::now() + limit : Clock::time_point();
  }

  exec::StopSignal stop;

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr uint64_t kEvery = 1024;
  const Engine& engine_;
  Clock::time_point until_;
  uint64_t count_ = 0;
};

}  // namespace

struct LocalFunction::Compiled {
  /// What one call at a time needs.
  struct Run {
    std::unique_ptr<Watcher> watcher;  ///< Only where there are loops or branches.
    std::unique_ptr<exec::Step> step;
    std::vector<const Tensor*> variables;  ///< By input: where it is kept, or nullptr.
    std::vector<bool> is_kept;             ///< By output: whether a variable gets it.
    std::vector<Tensor> values;            ///< What variables get.
  };

  [[nodiscard]] Run new_run(const Engine& engine) {
    Run out;
    if (watched) out.watcher = std::make_unique<Watcher>(&engine);
    out.step = std::make_unique<exec::Step>(bound.get(), &pool, out.watcher.get());
    if (watched) out.step->set_stop_signal(&out.watcher->stop);
    return out;
  }

  /// Feeds and runs it. `run.step->end()` must follow.
  Status advance(Engine& engine, std::span<const Value* const> inputs, std::span<const Kept> kept,
                 uint64_t step, Run& run, std::chrono::nanoseconds limit) const;
  /// A run that nobody uses. While one waits, others may begin.
  Run take(const Engine& engine) {
    if (idle.empty()) return new_run(engine);
    Run out = std::move(idle.back());
    idle.pop_back();
    return out;
  }
  void give_back(Run run) { idle.push_back(std::move(run)); }

  std::string name;
  bool watched = false;
  std::unique_ptr<exec::BoundProgram> bound;
  exec::BufferPool pool{kPoolBytes};
  Results results;
  std::vector<Run> idle;
  std::vector<size_t> feeds;  ///< By feed of the program: which input it is.
};

/// How gradients of a function are made.
struct LocalFunction::Derivative {
  Status status;                            ///< Why there are none.
  std::shared_ptr<LocalFunction> forward;   ///< Outputs, then what `backward` needs.
  std::shared_ptr<LocalFunction> backward;  ///< Those, then gradients of outputs, to gradients.
  std::vector<size_t> reached;              ///< Outputs whose gradients `backward` takes.
  std::vector<size_t> wrt;                  ///< By output of `backward`: which input it is for.
};

LocalFunction::LocalFunction(FunctionDef def) : def_(std::move(def)) {}
LocalFunction::~LocalFunction() = default;

Status LocalFunction::compile(Engine& engine) {
  if (compiled_ != nullptr) return {};
  const Context& context = engine.context();
  SR_RETURN_IF_ERROR(check_local(def_.graph, context.registry()));
  const auto evaluate = [&](const Node& node, const std::vector<Tensor>& inputs) {
    return exec::run_one_op(node, inputs, context.kernels());
  };
  SR_ASSIGN_OR_RETURN(passes::StepGraph step,
                      passes::run_passes(def_.graph, def_.outputs, def_.targets, context.registry(),
                                         {.evaluate = evaluate, .compute_dtype = compute_dtype()}));
  SR_ASSIGN_OR_RETURN(program::Program program, program::compile(partition::undivided(
                                                    std::move(step.graph), std::move(step.fetches),
                                                    std::move(step.targets))));
  auto compiled = std::make_unique<Compiled>();
  SR_ASSIGN_OR_RETURN(
      compiled->bound,
      exec::BoundProgram::bind(std::move(program), context.kernels(), context.environment()));
  for (const std::string& name : compiled->bound->program().feed_names) {
    size_t index = def_.inputs.size();
    for (size_t i = 0; i < def_.inputs.size(); ++i) {
      if (def_.graph.node(def_.inputs[i].node).name == name) index = i;
    }
    if (index == def_.inputs.size()) {
      const Node* node = def_.graph.find(name);
      return base::invalid_argument(
          "Placeholder '{}' ({}) is needed for what is run, and has no value: feed it, or make it "
          "an "
          "input of the function",
          name, node == nullptr ? "?" : ir::to_string(node->outputs[0]));
    }
    compiled->feeds.push_back(index);
  }
  // A program without bodies ends soon.
  compiled->watched = !compiled->bound->program().bodies.empty();
  compiled->name = def_.name;
  compiled->give_back(compiled->new_run(engine));
  compiled_ = std::move(compiled);
  return {};
}

ir::DType LocalFunction::compute_dtype() const {
  const bool lowers = def_.compute_dtype == ir::DType::kBFloat16 && kernels::has_bfloat_units();
  return lowers ? ir::DType::kBFloat16 : ir::DType::kFloat32;
}

Result<std::string> LocalFunction::program_text(Engine& engine) {
  SR_RETURN_IF_ERROR(compile(engine));
  return program::to_text(compiled_->bound->program());
}

Status LocalFunction::differentiate(Engine& engine) {
  if (derivative_ != nullptr) return derivative_->status;
  derivative_ = std::make_shared<Derivative>();
  Derivative& d = *derivative_;
  FunctionDef forward = def_;
  ir::Graph graph = def_.graph;
  ir::Builder b(&graph, &engine.context().registry());
  const auto first = static_cast<int32_t>(graph.size());
  std::vector<Output> ys;
  std::vector<Output> dys;
  for (size_t i = 0; i < def_.outputs.size(); ++i) {
    const ir::TensorSpec& spec = def_.graph.spec(def_.outputs[i]);
    if (!is_differentiable(spec.dtype)) continue;
    d.reached.push_back(i);
    ys.push_back(def_.outputs[i]);
    dys.push_back(
        ops::placeholder(b, "gradient_of_output_" + std::to_string(i), spec.dtype, spec.shape));
  }
  std::vector<Output> wrt;
  for (size_t i = 0; i < def_.inputs.size(); ++i) {
    if (!is_differentiable(graph.spec(def_.inputs[i]).dtype)) continue;
    wrt.push_back(def_.inputs[i]);
    d.wrt.push_back(i);
  }
  Result<std::vector<Output>> grads = autodiff::gradients(b, ys, dys, wrt);
  if (!grads.ok()) return d.status = grads.status();
  std::vector<Output> wanted;
  std::vector<size_t> reached;
  for (size_t i = 0; i < grads->size(); ++i) {
    if (!(*grads)[i].valid()) continue;
    wanted.push_back((*grads)[i]);
    reached.push_back(d.wrt[i]);
  }
  d.wrt = std::move(reached);
  Tail tail(graph, first);
  // Loops and branches may have been given outputs for what their reverse reads.
  forward.graph = graph;
  // All gradients of outputs are inputs of the backward function, whether or not it needs them.
  FunctionDef backward = tail.cut(wanted);
  backward.name = def_.name + " (gradient)";
  backward.compute_dtype = def_.compute_dtype;
  for (const Output& dy : dys) {
    const Node* node = backward.graph.find(graph.node(dy.node).name);
    backward.inputs.push_back(node != nullptr ? Output{node->id, 0} : Output{});
  }
  forward.outputs.insert(forward.outputs.end(), tail.saved().begin(), tail.saved().end());
  d.forward = std::make_shared<LocalFunction>(std::move(forward));
  // Outputs that no gradient depends on have no placeholder: leave them out.
  std::vector<size_t> used;
  const size_t saved = tail.saved().size();
  std::vector<Output> inputs(backward.inputs.begin(),
                             backward.inputs.begin() + static_cast<std::ptrdiff_t>(saved));
  for (size_t i = 0; i < dys.size(); ++i) {
    if (!backward.inputs[saved + i].valid()) continue;
    inputs.push_back(backward.inputs[saved + i]);
    used.push_back(d.reached[i]);
  }
  backward.inputs = std::move(inputs);
  d.reached = std::move(used);
  d.backward = std::make_shared<LocalFunction>(std::move(backward));
  return {};
}

namespace {

/// Gives variables their new values, which nothing but `values` and the variables holds.
void write_back(std::span<const LocalFunction::Kept> kept, std::span<Tensor> values) {
  const auto is_own = [&](size_t i) {
    const Tensor& variable = *kept[i].value;
    return values[i].buffer() == variable.buffer() && values[i].raw() == variable.raw();
  };
  // What another variable's memory shows must be read before that is written to.
  for (size_t i = 0; i < kept.size(); ++i) {
    if (is_own(i)) continue;
    const bool is_shown = std::any_of(kept.begin(), kept.end(), [&](const auto& other) {
      return values[i].buffer() == other.value->buffer();
    });
    if (is_shown) values[i] = values[i].clone();
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    Tensor& variable = *kept[i].value;
    const Tensor& value = values[i];
    if (is_own(i)) continue;
    const bool is_plain = value.dtype() != tensor::DType::kString;
    if (is_plain && variable.buffer()->has_one_holder() && variable.nbytes() == value.nbytes()) {
      if (value.nbytes() > 0) std::memcpy(variable.raw(), value.raw(), value.nbytes());
    } else {
      variable = value.clone();
    }
  }
}

}  // namespace

Status LocalFunction::Compiled::advance(Engine& engine, std::span<const Value* const> inputs,
                                        std::span<const Kept> kept, uint64_t step, Run& run,
                                        std::chrono::nanoseconds limit) const {
  exec::Step& one = *run.step;
  if (run.watcher != nullptr) run.watcher->begin(limit);
  run.variables.assign(inputs.size(), nullptr);
  for (const Kept& variable : kept) run.variables[variable.input] = variable.value;
  one.set_trace(engine.context().trace(), 0, name);
  one.set_workers(engine.context().workers());
  one.begin(step);
  for (size_t i = 0; i < feeds.size(); ++i) {
    const size_t input = feeds[i];
    const Tensor* variable = run.variables[input];
    const auto feed = static_cast<int>(i);
    SR_RETURN_IF_ERROR(variable != nullptr ? one.lend(feed, *variable)
                                           : one.feed(feed, inputs[input]->tensor));
  }
  return engine.context().finish(&one, limit);
}

Status LocalFunction::run(Engine& engine, std::span<const Value* const> inputs,
                          std::span<const Kept> kept, uint64_t step, std::vector<Value>* outputs,
                          std::chrono::nanoseconds limit) {
  SR_RETURN_IF_ERROR(compile(engine));
  Compiled::Run run = compiled_->take(engine);
  Status status = compiled_->advance(engine, inputs, kept, step, run, limit);
  if (status.ok()) {
    run.is_kept.assign(def_.outputs.size(), false);
    for (const Kept& one : kept) {
      run.is_kept[one.output] = true;
      run.values.push_back(run.step->fetch(static_cast<int>(one.output)));
    }
    for (size_t i = 0; i < def_.outputs.size(); ++i) {
      if (run.is_kept[i]) continue;
      const Tensor& value = run.step->fetch(static_cast<int>(i));
      outputs->push_back(engine.wrap(compiled_->results.tensor(value)));
    }
  }
  run.step->end();
  if (status.ok()) write_back(kept, run.values);
  run.values.clear();
  compiled_->give_back(std::move(run));
  return status;
}

Result<std::vector<Value>> LocalFunction::run(Engine& engine, std::span<const Value* const> inputs,
                                              uint64_t step) {
  std::vector<Value> outputs;
  outputs.reserve(def_.outputs.size());
  SR_RETURN_IF_ERROR(run(engine, inputs, {}, step, &outputs));
  return outputs;
}

Result<std::vector<Value>> LocalFunction::call_within(Engine& engine,
                                                      std::span<const Value* const> inputs,
                                                      std::chrono::nanoseconds limit) {
  if (inputs.size() != def_.inputs.size()) {
    return base::invalid_argument("function '{}' takes {} inputs; {} are given", def_.name,
                                  def_.inputs.size(), inputs.size());
  }
  const kernels::ScopedFlushToZero flush;
  std::vector<Value> outputs;
  SR_RETURN_IF_ERROR(run(engine, inputs, {}, next_step(), &outputs, limit));
  return outputs;
}

Status LocalFunction::update(Engine& engine, std::span<const Value* const> inputs,
                             std::span<const Kept> kept, std::vector<Value>* outputs) {
  if (inputs.size() != def_.inputs.size()) {
    return base::invalid_argument("function '{}' takes {} inputs; {} are given", def_.name,
                                  def_.inputs.size(), inputs.size());
  }
  return run(engine, inputs, kept, next_step(), outputs);
}

Result<std::vector<Value>> LocalFunction::call(Engine& engine, std::span<const Value* const> inputs,
                                               uint64_t step) {
  if (inputs.size() != def_.inputs.size()) {
    return base::invalid_argument("function '{}' takes {} inputs; {} are given", def_.name,
                                  def_.inputs.size(), inputs.size());
  }
  if (step == 0) step = next_step();
  if (!engine.listens(inputs)) return run(engine, inputs, step);
  if (const Status status = differentiate(engine); !status.ok()) {
    SR_ASSIGN_OR_RETURN(std::vector<Value> outputs, run(engine, inputs, step));
    engine.record(
        def_.name, inputs, outputs,
        [status](std::span<const Value>) -> Result<std::vector<Gradient>> { return status; });
    return outputs;
  }
  SR_ASSIGN_OR_RETURN(std::vector<Value> all, derivative_->forward->run(engine, inputs, step));
  // Values that come in or go out twice keep the number under which tapes know them.
  const std::vector<Output>& outputs = derivative_->forward->def_.outputs;
  std::vector<Value> recorded = all;
  for (size_t i = def_.outputs.size(); i < outputs.size(); ++i) {
    for (size_t k = 0; k < def_.inputs.size(); ++k) {
      if (outputs[i] == def_.inputs[k]) all[i] = *inputs[k];  // But it is no output of this.
    }
    for (size_t k = 0; k < def_.outputs.size(); ++k) {
      if (outputs[i] == def_.outputs[k]) recorded[i] = all[i] = all[k];
    }
  }
  engine.record(
      def_.name, inputs, recorded,
      [self = shared_from_this(), &engine, given = copy_of(inputs), all,
       step](std::span<const Value> dys) { return self->gradient(engine, given, all, dys, step); });
  all.resize(def_.outputs.size());
  return all;
}

Result<std::vector<Gradient>> LocalFunction::gradient(Engine& engine, std::span<const Value> inputs,
                                                      std::span<const Value> outputs,
                                                      std::span<const Value> dys,
                                                      uint64_t step) const {
  const Derivative& d = *derivative_;
  const size_t count = def_.outputs.size();
  for (size_t i = count; i < dys.size(); ++i) {
    if (!dys[i].defined()) continue;
    // A second derivative reached what the first one needed: differentiate the long form, whose
    // own needs are computed again.
    const std::vector<Value> given(inputs.begin(), inputs.end());
    SR_RETURN_IF_ERROR(d.forward->differentiate(engine));
    SR_ASSIGN_OR_RETURN(const std::vector<Value> again,
                        d.forward->derivative_->forward->call(engine, pointers_to(given), step));
    return d.forward->gradient(engine, inputs, again,
                               dys.subspan(0, d.forward->def_.outputs.size()), step);
  }
  std::vector<Value> feeds(outputs.begin() + static_cast<std::ptrdiff_t>(count), outputs.end());
  for (const size_t i : d.reached) {
    if (dys[i].defined()) {
      feeds.push_back(dys[i]);
      continue;
    }
    const std::array<const Value*, 1> like = {&outputs[i]};
    SR_ASSIGN_OR_RETURN(Value zeros, engine.run_one("ZerosLike", like));
    feeds.push_back(std::move(zeros));
  }
  SR_ASSIGN_OR_RETURN(std::vector<Value> grads, d.backward->call(engine, pointers_to(feeds), step));
  std::vector<Gradient> out(inputs.size());
  for (size_t i = 0; i < grads.size(); ++i) out[d.wrt[i]].dense = std::move(grads[i]);
  return out;
}

}  // namespace sidereal::eager
