#pragma once

#include <array>

#include "sidereal/kernels/internal/adagrad_rules.h"
#include "sidereal/kernels/internal/adam_rules.h"

/// All rules of optimizers.
namespace sidereal::kernels::internal {

/// The table.
template <class... Rows>
struct RuleList {
  static constexpr std::array<const Rule*, sizeof...(Rows)> kRows = {&Rows::kRow...};
  /// Calls visit.template operator()<Row>() for the row at `rule`.
  template <class Visit>
  static void visit(const Rule* rule, Visit visit) {
    static_cast<void>(
        ((rule == &Rows::kRow ? (visit.template operator()<Rows>(), true) : false) || ...));
  }
};

using Rules = RuleList<Sgd, Momentum, Adagrad, RowWiseAdagrad, AdagradDecay, Adam, AdamW, AdamAsync,
                       Adamax, Nadam, RmsProp, Adadelta, Ftrl, Lamb, Lars, Lion>;

}  // namespace sidereal::kernels::internal
