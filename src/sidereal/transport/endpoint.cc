#include "sidereal/transport/endpoint.h"

#include <utility>

namespace sidereal::transport {

namespace {

/// Of messages that are being received: what memory is kept for the next ones.
constexpr size_t kPartsKept = 16;
constexpr size_t kSlotsKept = 4096;
constexpr size_t kExtraKept = size_t{64} << 10;

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(
    lane::Lane* lane, Identity identity, const config::Options& options,
    std::shared_ptr<const security::Credentials> credentials) {
  SR_RETURN_IF_ERROR(config::validate(options));
  std::unique_ptr<Endpoint> endpoint(new Endpoint(lane, std::move(identity), options));
  if (credentials != nullptr && credentials->proves_peers()) {
    SR_ASSIGN_OR_RETURN(endpoint->tls_, security::Tls::create(*credentials));
  }
  endpoint->credentials_ = std::move(credentials);
  return endpoint;
}

Endpoint::Endpoint(lane::Lane* lane, Identity identity, const config::Options& options)
    : lane_(lane),
      identity_(std::move(identity)),
      options_(options),
      budget_(static_cast<uint64_t>(options.lane_receive_bytes_max)),
      staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)) {
  limits_.meta_bytes_max = kMetaBytesMax;
  limits_.payload_bytes_max = static_cast<uint64_t>(options.frame_bytes_max);
  limits_.slots_max = static_cast<uint32_t>(options.slots_max);
}

std::unique_ptr<MessageParts> Endpoint::take_parts() {
  if (spare_parts_.empty()) return std::make_unique<MessageParts>();
  std::unique_ptr<MessageParts> out = std::move(spare_parts_.back());
  spare_parts_.pop_back();
  return out;
}

void Endpoint::give_parts(std::unique_ptr<MessageParts> parts) {
  if (parts->slots.capacity() > kSlotsKept || spare_parts_.size() == kPartsKept) return;
  parts->slots.clear();
  parts->tensors.clear();
  parts->places.clear();
  parts->extra.clear();
  if (parts->extra.capacity() > kExtraKept) parts->extra = {};
  spare_parts_.push_back(std::move(parts));
}

Result<tensor::Tensor> allocate_tensor(tensor::DType dtype, const tensor::Shape& shape) {
  constexpr size_t kSmallBytes = 1 << 20;
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
  if (bytes <= kSmallBytes) return tensor::Tensor::empty(dtype, shape);
  // Pages that no byte comes for are never touched.
  tensor::Buffer::Ptr memory = tensor::Buffer::try_allocate_zeroed(bytes);
  if (memory == nullptr) {
    return base::resource_exhausted("there is no memory for {}{}", tensor::name_of(dtype),
                                    shape.to_string());
  }
  return tensor::Tensor(dtype, shape, std::move(memory));
}

}  // namespace sidereal::transport
