#include "sidereal/train/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "sidereal/base/strings.h"
#include "sidereal/sys/address.h"

namespace sidereal::train {

namespace {

std::string text_of(const ModelVariable& variable) {
  return fmt::format("'{}' {} with {} slot{}: {}", variable.name, variable.shape.to_string(),
                     variable.slots.size(), variable.slots.size() == 1 ? "" : "s",
                     base::human_bytes(static_cast<double>(bytes_of(variable))));
}

}  // namespace

int64_t bytes_of(const ModelVariable& variable) {
  const auto size = static_cast<int64_t>(tensor::size_of(variable.options.dtype));
  int64_t out = variable.shape.num_elements() * size;
  for (const SlotVariable& slot : variable.slots) out += slot.shape.num_elements() * size;
  return out;
}

MemoryPlan memory_plan(const CompiledModel& model) {
  MemoryPlan out;
  const ModelVariable* largest = nullptr;
  for (const ModelVariable& variable : model.variables) {
    out.bytes += bytes_of(variable);
    if (largest == nullptr || bytes_of(variable) > bytes_of(*largest)) largest = &variable;
  }
  if (largest != nullptr) out.largest = text_of(*largest);
  return out;
}

std::string text_of(const MemoryPlan& plan, int ps) {
  const auto bytes = static_cast<double>(plan.bytes);
  return fmt::format("variables need {} with the optimizer's slots, {} on each ps; the largest: {}",
                     base::human_bytes(bytes), base::human_bytes(bytes / std::max(ps, 1)),
                     plan.largest);
}

Status check_memory(const CompiledModel& model, const cluster::ClusterSpec& cluster,
                    int64_t limit) {
  SR_ASSIGN_OR_RETURN(const std::vector<std::string> ps, cluster.addresses("ps"));
  const bool is_here = std::all_of(ps.begin(), ps.end(), [](const std::string& text) {
    const Result<sys::Address> address = sys::Address::parse(text);
    return address.ok() && address->is_loopback();
  });
  const MemoryPlan plan = memory_plan(model);
  if (limit <= 0 || !is_here || plan.bytes <= limit) return {};
  return base::resource_exhausted(
      "the variables of the model need {} on {} ps of this machine, where {} may be used (the "
      "machine's memory, or the limit of this container or control group); the largest is {}",
      base::human_bytes(static_cast<double>(plan.bytes)), ps.size(),
      base::human_bytes(static_cast<double>(limit)), plan.largest);
}

}  // namespace sidereal::train
