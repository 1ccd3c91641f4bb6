#include "sidereal/store/update_rule.h"

#include <array>
#include <cmath>
#include <utility>

namespace sidereal::store {
namespace {

constexpr uint8_t kEncodingVersion = 1;

constexpr std::array<std::pair<RuleKind, std::string_view>, 5> kNames = {{
    {RuleKind::kSgd, "sgd"},
    {RuleKind::kMomentum, "momentum"},
    {RuleKind::kAdagrad, "adagrad"},
    {RuleKind::kAdam, "adam"},
    {RuleKind::kFtrl, "ftrl"},
}};

Status check_at_least_zero(std::string_view rule, const char* what, float value) {
  if (std::isfinite(value) && value >= 0.0F) return {};
  return base::invalid_argument("{}: {} is {}; it must be a number >= 0", rule, what, value);
}

Status check_below_one(std::string_view rule, const char* what, float value) {
  if (value >= 0.0F && value < 1.0F) return {};
  return base::invalid_argument("{}: {} is {}; it must be in [0, 1)", rule, what, value);
}

}  // namespace

UpdateRule UpdateRule::sgd(float learning_rate) {
  UpdateRule rule;
  rule.kind = RuleKind::kSgd;
  rule.learning_rate = learning_rate;
  return rule;
}

UpdateRule UpdateRule::heavy_ball(float learning_rate, float momentum) {
  UpdateRule rule;
  rule.kind = RuleKind::kMomentum;
  rule.learning_rate = learning_rate;
  rule.momentum = momentum;
  return rule;
}

UpdateRule UpdateRule::adagrad(float learning_rate, float initial_accumulator, float epsilon) {
  UpdateRule rule;
  rule.kind = RuleKind::kAdagrad;
  rule.learning_rate = learning_rate;
  rule.initial_accumulator = initial_accumulator;
  rule.epsilon = epsilon;
  return rule;
}

UpdateRule UpdateRule::adam(float learning_rate, float beta1, float beta2, float epsilon) {
  UpdateRule rule;
  rule.kind = RuleKind::kAdam;
  rule.learning_rate = learning_rate;
  rule.beta1 = beta1;
  rule.beta2 = beta2;
  rule.epsilon = epsilon;
  return rule;
}

UpdateRule UpdateRule::ftrl(float learning_rate, float l1, float l2) {
  UpdateRule rule;
  rule.kind = RuleKind::kFtrl;
  rule.learning_rate = learning_rate;
  rule.l1 = l1;
  rule.l2 = l2;
  return rule;
}

Status UpdateRule::validate() const {
  const std::string_view rule = name_of(kind);
  if (rule.empty()) {
    return base::invalid_argument("update rule number {} is not known", static_cast<int>(kind));
  }
  SR_RETURN_IF_ERROR(check_at_least_zero(rule, "learning_rate", learning_rate));
  SR_RETURN_IF_ERROR(check_at_least_zero(rule, "weight_decay", weight_decay));
  switch (kind) {
    case RuleKind::kSgd:
      return {};
    case RuleKind::kMomentum:
      return check_below_one(rule, "momentum", momentum);
    case RuleKind::kAdagrad:
      SR_RETURN_IF_ERROR(check_at_least_zero(rule, "initial_accumulator", initial_accumulator));
      SR_RETURN_IF_ERROR(check_at_least_zero(rule, "epsilon", epsilon));
      if (initial_accumulator > 0.0F || epsilon > 0.0F) return {};
      return base::invalid_argument(
          "adagrad: initial_accumulator and epsilon are both 0; the first zero gradient would "
          "divide by zero");
    case RuleKind::kAdam:
      SR_RETURN_IF_ERROR(check_below_one(rule, "beta1", beta1));
      SR_RETURN_IF_ERROR(check_below_one(rule, "beta2", beta2));
      return check_at_least_zero(rule, "epsilon", epsilon);
    case RuleKind::kFtrl:
      SR_RETURN_IF_ERROR(check_at_least_zero(rule, "initial_accumulator", initial_accumulator));
      SR_RETURN_IF_ERROR(check_at_least_zero(rule, "l1", l1));
      SR_RETURN_IF_ERROR(check_at_least_zero(rule, "l2", l2));
      if (!(learning_rate > 0.0F)) {
        return base::invalid_argument("ftrl: learning_rate is {}; it must be > 0", learning_rate);
      }
      if (std::isfinite(lr_power) && lr_power <= 0.0F) return {};
      return base::invalid_argument("ftrl: lr_power is {}; it must be a number <= 0", lr_power);
  }
  return {};
}

std::string_view UpdateRule::slot_name(int i) const {
  switch (kind) {
    case RuleKind::kSgd:
      return "";
    case RuleKind::kMomentum:
      return "momentum";
    case RuleKind::kAdagrad:
      return "accumulator";
    case RuleKind::kAdam:
      return i == 0 ? "m" : "v";
    case RuleKind::kFtrl:
      return i == 0 ? "accumulator" : "linear";
  }
  return "";
}

float UpdateRule::initial_slot(int i) const {
  const bool accumulates = kind == RuleKind::kAdagrad || (kind == RuleKind::kFtrl && i == 0);
  return accumulates ? initial_accumulator : 0.0F;
}

kernels::RuleStep UpdateRule::step(int64_t step) const {
  kernels::RuleStep s;
  s.kind = kind;
  s.nesterov = nesterov;
  s.learning_rate = learning_rate;
  s.weight_decay = weight_decay;
  s.momentum = momentum;
  s.beta1 = beta1;
  s.beta2 = beta2;
  s.epsilon = epsilon;
  s.l1 = l1;
  s.l2 = l2;
  s.lr_power = lr_power;
  if (kind == RuleKind::kAdam) {
    const auto t = static_cast<double>(step);
    s.correction1 = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta1), t)));
    s.correction2 =
        static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(beta2), t)));
  }
  return s;
}

