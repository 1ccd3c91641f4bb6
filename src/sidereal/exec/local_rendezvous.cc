#include "sidereal/exec/local_rendezvous.h"

#include <utility>

namespace sidereal::exec {

Status LocalRendezvous::send(const ports::RendezvousKey& key,
                             std::span<const tensor::Tensor> values) {
  if (parcels_.try_emplace(key, values.begin(), values.end()).second) return {};
  return base::make_status(StatusCode::kAlreadyExists,
                           fmt::format("edge {} was sent twice in step {}", key.edge, key.step));
}

Result<std::span<tensor::Tensor>> LocalRendezvous::receive(const ports::RendezvousKey& key,
                                                           const ports::TensorSource& /*source*/,
                                                           size_t count) {
  const auto found = parcels_.find(key);
  if (found == parcels_.end()) return std::span<tensor::Tensor>();
  received_ = std::move(found->second);
  parcels_.erase(found);
  if (received_.size() == count) return std::span<tensor::Tensor>(received_);
  return base::invalid_argument("{} tensors were sent on edge {}, and {} are read",
                                received_.size(), key.edge, count);
}

}  // namespace sidereal::exec
