#include "sidereal/eager/tape.h"

#include <array>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::eager {

void Tape::watch(const Value& value) {
  if (is_differentiable(value.tensor.dtype())) tracked_.insert(value.id);
}

bool Tape::tracks(std::span<const Value* const> inputs) const {
  for (const Value* input : inputs) {
    if (tracked_.contains(input->id)) return true;
  }
  return false;
}

void Tape::add(Entry entry) {
  bool any = false;
  for (const Value& output : entry.outputs) {
    if (!is_differentiable(output.tensor.dtype())) continue;
    tracked_.insert(output.id);
    any = true;
  }
  if (any) entries_.push_back(std::make_shared<const Entry>(std::move(entry)));
}

void Tape::record_op(Engine& engine, const ir::OpSchema& schema, const ir::AttrMap& attrs,
                     std::span<const Value* const> inputs, std::span<const Value> outputs,
                     uint64_t step) {
  Entry entry;
  entry.schema = &schema;
  entry.attrs = attrs;
  for (const Value* input : inputs) entry.inputs.push_back(*input);
  entry.outputs.assign(outputs.begin(), outputs.end());
  entry.step = step;
  if (!schema.differentiable || schema.gradient == nullptr) entry.name = engine.site();
  add(std::move(entry));
}

void Tape::record_function(std::string_view what, std::span<const Value* const> inputs,
                           std::span<const Value> outputs,
                           const std::shared_ptr<Backward>& backward) {
  Entry entry;
  entry.backward = backward;
  for (const Value* input : inputs) entry.inputs.push_back(*input);
  entry.outputs.assign(outputs.begin(), outputs.end());
  entry.name = std::string(what);
  add(std::move(entry));
}

void Tape::clear() {
  entries_.clear();
  tracked_.clear();
}

/// One pass back over the entries there are when it starts. Thread: core-local.
class Tape::Reverse {
 public:
  Reverse(Engine* engine, std::vector<std::shared_ptr<const Entry>> entries)
      : engine_(*engine), entries_(std::move(entries)) {}

