#include "sidereal/eager/engine.h"

#include <array>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/eager/tape.h"

namespace sidereal::eager {
namespace {

constexpr size_t kPlansMax = 4096;
constexpr size_t kMaskBits = 32;

uint64_t mask_of(const std::vector<bool>& bits) {
  uint64_t mask = 0;
  for (size_t i = 0; i < bits.size(); ++i) mask |= static_cast<uint64_t>(bits[i]) << i;
  return mask;
}

}  // namespace

bool is_differentiable(tensor::DType dtype) {
  using tensor::DType;
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

Engine::Engine(size_t programs_max) : context_(programs_max), plans_(kPlansMax) {}

Engine::~Engine() = default;

bool Engine::has(const Tape* tape) const {
  for (const Listener& listener : listeners_) {
    if (listener.tape == tape) return true;
  }
  return false;
}

template <class F>
void Engine::for_each_listener(std::span<const Value* const> inputs, F f) const {
  for (const Listener& listener : listeners_) {
    if (listener.thread == std::this_thread::get_id() && listener.tape->tracks(inputs)) {
      f(listener.tape);
    }
  }
}

Status Engine::run(const ir::OpSchema& schema, std::span<const Value* const> inputs,
                   const ir::AttrMap& attrs, const Options& options, std::vector<Value>* outputs) {
  pointers_.clear();
  for (const Value* input : inputs) pointers_.push_back(&input->tensor);
  const uint64_t step = options.step != 0 ? options.step : context_.next_step();
  const size_t first = outputs->size();
  // Other ops may run here while one with an effect does.
  std::vector<Tensor> own;
  std::vector<Tensor>& made_here = schema.effect ? own : scratch_;
  made_here.clear();
  SR_RETURN_IF_ERROR(context_.run(schema, pointers_, attrs, options.name, step, &made_here));
  for (Tensor& tensor : made_here) outputs->push_back(wrap(std::move(tensor)));
  if (listeners_.empty()) return {};
  const std::span<const Value> made(outputs->data() + first, outputs->size() - first);
  for_each_listener(inputs,
                    [&](Tape* tape) { tape->record_op(*this, schema, attrs, inputs, made, step); });
  return {};
}

Result<Value> Engine::run_one(std::string_view op, std::span<const Value* const> inputs,
                              const ir::AttrMap& attrs) {
  const ir::OpSchema* schema = context_.registry().find(op);
  if (schema == nullptr) return base::unimplemented("this release has no op '{}'", op);
  std::vector<Value> outputs;
  SR_RETURN_IF_ERROR(run(*schema, inputs, attrs, {}, &outputs));
  SR_CHECK(outputs.size() == 1, "{} has {} outputs", op, outputs.size());
  return std::move(outputs[0]);
}

bool Engine::listens(std::span<const Value* const> inputs) const {
  bool any = false;
  for_each_listener(inputs, [&any](const Tape*) { any = true; });
  return any;
}

void Engine::record(std::string_view what, std::span<const Value* const> inputs,
                    std::span<const Value> outputs, Backward backward) {
  const auto shared = std::make_shared<Backward>(std::move(backward));
  for_each_listener(inputs,
                    [&](Tape* tape) { tape->record_function(what, inputs, outputs, shared); });
}

Result<Value> Engine::to_dense(const Gradient& gradient) {
  if (!gradient.is_sparse()) return gradient.dense;
  const std::array<const Value*, 3> inputs = {&gradient.values, &gradient.indices, &gradient.of};
  std::vector<Value> outputs;
  SR_RETURN_IF_ERROR(run(*gradient.to_dense, inputs, gradient.attrs, {}, &outputs));
  SR_CHECK(outputs.size() == 1);
  return std::move(outputs[0]);
}

Result<Gradient> Engine::join_rows(const std::vector<Gradient>& terms) {
  Gradient out = terms[0];
  std::vector<int64_t> row = {-1};
  for (int i = 1; i < out.of.tensor.shape().rank(); ++i) {
    row.push_back(out.of.tensor.shape().dim(i));
  }
  std::vector<Value> values;
  std::vector<Value> indices;
  for (const Gradient& term : terms) {
    row[0] = term.indices.tensor.num_elements();
    const std::array<const Value*, 1> v = {&term.values};
    SR_ASSIGN_OR_RETURN(Value flat, run_one("Reshape", v, {{"shape", row}}));
    values.push_back(std::move(flat));
    const std::array<const Value*, 1> i = {&term.indices};
    SR_ASSIGN_OR_RETURN(Value ids,
                        run_one("Reshape", i, {{"shape", std::vector<int64_t>{row[0]}}}));
    indices.push_back(std::move(ids));
  }
  const auto join = [this](const std::vector<Value>& parts) {
    std::vector<const Value*> all;
    for (const Value& part : parts) all.push_back(&part);
    return run_one("Concat", all, {{"axis", int64_t{0}}});
  };
  SR_ASSIGN_OR_RETURN(out.values, join(values));
  SR_ASSIGN_OR_RETURN(out.indices, join(indices));
  return out;
}

Result<Gradient> Engine::sum(std::vector<Gradient> terms) {
  if (terms.empty()) return Gradient{};
  if (terms.size() == 1) return std::move(terms[0]);
  bool all_rows = true;
  for (const Gradient& term : terms) {
    all_rows = all_rows && term.is_sparse() &&
               term.indices.tensor.dtype() == terms[0].indices.tensor.dtype();
  }
  if (all_rows) return join_rows(terms);
  std::vector<Value> dense;
  for (const Gradient& term : terms) {
    SR_ASSIGN_OR_RETURN(Value whole, to_dense(term));
    dense.push_back(std::move(whole));
  }
  std::vector<const Value*> all;
  for (const Value& value : dense) all.push_back(&value);
  Gradient out;
  SR_ASSIGN_OR_RETURN(out.dense, run_one("AddN", all));
  return out;
}

Result<const GradientPlan*> Engine::plan(const CallView& call,
                                         const std::vector<ir::TensorSpec>& outputs,
                                         const std::vector<bool>& reached,
                                         const std::vector<bool>& wanted,
                                         const std::function<std::string()>& named) {
  const bool cacheable = reached.size() <= kMaskBits && wanted.size() <= kMaskBits;
  CallView masked = call;
  uint64_t hash = 0;
  if (cacheable) {
    masked.extra = mask_of(reached) << kMaskBits | mask_of(wanted);
    hash = hash_of(masked);
    if (const GradientPlan* found = plans_.find(hash, masked); found != nullptr) return found;
  }
  SR_ASSIGN_OR_RETURN(
      std::unique_ptr<GradientPlan> made,
      make_gradient_plan(context_.registry(), key_of(masked), outputs, reached, wanted, named()));
  if (cacheable && made->reusable) return plans_.insert(hash, std::move(made));
  uncached_ = std::move(made);
  return uncached_.get();
}

}  // namespace sidereal::eager
