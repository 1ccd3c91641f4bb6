#pragma once

#include <cstdint>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/train/model.h"

namespace sidereal::train {

/// What the variables of a model need on its parameter servers, with the slots of optimizers.
/// Value type.
struct MemoryPlan {
  int64_t bytes = 0;
  std::string largest = {};  ///< "table 3.85M x 16, 3 floats for each: 705 MiB", of the largest.
};

/// Of a variable with its slots.
int64_t bytes_of(const ModelVariable& variable);

MemoryPlan memory_plan(const CompiledModel& model);

/// In one line, spread over `ps` parameter servers.
std::string text_of(const MemoryPlan& plan, int ps);

/// kResourceExhausted for a model that parameter servers of this machine could not hold, of whose
/// memory `limit` bytes may be used; 0: not known. Servers of other machines are not judged.
Status check_memory(const CompiledModel& model, const cluster::ClusterSpec& cluster, int64_t limit);

}  // namespace sidereal::train
