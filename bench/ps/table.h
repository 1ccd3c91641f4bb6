#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "sidereal/base/status.h"
#include "sidereal/kernels/optimizer_rules.h"
#include "sidereal/resources/variable.h"

namespace sidereal::bench {

/// The table of `bench_ps` in the store of sessions, without what carries calls to it: weights and
/// Adagrad's accumulator are two variables whose rows lie side by side, as a session's first update
/// by rows lays them out, and the kernels are those of VariableGather and VariableUpdateRows.
/// Thread: any; the variables lock themselves.
class LocalTable {
 public:
  static Result<std::unique_ptr<LocalTable>> create();

  /// Copies rows to `out`, one after the other.
  Status gather(std::span<const int64_t> rows, float* out) const;
  /// One step by a gradient for each row; rows are distinct.
  Status apply(std::span<const int64_t> rows, const float* gradients);

 private:
  LocalTable() = default;

  kernels::UpdateRule rule_;
  std::shared_ptr<resources::Variable> weights_;
  std::shared_ptr<resources::Variable> slot_;
};

}  // namespace sidereal::bench
