#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sidereal/base/status.h"

namespace sidereal::resources {

/// Names a step that may be run again, by who asks for it: its changes of variables are made once,
/// however often it is run. Value type.
/// Source: the identifiers of RPCs of RIFL (Lee et al., SOSP 2015).
struct ClosureKey {
  /// Random, of who asks; 0: nobody runs the step again.
  uint64_t client = 0;
  /// A place that one closure has at a time, from the first time it is run to its end, and how many
  /// had it before: see closure_number().
  uint64_t closure = 0;
};

inline constexpr int kClosurePlaceBits = 20;
/// How many closures have had a place before, at most.
inline constexpr uint64_t kClosureTurnsMax = (uint64_t{1} << (64 - kClosurePlaceBits)) - 1;

constexpr uint64_t closure_number(uint64_t place, uint64_t turn) {
  return turn << kClosurePlaceBits | place;
}
constexpr uint64_t place_of_closure(uint64_t closure) {
  return closure & ((uint64_t{1} << kClosurePlaceBits) - 1);
}
constexpr uint64_t turn_of_closure(uint64_t closure) { return closure >> kClosurePlaceBits; }

/// Which changes of a variable the closures have made that may be run again. It keeps a
/// number for each change of a closure until the next one that has its place makes one.
/// Thread: as the value of its variable.
class ChangesMade {
 public:
  /// Clients that are remembered; the one that changed the variable least recently is forgotten.
  static constexpr size_t kClientsMax = 16;
  /// Changes of a closure.
  static constexpr size_t kChangesMax = size_t{1} << 20;

  /// Whether `change`, any number that is the same whenever the closure is run, is to be made: not
  /// when it has been, nor when a later closure has the place, as this one has ended then.
  /// kResourceExhausted when the closure has made too many.
  [[nodiscard]] Result<bool> is_due(const ClosureKey& key, uint64_t change) const;
  /// It was due, and has been made.
  void note(const ClosureKey& key, uint64_t change);

  /// As bytes, the same for the same changes; empty when there are none.
  [[nodiscard]] std::string encode() const;
  /// What encode() wrote; kDataLoss for anything else.
  static Result<ChangesMade> decode(std::string_view bytes);

 private:
  struct Closure {
    uint64_t turn = 0;
    absl::flat_hash_set<uint64_t> changes;
  };
  struct Client {
    uint64_t used = 0;
    absl::flat_hash_map<uint64_t, Closure> closures;  // By place.
  };

  [[nodiscard]] const Closure* find(const ClosureKey& key) const;

  uint64_t uses_ = 0;
  absl::flat_hash_map<uint64_t, Client> clients_;
};

}  // namespace sidereal::resources