  Status run(std::span<const Value> targets, std::span<const Value> seeds,
             std::span<const uint64_t> sources) {
    mark_dependents(sources);
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!is_differentiable(targets[i].tensor.dtype())) {
        return base::invalid_argument(
            "target {} is {}; gradients are taken of floating-point values", i,
            targets[i].tensor.to_string());
      }
      if (!dependents_.contains(targets[i].id)) continue;
      Gradient seed;
      if (i < seeds.size() && seeds[i].defined()) {
        seed.dense = seeds[i];
      } else {
        const std::array<const Value*, 1> like = {&targets[i]};
        SR_ASSIGN_OR_RETURN(seed.dense, engine_.run_one("OnesLike", like));
      }
      pending_[targets[i].id].push_back(std::move(seed));
    }
    for (size_t i = entries_.size(); i-- > 0;) SR_RETURN_IF_ERROR(visit(*entries_[i]));
    return {};
  }

  Result<Gradient> take(uint64_t source) {
    const auto done = summed_.find(source);
    if (done != summed_.end()) return done->second;
    const auto it = pending_.find(source);
    if (it == pending_.end()) return Gradient{};
    SR_ASSIGN_OR_RETURN(Gradient sum, engine_.sum(std::move(it->second)));
    pending_.erase(it);
    return summed_[source] = std::move(sum);
  }

 private:
  /// What depends on a source: gradients flow along these only.
  void mark_dependents(std::span<const uint64_t> sources) {
    for (const uint64_t source : sources) {
      dependents_.insert(source);
      sources_.insert(source);
    }
    for (const auto& entry : entries_) {
      if (!has_dependent_input(*entry)) continue;
      for (const Value& output : entry->outputs) {
        if (is_differentiable(output.tensor.dtype())) dependents_.insert(output.id);
      }
    }
  }

  [[nodiscard]] bool has_dependent_input(const Entry& entry) const {
    for (const Value& input : entry.inputs) {
      if (dependents_.contains(input.id)) return true;
    }
    return false;
  }

  Status visit(const Entry& entry) {
    std::vector<Value> dys(entry.outputs.size());
    bool any = false;
    for (size_t i = 0; i < dys.size(); ++i) {
      const auto it = pending_.find(entry.outputs[i].id);
      if (it == pending_.end()) continue;
      SR_ASSIGN_OR_RETURN(Gradient sum, engine_.sum(std::move(it->second)));
      pending_.erase(it);
      SR_ASSIGN_OR_RETURN(dys[i], engine_.to_dense(sum));
      if (sources_.contains(entry.outputs[i].id)) summed_[entry.outputs[i].id] = std::move(sum);
      any = true;
    }
    if (!any || !has_dependent_input(entry)) return {};
    return entry.backward != nullptr ? run_function(entry, dys) : run_op(entry, dys);
  }

  void add(const Value& input, Gradient gradient) {
    if (gradient.defined() && dependents_.contains(input.id)) {
      pending_[input.id].push_back(std::move(gradient));
    }
  }

  Status run_function(const Entry& entry, const std::vector<Value>& dys) {
    Result<std::vector<Gradient>> gradients = (*entry.backward)(dys);
    if (!gradients.ok()) {
      return base::with_context(gradients.status(), fmt::format("gradient of {}", entry.name));
    }
    if (gradients->size() != entry.inputs.size()) {
      return base::invalid_argument(
          "the gradient of {} has {} values; it must have one for each of "
          "the {} inputs",
          entry.name, gradients->size(), entry.inputs.size());
    }
    for (size_t i = 0; i < entry.inputs.size(); ++i) {
      add(entry.inputs[i], std::move((*gradients)[i]));
    }
    return {};
  }

  Status run_op(const Entry& entry, const std::vector<Value>& dys) {
    std::vector<const Tensor*> inputs;
    std::vector<bool> wanted;
    for (const Value& input : entry.inputs) {
      inputs.push_back(&input.tensor);
      wanted.push_back(dependents_.contains(input.id));
    }
    std::vector<bool> reached;
    std::vector<ir::TensorSpec> outputs;
    for (size_t i = 0; i < dys.size(); ++i) {
      reached.push_back(dys[i].defined());
      outputs.push_back(entry.outputs[i].spec());
    }
    SR_ASSIGN_OR_RETURN(const GradientPlan* plan,
                        engine_.plan({entry.schema, entry.attrs, inputs}, outputs, reached, wanted,
                                     [&entry] { return describe(entry); }));
    return run_plan(entry, *plan, dys);
  }

  /// "Sign (float32[3]) at model.py:12".
  static std::string describe(const Entry& entry) {
    std::vector<std::string> inputs;
    for (const Value& input : entry.inputs) inputs.push_back(input.tensor.to_string());
    return fmt::format("{} ({}){}{}", entry.schema->name, fmt::join(inputs, ", "),
                       entry.name.empty() ? "" : " at ", entry.name);
  }

  Status run_plan(const Entry& entry, const GradientPlan& plan, const std::vector<Value>& dys) {
    std::vector<Value> values(entry.inputs);
    values.reserve(static_cast<size_t>(plan.num_values));
    values.insert(values.end(), entry.outputs.begin(), entry.outputs.end());
    values.insert(values.end(), dys.begin(), dys.end());
    values.resize(static_cast<size_t>(plan.num_values));
    for (const GradientPlan::Constant& constant : plan.constants) {
      values[constant.value] = engine_.wrap(constant.tensor);
    }
    std::vector<const Value*> inputs;
    std::vector<Value> made;
    for (const GradientPlan::Op& op : plan.ops) {
      inputs.clear();
      for (const int32_t input : op.inputs) inputs.push_back(&values[input]);
      made.clear();
      // The step of the op itself: random ops of the rule draw again what the op drew.
      SR_RETURN_IF_ERROR(engine_.run(*op.schema, inputs, op.attrs, {.step = entry.step}, &made));
      for (size_t i = 0; i < made.size(); ++i) {
        values[op.first_output + static_cast<int32_t>(i)] = std::move(made[i]);
      }
    }
    for (size_t i = 0; i < entry.inputs.size(); ++i) {
      Gradient gradient;
      const GradientPlan::Sparse& rows = plan.sparse[i];
      if (rows.to_dense != nullptr) {
        gradient.values = values[rows.values];
        gradient.indices = values[rows.indices];
        gradient.of = entry.inputs[i];
        gradient.to_dense = rows.to_dense;
        gradient.attrs = rows.attrs;
      } else if (plan.grads[i] >= 0) {
        gradient.dense = values[plan.grads[i]];
      }
      add(entry.inputs[i], std::move(gradient));
    }
    return {};
  }

  Engine& engine_;
  std::vector<std::shared_ptr<const Entry>> entries_;
  absl::flat_hash_set<uint64_t> sources_;
  absl::flat_hash_set<uint64_t> dependents_;
  absl::flat_hash_map<uint64_t, std::vector<Gradient>> pending_;
  absl::flat_hash_map<uint64_t, Gradient> summed_;
};

Result<std::vector<Gradient>> Tape::gradient(Engine& engine, std::span<const Value> targets,
                                             std::span<const Value> seeds,
                                             std::span<const uint64_t> sources) const {
  Reverse reverse(&engine, entries_);
  SR_RETURN_IF_ERROR(reverse.run(targets, seeds, sources));
  std::vector<Gradient> out;
  for (const uint64_t source : sources) {
    SR_ASSIGN_OR_RETURN(Gradient gradient, reverse.take(source));
    out.push_back(std::move(gradient));
  }
  return out;
}

}  // namespace sidereal::eager
