#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/bytes.h"
#include "sidereal/base/status.h"
#include "sidereal/kernels/optimizer.h"

namespace sidereal::store {

using kernels::RuleKind;

/// How gradients change a variable: an optimizer with its parameters. Value type; the formulas are
/// those of kernels::RuleKind. Fields a kind does not use are ignored.
struct UpdateRule {
  RuleKind kind = RuleKind::kSgd;
  /// > 0 (0 is allowed and changes nothing but the slots).
  float learning_rate = 0.01F;
  /// L2 penalty: weight_decay * w is added to the gradient of every weight that is updated. >= 0.
  float weight_decay = 0.0F;
  /// Momentum, in [0, 1).
  float momentum = 0.9F;
  bool nesterov = false;
  /// Adam, in [0, 1).
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  /// Adagrad and Adam, >= 0. Defaults: see adagrad() and adam().
  float epsilon = 1e-7F;
  /// Adagrad and FTRL: where the accumulator starts, >= 0.
  float initial_accumulator = 0.1F;
  /// FTRL: L1 and L2 of the closed form, >= 0, and the power of the accumulator, <= 0.
  float l1 = 0.0F;
  float l2 = 0.0F;
  float lr_power = -0.5F;

  static UpdateRule sgd(float learning_rate);
  static UpdateRule heavy_ball(float learning_rate, float momentum = 0.9F);
  static UpdateRule adagrad(float learning_rate, float initial_accumulator = 0.1F,
                            float epsilon = 1e-7F);
  static UpdateRule adam(float learning_rate, float beta1 = 0.9F, float beta2 = 0.999F,
                         float epsilon = 1e-8F);
  static UpdateRule ftrl(float learning_rate, float l1 = 0.0F, float l2 = 0.0F);

  /// kInvalidArgument naming the parameter that is out of range.
  [[nodiscard]] Status validate() const;
  /// Slots per weight.
  [[nodiscard]] int num_slots() const { return kernels::num_slots(kind); }
  /// "momentum", "accumulator", "m", ...: the name of slot `i` in checkpoints.
  [[nodiscard]] std::string_view slot_name(int i) const;
  /// What slot `i` starts with.
  [[nodiscard]] float initial_slot(int i) const;
  /// The arithmetic of update number `step` (1 is the first).
  [[nodiscard]] kernels::RuleStep step(int64_t step) const;
  /// "adagrad(lr=0.01, eps=1e-07)".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

/// "sgd", "momentum", "adagrad", "adam", "ftrl".
std::string_view name_of(RuleKind kind);
/// The kind of that name, or kInvalidArgument listing the names.
Result<RuleKind> rule_kind_from_name(std::string_view name);

/// The rule of an optimizer by name; parameters that are not named have their defaults. An empty
/// kind changes nothing. kInvalidArgument names a kind or parameter that does not exist, or a value
/// out of range.
Result<UpdateRule> rule_from_parameters(
    std::string_view kind, const std::map<std::string, double, std::less<>>& parameters);

/// Appends the fields of `rule`, with a version byte.
void encode(const UpdateRule& rule, base::ByteWriter* out);
/// Reads what encode() wrote and validates it. kDataLoss or kInvalidArgument otherwise.
Status decode(base::ByteReader* in, UpdateRule* rule);

}  // namespace sidereal::store
