#pragma once

#include "absl/functional/any_invocable.h"

namespace sidereal::base {

/// A move-only callable; std::move_only_function of C++23 by another name.
template <class Signature>
using Function = absl::AnyInvocable<Signature>;

}  // namespace sidereal::base
