#include "sidereal/exec/local_rendezvous.h"

#include <utility>

namespace sidereal::exec {

Status LocalRendezvous::send(const ports::RendezvousKey& key, tensor::Tensor value) {
  if (tensors_.try_emplace(key, std::move(value)).second) return {};
  return base::make_status(StatusCode::kAlreadyExists,
                           fmt::format("edge {} was sent twice in step {}", key.edge, key.step));
}

Result<std::optional<tensor::Tensor>> LocalRendezvous::receive(
    const ports::RendezvousKey& key, const ports::TensorSource& /*source*/) {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) return std::optional<tensor::Tensor>();
  std::optional<tensor::Tensor> value = std::move(found->second);
  tensors_.erase(found);
  return value;
}

}  // namespace sidereal::exec
