#include <algorithm>
#include <chrono>
#include <utility>

#include "sidereal/dataset/internal/stage.h"
#include "sidereal/eager/local_function.h"

namespace sidereal::dataset {
namespace {

using eager::Engine;
using eager::LocalFunction;
using eager::Value;

/// How long a function waits for a resource before it looks whether the iterator ends.
constexpr std::chrono::milliseconds kLook{50};

/// The function as the engine runs it: with a placeholder for each input.
eager::FunctionDef local_def(const ir::Function& function, const std::string& name) {
  eager::FunctionDef def;
  def.name = name;
  def.graph.mutable_functions() = function.body().functions();
  for (const ir::Node& node : function.body().nodes()) {
    ir::Node copy = node;
    if (static_cast<size_t>(node.id.value) < function.num_inputs()) {
      const ir::TensorSpec& spec = node.outputs[0];
      copy.op = "Placeholder";
      copy.attrs = {{"dtype", spec.dtype}, {"shape", spec.shape}};
      def.inputs.push_back({node.id, 0});
    }
    def.graph.append(std::move(copy));
  }
  def.outputs = function.outputs();
  def.targets = function.targets();
  return def;
}

/// The embedding program's functions, which several engines call.
class SharedFunctions final : public ports::HostFunctions {
 public:
  explicit SharedFunctions(std::shared_ptr<ports::HostFunctions> functions)
      : functions_(std::move(functions)) {}
  Result<std::vector<Tensor>> call(int64_t function, std::span<const Tensor> inputs) override {
    return functions_->call(function, inputs);
  }

 private:
  std::shared_ptr<ports::HostFunctions> functions_;
};

}  // namespace

/// A function with what one thread needs to run it.
struct Runtime::Runner {
  Engine engine;
  std::shared_ptr<LocalFunction> function;
  std::vector<Value> inputs;
  std::vector<const Value*> pointers;
};

Runtime::Runtime(IteratorOptions options) : options_(std::move(options)) {}
Runtime::~Runtime() = default;

void Runtime::stop() {
  stopped_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (Sleeper* sleeper : sleepers_) sleeper->wake();
}

void Runtime::add(Sleeper* sleeper) {
  const std::lock_guard lock(mutex_);
  sleepers_.insert(sleeper);
}

void Runtime::remove(Sleeper* sleeper) {
  const std::lock_guard lock(mutex_);
  sleepers_.erase(sleeper);
}

size_t Runtime::take_threads(size_t count) {
  size_t before = threads_.load();
  size_t taken = 0;
  do {
    taken = std::min(count, kThreadsMax - before);
  } while (!threads_.compare_exchange_weak(before, before + taken));
  return taken;
}

void Runtime::give_back_threads(size_t count) { threads_ -= count; }

Result<std::unique_ptr<Runtime::Runner>> Runtime::make_runner(const Dataset& dataset) {
  auto runner = std::make_unique<Runner>();
  eager::Context& context = runner->engine.context();
  if (options_.host_functions != nullptr) {
    context.set_host_functions(std::make_unique<SharedFunctions>(options_.host_functions));
  }
  runner->engine.set_interrupt([this] { return stopped_.load(std::memory_order_relaxed); });
  context.set_waiter([this, &context](uint64_t seen, std::chrono::nanoseconds limit) {
    if (stopped_.load(std::memory_order_relaxed)) {
      return Result<bool>(base::cancelled("the iterator was ended"));
    }
    return Result<bool>(
        context.resources().wait(seen, std::min<std::chrono::nanoseconds>(limit, kLook)));
  });
  const DatasetDef& def = dataset.def();
  runner->function = std::make_shared<LocalFunction>(local_def(*def.function, def.op));
  return runner;
}

std::unique_ptr<Runtime::Runner> Runtime::idle_runner(const ir::Function* function) {
  const std::lock_guard lock(mutex_);
  std::vector<std::unique_ptr<Runner>>& idle = idle_[function];
  if (idle.empty()) return nullptr;
  std::unique_ptr<Runner> runner = std::move(idle.back());
  idle.pop_back();
  return runner;
}

Result<std::vector<Tensor>> Runtime::call(const Dataset& dataset, const Element& element,
                                          uint64_t step) {
  const ir::Function* const function = dataset.def().function.get();
  std::unique_ptr<Runner> runner = idle_runner(function);
  if (runner == nullptr) {
    SR_ASSIGN_OR_RETURN(runner, make_runner(dataset));
  }
  const std::vector<Parameter>& parameters = dataset.def().parameters;
  runner->inputs.clear();
  for (const Component& component : element) {
    if (component.list == nullptr) {
      runner->inputs.push_back(runner->engine.wrap(component.tensor));
    }
  }
  for (size_t i = first_capture(dataset); i < parameters.size(); ++i) {
    runner->inputs.push_back(runner->engine.wrap(parameters[i].value));
  }
  runner->pointers.clear();
  for (const Value& input : runner->inputs) runner->pointers.push_back(&input);
  Result<std::vector<Value>> values =
      runner->function->call(runner->engine, runner->pointers, step);
  runner->inputs.clear();
  {
    const std::lock_guard lock(mutex_);
    idle_[function].push_back(std::move(runner));
  }
  SR_RETURN_IF_ERROR(values.status());
  std::vector<Tensor> out;
  out.reserve(values->size());
  for (size_t i = 0; i < values->size(); ++i) {
    Tensor& value = (*values)[i].tensor;
    const ir::TensorSpec& spec = function->output(i);
    // Stages after this one rely on it.
    if (value.dtype() != spec.dtype || !spec.shape.accepts(value.shape())) {
      return base::internal("{}: value {} of the function is {}; {} was inferred", dataset.op(), i,
                            value.to_string(), ir::to_string(spec));
    }
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace sidereal::dataset
