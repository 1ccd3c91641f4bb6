#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/tensor/shape.h"

/// The table of optimizers: their names, parameters and slots, and optimizers with given values.
/// Whatever speaks of optimizers reads it here: ops and their kernels, the store, training, the
/// command line, Python and the documents. The formulas are beside the rows, in
/// kernels/internal/*_rules.h.
namespace sidereal::kernels {

inline constexpr int kRuleParametersMax = 12;
inline constexpr int kRuleSlotsMax = 3;

/// A list of at most N values that is known when the program is compiled.
template <class T, int N>
class ConstList {
 public:
  constexpr ConstList() = default;
  constexpr ConstList(std::initializer_list<T> items) {  // NOLINT(google-explicit-constructor): it
    for (const T& item : items) add(item);               // is written as a list.
  }
  constexpr void add(const T& item) { items_.at(static_cast<size_t>(size_++)) = item; }
  [[nodiscard]] constexpr int size() const { return size_; }
  constexpr const T& operator[](int i) const { return items_[static_cast<size_t>(i)]; }
  [[nodiscard]] constexpr const T* begin() const { return items_.data(); }
  [[nodiscard]] constexpr const T* end() const { return items_.data() + size_; }

 private:
  std::array<T, static_cast<size_t>(N)> items_ = {};
  int size_ = 0;
};

/// What values a parameter may have; all of them are finite.
enum class Range : uint8_t { kAtLeastZero, kAboveZero, kAtLeastOne, kBelowOne, kAtMostZero, kFlag };

/// "in [0, 1)".
std::string_view to_string(Range range);

/// A number that an optimizer is made with, under TensorFlow's name for it.
struct RuleParameter {
  std::string_view name;
  double standard = 0;  ///< Its value when none is given.
  Range range = Range::kAtLeastZero;
  std::string_view doc;
};

/// A slot has a number for each weight, or one for each row: for each index of dimension 0.
enum class SlotWidth : uint8_t { kElement, kRow };

/// What an optimizer keeps beside the weights. Slots of rows follow those of elements.
struct RuleSlot {
  std::string_view name;
  std::string_view starts_at = {};  ///< The parameter that it is full of at first; "": it is 0.
  std::string_view when = {};       ///< It is there when this parameter is not 0; "": always.
  SlotWidth width = SlotWidth::kElement;
};

/// A row of the table. Its parameters begin with learning_rate, weight_decay and l2_penalty.
struct Rule {
  std::string_view name;        ///< "adagrad_decay"
  std::string_view class_name;  ///< Of the Python class: "AdagradDecay".
  std::string_view doc;         ///< Where it is from; one sentence, without a full stop.
  std::string_view formula;     ///< For people; g is the gradient, w a weight, t the step.
  ConstList<RuleParameter, kRuleParametersMax> parameters;
  ConstList<RuleSlot, kRuleSlotsMax> slots;
  bool uses_step = false;  ///< The result depends on the number of the step.
  /// It needs norms: in a dense update those of the whole variable, of all its parts together, in
  /// an update of rows those of each row alone: so that nothing depends on how it is split.
  bool uses_norms = false;

  /// The place of a parameter among its own; -1: it has none of that name. Inline: formulas ask for
  /// theirs in every update, and most names differ from a known one in their length.
  [[nodiscard]] constexpr int place_of(std::string_view parameter) const {
    for (int i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name == parameter) return i;
    }
    return -1;
  }
};

/// All optimizers.
std::span<const Rule* const> all_rules();
/// The row of that name, or kInvalidArgument listing the names.
Result<const Rule*> find_rule(std::string_view name);

/// How many weights share a number of a slot of rows: the product of all extents but the first; 1
/// for a scalar.
int64_t elements_of_row(const tensor::Shape& weights);

/// An optimizer with a value for each of its parameters, all in range. Value type.
class UpdateRule {
 public:
  using Parameters = std::map<std::string, double, std::less<>>;

  /// SGD with learning rate 0, which changes nothing.
  UpdateRule();
  /// The optimizer of that name; parameters that are not given have their standard values.
  /// kInvalidArgument names an optimizer or a parameter that does not exist, and lists those there
  /// are, or the parameter that is out of range.
  static Result<UpdateRule> make(std::string_view name, const Parameters& parameters = {});
  /// The same where name and parameters are the program's own.
  static UpdateRule of(std::string_view name, const Parameters& parameters = {});

  [[nodiscard]] const Rule& rule() const { return *rule_; }
  /// The value of a parameter, which it must have.
  double operator[](std::string_view parameter) const {
    const int place = rule_->place_of(parameter);
    if (place < 0) no_parameter(parameter);
    return values_[static_cast<size_t>(place)];
  }
  [[nodiscard]] double learning_rate() const { return values_[0]; }
  /// How many slots it has with these parameters.
  [[nodiscard]] int num_slots() const;
  [[nodiscard]] const RuleSlot& slot(int i) const;
  /// What slot `i` is full of at first.
  [[nodiscard]] double initial_slot(int i) const;
  /// The shape of slot `i` of weights of this shape.
  [[nodiscard]] tensor::Shape slot_shape(int i, const tensor::Shape& weights) const;
  /// Floats of a row of `dim` weights with its slots.
  [[nodiscard]] int64_t row_floats(int64_t dim) const;
  /// "adagrad(learning_rate=0.01, ...)".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;

 private:
  [[noreturn]] void no_parameter(std::string_view parameter) const;

  const Rule* rule_;
  std::array<double, kRuleParametersMax> values_ = {};
};

}  // namespace sidereal::kernels
