#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sidereal/ir/schema.h"

namespace sidereal::eager {

/// What one use of an op looks like from outside: enough to run it without asking its schema again.
/// Value type. `extra` tells different things made for the same call apart.
struct CallKey {
  const ir::OpSchema* schema = nullptr;
  ir::AttrMap attrs;
  std::vector<ir::TensorSpec> inputs;
  uint64_t extra = 0;
};

/// The same without owning anything, to look one up.
struct CallView {
  const ir::OpSchema* schema;
  const ir::AttrMap& attrs;
  std::span<const ir::Tensor* const> inputs;
  uint64_t extra = 0;
};

/// Equal calls have equal hashes. Differs from process to process.
uint64_t hash_of(const CallView& call);
bool same_call(const CallKey& key, const CallView& call);
/// An owning copy.
CallKey key_of(const CallView& call);

}  // namespace sidereal::eager
