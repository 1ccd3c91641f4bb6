#include "sidereal/exec/local_rendezvous.h"

#include <utility>

namespace sidereal::exec {

Status LocalRendezvous::send(const ports::RendezvousKey& key,
                             std::span<const tensor::Tensor> values) {
  if (tensor_groups_.try_emplace(key, values.begin(), values.end()).second) return {};
  return base::make_status(StatusCode::kAlreadyExists,
                           fmt::format("edge {} was sent twice in step {}", key.edge, key.step));
}

Result<std::span<tensor::Tensor>> LocalRendezvous::receive(const ports::RendezvousKey& key,
                                                           const ports::TensorSource& /*source*/,
                                                           size_t count) {
  const auto found = tensor_groups_.find(key);
  if (found == tensor_groups_.end()) return std::span<tensor::Tensor>();
  received_ = std::move(found->second);
  tensor_groups_.erase(found);
  if (received_.size() == count) return std::span<tensor::Tensor>(received_);
  return base::invalid_argument("{} tensors were sent on edge {}, and {} are read",
                                received_.size(), key.edge, count);
}

}  // namespace sidereal::exec
