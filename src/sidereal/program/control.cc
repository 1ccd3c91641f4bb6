#include "sidereal/program/control.h"

#include <string>
#include <vector>

namespace sidereal::program {
namespace {

using Kind = ControlSpec::Kind;

Result<size_t> count_attr(const Instruction& instruction, std::string_view name, size_t max) {
  SR_ASSIGN_OR_RETURN(const int64_t count, ir::get_attr<int64_t>(instruction.attrs, name));
  if (count >= 0 && static_cast<size_t>(count) <= max) return static_cast<size_t>(count);
  return base::invalid_argument("'{}' is {}; there are {} inputs", name, count,
                                instruction.inputs.size());
}

/// Compares what one control instruction gives with what one of its bodies takes.
class Matcher {
 public:
  Matcher(const Program& part, const Program& body) : part_(part), body_(body) {}

  Status inputs(const std::vector<int32_t>& given, size_t first) const {
    if (given.size() < first || body_.feeds.size() != given.size() - first) {
      return base::invalid_argument("{} inputs for a body that takes {}", given.size() - first,
                                    body_.feeds.size());
    }
    for (size_t i = 0; i < body_.feeds.size(); ++i) {
      if (!in_range(body_.feeds[i])) return base::invalid_argument("a feed of a body is no slot");
      SR_RETURN_IF_ERROR(same(part_.slots[given[i + first]], body_.slots[body_.feeds[i]]));
    }
    return {};
  }

  Status outputs(const std::vector<int32_t>& taken) const {
    if (body_.fetches.size() != taken.size()) {
      return base::invalid_argument("{} outputs of a body that returns {}", taken.size(),
                                    body_.fetches.size());
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      if (!in_range(body_.fetches[i])) return base::invalid_argument("a fetch is no slot");
      SR_RETURN_IF_ERROR(same(part_.slots[taken[i]], body_.slots[body_.fetches[i]]));
    }
    return {};
  }

  /// The body returns one bool.
  [[nodiscard]] Status condition() const {
    if (body_.fetches.size() == 1 && in_range(body_.fetches[0]) &&
        body_.slots[body_.fetches[0]].dtype == ir::DType::kBool) {
      return {};
    }
    return base::invalid_argument("a condition must return one bool");
  }

  [[nodiscard]] size_t num_outputs() const { return body_.fetches.size(); }

 private:
  [[nodiscard]] bool in_range(int32_t slot) const {
    return slot >= 0 && static_cast<size_t>(slot) < body_.slots.size();
  }

  static Status same(const SlotInfo& here, const SlotInfo& there) {
    if (here.dtype == there.dtype) return {};
    return base::invalid_argument("{} stands where a body has {}", tensor::name_of(here.dtype),
                                  tensor::name_of(there.dtype));
  }

  const Program& part_;
  const Program& body_;
};

}  // namespace

Result<ControlSpec> control_spec(const Instruction& instruction) {
  ControlSpec spec;
  const ir::AttrMap& attrs = instruction.attrs;
  if (instruction.op == "FunctionCall") return spec;
  if (instruction.op == "If") {
    spec.kind = Kind::kIf;
    return spec;
  }
  const size_t inputs = instruction.inputs.size();
  SR_ASSIGN_OR_RETURN(spec.variables, count_attr(instruction, "variables", inputs));
  if (instruction.op == "While") {
    spec.kind = Kind::kWhile;
    spec.maximum_iterations = ir::attr_or<int64_t>(attrs, "maximum_iterations", -1);
    return spec;
  }
  if (instruction.op != "Scan") return base::invalid_argument("op {} has no body", instruction.op);
  spec.kind = Kind::kScan;
  SR_ASSIGN_OR_RETURN(spec.sequences,
                      count_attr(instruction, "sequences", inputs - spec.variables));
  spec.reverse = ir::attr_or<bool>(attrs, "reverse", false);
  spec.length = ir::attr_or<int64_t>(attrs, "length", -1);
  if (spec.sequences == 0 && spec.length < 0) {
    return base::invalid_argument("a Scan without sequences has no length");
  }
  return spec;
}

Status check_control(const Program& whole, const Program& part, const Instruction& instruction) {
  SR_ASSIGN_OR_RETURN(const ControlSpec spec, control_spec(instruction));
  const bool is_if = spec.kind == Kind::kIf;
  if (is_if &&
      (instruction.inputs.empty() || part.slots[instruction.inputs[0]].dtype != ir::DType::kBool)) {
    return base::invalid_argument("an If has no bool predicate");
  }
  for (size_t b = 0; b < instruction.bodies.size(); ++b) {
    const Matcher body(part, whole.bodies[instruction.bodies[b]]);
    SR_RETURN_IF_ERROR(body.inputs(instruction.inputs, is_if ? 1 : 0));
    if (spec.kind == Kind::kWhile && b == 0) {
      SR_RETURN_IF_ERROR(body.condition());
      continue;
    }
    if (body.num_outputs() < spec.variables) {
      return base::invalid_argument("a body returns {} values for {} loop variables",
                                    body.num_outputs(), spec.variables);
    }
    SR_RETURN_IF_ERROR(body.outputs(instruction.outputs));
    // What the body returns for a variable is what it gets next.
    for (size_t i = 0; i < spec.variables; ++i) {
      const int32_t input = instruction.inputs[i];
      if (part.slots[input].dtype == part.slots[instruction.outputs[i]].dtype) continue;
      return base::invalid_argument("loop variable {} changes its dtype", i);
    }
  }
  return {};
}

}  // namespace sidereal::program
