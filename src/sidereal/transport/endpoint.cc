#include "sidereal/transport/endpoint.h"

#include <utility>

namespace sidereal::transport {

Result<std::unique_ptr<Endpoint>> Endpoint::create(lane::Lane* lane, Identity identity,
                                                   const config::Options& options) {
  SR_RETURN_IF_ERROR(config::validate(options));
  return std::unique_ptr<Endpoint>(new Endpoint(lane, std::move(identity), options));
}

Endpoint::Endpoint(lane::Lane* lane, Identity identity, const config::Options& options)
    : lane_(lane),
      identity_(std::move(identity)),
      options_(options),
      staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)) {
  // A head, header and meta, is parsed in one piece, so it must fit the staging buffer with room
  // to spare.
  limits_.meta_bytes_max = kStagingBytes / 2;
  limits_.payload_bytes_max = static_cast<uint64_t>(options.frame_bytes_max);
  limits_.slots_max = static_cast<uint32_t>(options.slots_max);
}

}  // namespace sidereal::transport
