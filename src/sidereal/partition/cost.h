#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/partition/by_device.h"
#include "sidereal/partition/pull_push.h"

namespace sidereal::partition {

/// What a step sends, as far as its graphs tell. What is in bodies counts once; how often they run
/// nobody knows.
struct StepCost {
  int64_t calls = 0;           ///< Remote calls; of parts that meet at Send and Recv, the parts.
  int64_t rounds = 0;          ///< Longest chain of calls, or of tensors passed, outside of bodies.
  int64_t messages = 0;        ///< There and back.
  int64_t values = 0;          ///< Tensors sent, feeds and fetches of the session left out.
  int64_t known_bytes = 0;     ///< Of tensors of known shape that are no strings.
  int64_t unknown_values = 0;  ///< Of other ones.
  friend bool operator==(const StepCost&, const StepCost&) = default;
};

/// A call is two messages, an asynchronous push one.
StepCost cost_of(const PartitionedGraph& partitioned);

/// A part is begun and ends, and each Recv asks for what comes: two messages.
StepCost cost_of(const std::vector<DevicePartition>& parts);

/// "4 calls in 2 rounds: 8 messages, 10 values, 1.5 KiB known, 2 of unknown size".
std::string to_text(const StepCost& cost);

/// For people: the parts with their nodes, and what goes from which to which.
std::string summary(const std::vector<DevicePartition>& parts);

}  // namespace sidereal::partition
