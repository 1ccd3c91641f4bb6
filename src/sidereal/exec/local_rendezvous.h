#pragma once

#include <optional>

#include "absl/container/flat_hash_map.h"
#include "sidereal/ports/ports.h"

namespace sidereal::exec {

/// Passes tensors between programs of one step that one thread runs in turns: advance() each until
/// all are done. Thread: core-local.
class LocalRendezvous final : public ports::Rendezvous {
 public:
  /// kAlreadyExists when a tensor that nobody took lies there.
  Status send(const ports::RendezvousKey& key, tensor::Tensor value) override;
  Result<std::optional<tensor::Tensor>> receive(const ports::RendezvousKey& key,
                                                const ports::TensorSource& source) override;

  /// Tensors that were sent and not taken: none after a step.
  [[nodiscard]] size_t size() const { return tensors_.size(); }

 private:
  absl::flat_hash_map<ports::RendezvousKey, tensor::Tensor> tensors_;
};

}  // namespace sidereal::exec
