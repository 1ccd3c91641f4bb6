#include "sidereal/kernels/optimizer_rules.h"

#include <cmath>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"
#include "sidereal/kernels/internal/rule_list.h"

namespace sidereal::kernels {
namespace {

constexpr bool is_well_formed(const Rule& rule) {
  const RuleParameter* p = rule.parameters.begin();
  if (rule.parameters.size() < 3 || p[0].name != "learning_rate" || p[1].name != "weight_decay" ||
      p[2].name != "l2_penalty") {
    return false;
  }
  const auto has = [&rule](std::string_view name) {
    for (const RuleParameter& parameter : rule.parameters) {
      if (parameter.name == name) return true;
    }
    return name.empty();
  };
  bool in_rows = false;
  for (const RuleSlot& slot : rule.slots) {
    if (!has(slot.starts_at) || !has(slot.when)) return false;
    if (in_rows && slot.width == SlotWidth::kElement) return false;
    in_rows = slot.width == SlotWidth::kRow;
  }
  return true;
}

template <class... Rows>
constexpr bool are_well_formed(internal::RuleList<Rows...> /*list*/) {
  return (is_well_formed(Rows::kRow) && ...);
}
static_assert(are_well_formed(internal::Rules()));

bool is_in(Range range, double value) {
  if (!std::isfinite(value)) return false;
  switch (range) {
    case Range::kAtLeastZero:
      return value >= 0;
    case Range::kAboveZero:
      return value > 0;
    case Range::kAtLeastOne:
      return value >= 1;
    case Range::kBelowOne:
      return value >= 0 && value < 1;
    case Range::kAtMostZero:
      return value <= 0;
    case Range::kFlag:
      return value == 0 || value == 1;
  }
  return false;
}

std::string names_of(const Rule& rule) {
  std::vector<std::string> names;
  for (const RuleParameter& parameter : rule.parameters) names.emplace_back(parameter.name);
  return base::join(names, ", ");
}

}  // namespace

std::string_view to_string(Range range) {
  switch (range) {
    case Range::kAtLeastZero:
      return "0 or more";
    case Range::kAboveZero:
      return "more than 0";
    case Range::kAtLeastOne:
      return "1 or more";
    case Range::kBelowOne:
      return "in [0, 1)";
    case Range::kAtMostZero:
      return "0 or less";
    case Range::kFlag:
      return "0 or 1";
  }
  return "";
}

std::span<const Rule* const> all_rules() { return internal::Rules::kRows; }

Result<const Rule*> find_rule(std::string_view name) {
  std::vector<std::string> names;
  for (const Rule* rule : all_rules()) {
    if (rule->name == name) return rule;
    names.emplace_back(rule->name);
  }
  return base::invalid_argument("no optimizer '{}'; the optimizers are: {}", name,
                                base::join(names, ", "));
}

int64_t elements_of_row(const tensor::Shape& weights) {
  int64_t elements = 1;
  for (int i = 1; i < weights.rank(); ++i) elements *= weights.dim(i);
  return elements;
}

UpdateRule::UpdateRule() : rule_(&internal::Sgd::kRow) {}

Result<UpdateRule> UpdateRule::make(std::string_view name, const Parameters& parameters) {
  UpdateRule out;
  SR_ASSIGN_OR_RETURN(out.rule_, find_rule(name));
  const Rule& rule = *out.rule_;
  for (int i = 0; i < rule.parameters.size(); ++i) {
    out.values_[static_cast<size_t>(i)] = rule.parameters[i].standard;
  }
  for (const auto& [key, value] : parameters) {
    const int place = rule.place_of(key);
    if (place < 0) {
      return base::invalid_argument("optimizer {} has no parameter '{}'; its parameters are: {}",
                                    name, key, names_of(rule));
    }
    if (!is_in(rule.parameters[place].range, value)) {
      return base::invalid_argument("optimizer {}: {} is {}; it must be {}", name, key, value,
                                    kernels::to_string(rule.parameters[place].range));
    }
    out.values_[static_cast<size_t>(place)] = value;
  }
  const int start = rule.place_of("initial_accumulator_value");
  const int epsilon = rule.place_of("epsilon");
  if (start >= 0 && epsilon >= 0 && out.values_[static_cast<size_t>(start)] == 0 &&
      out.values_[static_cast<size_t>(epsilon)] == 0) {
    return base::invalid_argument(
        "optimizer {}: initial_accumulator_value and epsilon are both 0; the first zero gradient "
        "would divide by zero",
        name);
  }
  return out;
}

UpdateRule UpdateRule::of(std::string_view name, const Parameters& parameters) {
  Result<UpdateRule> made = make(name, parameters);
  SR_CHECK(made.ok(), "{}", base::message_of(made.status()));
  return *std::move(made);
}

void UpdateRule::no_parameter(std::string_view parameter) const {
  SR_CHECK(false, "optimizer {} has no parameter '{}'", rule_->name, parameter);
}

int UpdateRule::num_slots() const {
  int n = 0;
  for (const RuleSlot& slot : rule_->slots) {
    n += slot.when.empty() || (*this)[slot.when] != 0 ? 1 : 0;
  }
  return n;
}

const RuleSlot& UpdateRule::slot(int i) const {
  for (const RuleSlot& slot : rule_->slots) {
    if (!slot.when.empty() && (*this)[slot.when] == 0) continue;
    if (i-- == 0) return slot;
  }
  SR_CHECK(false, "optimizer {} has {} slots", rule_->name, num_slots());
}

double UpdateRule::initial_slot(int i) const {
  const std::string_view parameter = slot(i).starts_at;
  return parameter.empty() ? 0 : (*this)[parameter];
}

tensor::Shape UpdateRule::slot_shape(int i, const tensor::Shape& weights) const {
  if (slot(i).width == SlotWidth::kElement || weights.rank() == 0) return weights;
  return tensor::Shape{weights.dim(0)};
}

int64_t UpdateRule::row_floats(int64_t dim) const {
  int64_t floats = dim;
  for (int i = 0; i < num_slots(); ++i) floats += slot(i).width == SlotWidth::kRow ? 1 : dim;
  return floats;
}

std::string UpdateRule::to_string() const {
  std::string text = std::string(rule_->name) + "(";
  for (int i = 0; i < rule_->parameters.size(); ++i) {
    const RuleParameter& parameter = rule_->parameters[i];
    const double value = values_[static_cast<size_t>(i)];
    if (i > 0 && value == parameter.standard) continue;
    text += fmt::format("{}{}={}", i > 0 ? ", " : "", parameter.name, value);
  }
  return text + ")";
}

}  // namespace sidereal::kernels
