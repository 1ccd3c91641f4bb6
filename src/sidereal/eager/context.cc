#include "sidereal/eager/context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/ops/ops.h"

namespace sidereal::eager {
namespace {

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
  }
  return out;
}

/// "Add 'Add' (...": a call that was given no name needs none in its message.
Status without_default_name(const Status& status, const std::string& op) {
  std::string text = base::message_of(status);
  const std::string doubled = op + " '" + op + "' (";
  if (text.rfind(doubled, 0) != 0) return status;
  return base::make_status(status.code(), op + " (" + text.substr(doubled.size()));
}

}  // namespace

struct Context::Entry {
  CallKey key;
  std::unique_ptr<exec::BoundProgram> bound;
  std::unique_ptr<exec::Step> step;
};

Context::Context(size_t entries_max)
    : environment_{.resources = &resources_},
      pool_(0),
      cache_(std::make_unique<CallCache<Entry>>(entries_max)) {
  ops::register_all(&registry_);
  exec::register_kernels(&kernels_);
}

Context::~Context() = default;

void Context::start_trace(size_t bytes) {
  trace_ = std::make_unique<exec::Trace>(bytes, [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  });
}

size_t Context::cached() const { return cache_->size(); }

Result<const ir::OpSchema*> find_op(const ir::OpRegistry& registry, std::string_view op) {
  const ir::OpSchema* schema = registry.find(op);
  if (schema != nullptr) return schema;
  const std::string wanted = lower(op);
  std::vector<std::string> near;
  for (const std::string& name : registry.names()) {
    const std::string known = lower(name);
    if (known == wanted) {
      near = {name};
      break;
    }
    const bool alike = known.find(wanted) != std::string::npos ||
                       (known.size() > 3 && wanted.find(known) != std::string::npos) ||
                       (wanted.size() > 3 && known.compare(0, 4, wanted, 0, 4) == 0);
    if (alike && near.size() < 5) near.push_back(name);
  }
  if (near.empty()) return base::not_found("there is no op named '{}'", op);
  return base::not_found("there is no op named '{}'; names like it: {}", op,
                         base::join(near, ", "));
}

Status check_runs_alone(const ir::OpSchema& schema) {
  for (const char* name : {"Placeholder", "Arg", "Ret"}) {
    if (schema.name == name) {
      return base::failed_precondition(
          "{} stands for a value that a graph is fed with; give the value itself, or build a graph "
          "with sidereal.function",
          schema.name);
    }
  }
  return {};
}

void Context::set_intra_op_threads(int threads) {
  if (threads == intra_op_threads()) return;
  workers_ = threads == 1 ? nullptr : std::make_unique<exec::Workers>(threads);
}

Result<std::unique_ptr<Context::Entry>> Context::make_entry(const CallView& call,
                                                            std::string_view name) {
  SR_RETURN_IF_ERROR(check_runs_alone(*call.schema));
  auto entry = std::make_unique<Entry>();
  entry->key = key_of(call);
  ir::Graph graph;
  ir::Node node;
  for (const ir::TensorSpec& input : entry->key.inputs) {
    ir::Node source;
    source.op = "Placeholder";
    source.name = fmt::format("x{}", node.inputs.size());
    source.outputs = {input};
    node.inputs.push_back({graph.append(std::move(source)), 0});
  }
  node.op = call.schema->name;
  node.name = name.empty() ? call.schema->name : std::string(name);
  node.attrs = call.attrs;
  SR_RETURN_IF_ERROR(ir::infer_node(graph, *call.schema, &node));
  SR_ASSIGN_OR_RETURN(entry->bound,
                      exec::BoundProgram::bind(exec::one_op_program(node, entry->key.inputs),
                                               kernels_, environment_));
  entry->step = std::make_unique<exec::Step>(entry->bound.get(), &pool_, nullptr);
  return entry;
}

Status Context::finish(exec::Step* step, std::chrono::nanoseconds limit) {
  using Progress = exec::Step::Progress;
  using Clock = std::chrono::steady_clock;
  SR_ASSIGN_OR_RETURN(Progress progress, step->advance());
  if (progress == Progress::kDone) [[likely]]
    return {};
  if (limit.count() <= 0 || limit > timeout_) limit = timeout_;
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    const uint64_t seen = resources_.changes();
    SR_ASSIGN_OR_RETURN(progress, step->advance());
    if (progress == Progress::kDone) return {};
    const std::chrono::nanoseconds left = deadline - Clock::now();
    if (left.count() <= 0) {
      const std::chrono::duration<double> seconds = limit;
      return base::deadline_exceeded(
          "waited {:g} s for {}, and nobody came; another thread must bring it, or raise the limit "
          "(sidereal.config.set_operation_timeout; of a session, operation_timeout_in_ms or "
          "RunOptions)",
          seconds.count(), step->waits_for());
    }
    SR_RETURN_IF_ERROR(
        (waiter_ ? waiter_(seen, left) : Result<bool>(resources_.wait(seen, left))).status());
  }
}

Status Context::run_entry(Entry* entry, const CallView& call, uint64_t step,
                          std::vector<Tensor>* outputs) {
  exec::Step& one = *entry->step;
  one.set_trace(trace_.get());
  one.set_workers(workers_.get());
  one.begin(step);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(one.feed(static_cast<int>(i), *call.inputs[i]));
  }
  const Status status = finish(&one);
  if (!status.ok()) [[unlikely]] {
    one.end();
    return without_default_name(status, call.schema->name);
  }
  const size_t count = entry->bound->program().fetches.size();
  for (size_t i = 0; i < count; ++i) outputs->push_back(one.fetch(static_cast<int>(i)));
  one.end();
  return {};
}

Status Context::run(const ir::OpSchema& schema, std::span<const Tensor* const> inputs,
                    const ir::AttrMap& attrs, std::string_view name, uint64_t step,
                    std::vector<Tensor>* outputs) {
  const CallView call{&schema, attrs, inputs};
  const uint64_t hash = hash_of(call);
  // While an op with an effect waits, or calls the program, others run here: it shares nothing.
  Entry* entry = schema.effect ? nullptr : cache_->find(hash, call);
  if (entry == nullptr) [[unlikely]] {
    Result<std::unique_ptr<Entry>> made = make_entry(call, name);
    if (!made.ok()) return without_default_name(made.status(), schema.name);
    if (schema.effect) return run_entry(made->get(), call, step, outputs);
    entry = cache_->insert(hash, std::move(*made));
  }
  return run_entry(entry, call, step, outputs);
}

}  // namespace sidereal::eager