std::string UpdateRule::to_string() const {
  std::string text = fmt::format("{}(learning_rate={}", name_of(kind), learning_rate);
  if (kind == RuleKind::kMomentum) {
    text += fmt::format(", momentum={}{}", momentum, nesterov ? ", nesterov" : "");
  } else if (kind == RuleKind::kAdagrad) {
    text += fmt::format(", initial_accumulator={}, epsilon={}", initial_accumulator, epsilon);
  } else if (kind == RuleKind::kAdam) {
    text += fmt::format(", beta1={}, beta2={}, epsilon={}", beta1, beta2, epsilon);
  } else if (kind == RuleKind::kFtrl) {
    text += fmt::format(", initial_accumulator={}, l1={}, l2={}, lr_power={}", initial_accumulator,
                        l1, l2, lr_power);
  }
  if (weight_decay != 0.0F) text += fmt::format(", weight_decay={}", weight_decay);
  return text + ")";
}

std::string_view name_of(RuleKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "";
}

Result<RuleKind> rule_kind_from_name(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return base::invalid_argument(
      "optimizer '{}' is not known; the optimizers are sgd, momentum, adagrad, adam and ftrl",
      name);
}

void encode(const UpdateRule& rule, base::ByteWriter* out) {
  out->put(kEncodingVersion);
  out->put(rule.kind);
  out->put(static_cast<uint8_t>(rule.nesterov ? 1 : 0));
  for (const float x :
       {rule.learning_rate, rule.weight_decay, rule.momentum, rule.beta1, rule.beta2, rule.epsilon,
        rule.initial_accumulator, rule.l1, rule.l2, rule.lr_power}) {
    out->put(x);
  }
}

Status decode(base::ByteReader* in, UpdateRule* rule) {
  uint8_t version = 0;
  SR_RETURN_IF_ERROR(in->get(&version));
  if (version != kEncodingVersion) {
    return base::data_loss("update rule of encoding version {}; this program reads version {}",
                           version, kEncodingVersion);
  }
  UpdateRule read;
  uint8_t nesterov = 0;
  SR_RETURN_IF_ERROR(in->get(&read.kind));
  SR_RETURN_IF_ERROR(in->get(&nesterov));
  read.nesterov = nesterov != 0;
  for (float* x :
       {&read.learning_rate, &read.weight_decay, &read.momentum, &read.beta1, &read.beta2,
        &read.epsilon, &read.initial_accumulator, &read.l1, &read.l2, &read.lr_power}) {
    SR_RETURN_IF_ERROR(in->get(x));
  }
  SR_RETURN_IF_ERROR(read.validate());
  *rule = read;
  return {};
}

Result<UpdateRule> rule_from_parameters(
    std::string_view kind, const std::map<std::string, double, std::less<>>& parameters) {
  UpdateRule rule = UpdateRule::sgd(0.0F);
  if (kind.empty()) return rule;
  SR_ASSIGN_OR_RETURN(rule.kind, rule_kind_from_name(kind));
  if (rule.kind == RuleKind::kAdam) rule = UpdateRule::adam(0.001F);
  const std::pair<const char*, float*> fields[] = {
      {"learning_rate", &rule.learning_rate},
      {"weight_decay", &rule.weight_decay},
      {"momentum", &rule.momentum},
      {"beta1", &rule.beta1},
      {"beta2", &rule.beta2},
      {"epsilon", &rule.epsilon},
      {"initial_accumulator", &rule.initial_accumulator},
      {"l1", &rule.l1},
      {"l2", &rule.l2},
      {"lr_power", &rule.lr_power}};
  for (const auto& [name, value] : parameters) {
    bool known = false;
    for (const auto& [field, target] : fields) {
      if (name != field) continue;
      *target = static_cast<float>(value);
      known = true;
    }
    if (name == "nesterov") {
      rule.nesterov = value != 0;
      known = true;
    }
    if (!known) return base::invalid_argument("optimizer {} has no parameter '{}'", kind, name);
  }
  SR_RETURN_IF_ERROR(rule.validate());
  return rule;
}

}  // namespace sidereal::store
