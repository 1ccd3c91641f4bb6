#include "sidereal/ir/fused_code.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace sidereal::ir {
namespace {

constexpr std::array<std::string_view, 22> kOps = {
    "Abs",      "Exp",         "Log",      "Log1p",   "Neg",     "Relu",
    "Sigmoid",  "Sign",        "Softplus", "Sqrt",    "Square",  "Tanh",  // of one input
    "Add",      "AddSame",     "Div",      "Maximum", "Minimum", "Mul",
    "ReluGrad", "SigmoidGrad", "Sub",      "TanhGrad"};
constexpr size_t kUnary = 12;

/// Takes " %N" from the front of `text`; -1 when it is not there.
int32_t take_value(std::string_view* text) {
  if (!text->starts_with(" %")) return -1;
  text->remove_prefix(2);
  int32_t value = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || value < 0) return -1;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

}  // namespace

int fusable_arity(std::string_view op) {
  const auto at = std::find(kOps.begin(), kOps.end(), op) - kOps.begin();
  if (static_cast<size_t>(at) == kOps.size()) return 0;
  return static_cast<size_t>(at) < kUnary ? 1 : 2;
}

std::string to_text(const FusedStep& step) {
  return step.args[1] < 0 ? fmt::format("{} %{}", step.op, step.args[0])
                          : fmt::format("{} %{} %{}", step.op, step.args[0], step.args[1]);
}

Result<std::vector<FusedStep>> parse_fused_code(const std::vector<std::string>& code,
                                                size_t num_inputs) {
  if (code.empty() || code.size() > kFusedStepsMax || num_inputs > kFusedInputsMax) {
    return base::invalid_argument("{} steps over {} inputs; there may be 1 to {} over at most {}",
                                  code.size(), num_inputs, kFusedStepsMax, kFusedInputsMax);
  }
  std::vector<FusedStep> steps;
  for (const std::string& line : code) {
    std::string_view rest = line;
    const size_t end = std::min(rest.find(' '), rest.size());
    FusedStep step{.op = std::string(rest.substr(0, end))};
    rest.remove_prefix(end);
    const int arity = fusable_arity(step.op);
    const auto known = static_cast<int32_t>(num_inputs + steps.size());
    bool good = arity > 0;
    for (int i = 0; good && i < arity; ++i) {
      step.args[i] = take_value(&rest);
      good = step.args[i] >= 0 && step.args[i] < known;
    }
    if (!good || !rest.empty()) {
      return base::invalid_argument(
          "step {} is '{}'; it must be an element-wise op and values before {}, as in 'Mul %0 %1'",
          steps.size(), line.substr(0, 60), known);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace sidereal::ir
