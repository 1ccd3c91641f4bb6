#pragma once

#include <compare>
#include <cstddef>
#include <functional>

namespace sidereal::base {

/// An integer that cannot be mixed up with another kind of id. `Tag` is any type, never made.
/// Value type; -1 (the default) is "none".
template <class Tag, class Rep>
struct StrongId {
  Rep value = static_cast<Rep>(-1);

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  /// True unless "none".
  [[nodiscard]] constexpr bool valid() const { return value != static_cast<Rep>(-1); }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

}  // namespace sidereal::base

template <class Tag, class Rep>
struct std::hash<sidereal::base::StrongId<Tag, Rep>> {
  size_t operator()(sidereal::base::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
