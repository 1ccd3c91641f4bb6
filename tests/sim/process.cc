#include "tests/sim/process.h"

#include <algorithm>
#include <cstring>

namespace sidereal::sim {

using tensor::Tensor;

std::string ps_name(int index) { return fmt::format("/job:ps/task:{}", index); }
std::string worker_name(int index) { return fmt::format("/job:worker/task:{}", index); }
std::string task_of_ps(int index) { return fmt::format("/job:ps/replica:0/task:{}", index); }
std::string task_of_worker(int index) {
  return fmt::format("/job:worker/replica:0/task:{}", index);
}

Process::Process(const Context& context, sys::sim::Host* host, const Place& place)
    : context_(context), node_(context.world->add_node(host)) {
  lane_ = lane::Lane::create({.name = fmt::format("{}/lane:{}", place.task, place.lane),
                              .index = place.lane,
                              .spin_us = 0,
                              .inbox_slots = context.scenario->options.inbox_slots,
                              .network = node_,
                              .clock = node_})
              .value();
  endpoint_ = transport::Endpoint::create(
                  lane_.get(),
                  {.cluster_id = kCluster,
                   .task = place.task,
                   .incarnation = place.life != 0 ? place.life : node_->random().next(),
                   .lane_count = static_cast<uint32_t>(place.lanes)},
                  context.scenario->options, context.credentials)
                  .value();
}

Process::~Process() = default;

Tensor Process::pattern(int64_t bytes, uint64_t what) {
  Tensor out = Tensor::empty(tensor::DType::kUInt8, {bytes});
  std::memset(out.raw(), static_cast<int>(what & 0xff), static_cast<size_t>(bytes));
  if (bytes >= 8) std::memcpy(out.raw(), &what, sizeof(what));
  return out;
}

bool Process::is_pattern(const Tensor& value, uint64_t what) {
  if (!value.defined() || value.dtype() != tensor::DType::kUInt8) return false;
  const Tensor wanted = pattern(value.num_elements(), what);
  return value.nbytes() == 0 || std::memcmp(value.raw(), wanted.raw(), value.nbytes()) == 0;
}

}  // namespace sidereal::sim
