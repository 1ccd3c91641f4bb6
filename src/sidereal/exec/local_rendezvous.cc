#include "sidereal/exec/local_rendezvous.h"

#include <utility>

namespace sidereal::exec {

Status LocalRendezvous::send(const ports::RendezvousKey& key, ports::Parcel values) {
  if (parcels_.try_emplace(key, std::move(values)).second) return {};
  return base::make_status(StatusCode::kAlreadyExists,
                           fmt::format("edge {} was sent twice in step {}", key.edge, key.step));
}

Result<std::optional<ports::Parcel>> LocalRendezvous::receive(const ports::RendezvousKey& key,
                                                              const ports::TensorSource& /*source*/,
                                                              size_t count) {
  const auto found = parcels_.find(key);
  if (found == parcels_.end()) return std::optional<ports::Parcel>();
  std::optional<ports::Parcel> values = std::move(found->second);
  parcels_.erase(found);
  if (values->size() == count) return values;
  return base::invalid_argument("{} tensors were sent on edge {}, and {} are read", values->size(),
                                key.edge, count);
}

}  // namespace sidereal::exec
