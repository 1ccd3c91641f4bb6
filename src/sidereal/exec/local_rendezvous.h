#pragma once

#include <span>

#include "absl/container/flat_hash_map.h"
#include "sidereal/ports/ports.h"

namespace sidereal::exec {

/// Passes tensors between programs of one step that one thread runs in turns: advance() each until
/// all are done. Thread: core-local.
class LocalRendezvous final : public ports::Rendezvous {
 public:
  /// kAlreadyExists when a tensor group that nobody took lies there.
  Status send(const ports::RendezvousKey& key, std::span<const tensor::Tensor> values) override;
  /// kInvalidArgument when there is another number of tensors.
  Result<std::span<tensor::Tensor>> receive(const ports::RendezvousKey& key,
                                            const ports::TensorSource& source,
                                            size_t count) override;

  /// Tensor groups that were sent and not taken: none after a step.
  [[nodiscard]] size_t size() const { return tensor_groups_.size(); }

 private:
  absl::flat_hash_map<ports::RendezvousKey, ports::TensorGroup> tensor_groups_;
  ports::TensorGroup received_;  // Last.
};

}  // namespace sidereal::exec
