#include "sidereal/cluster/protocol.h"

#include <array>

namespace sidereal::cluster {

namespace {
constexpr std::array<std::string_view, 4> kNames = {"grpc", "grpc++", "star_server",
                                                    "star_server_lite"};
}  // namespace

std::span<const std::string_view> protocol_names() { return kNames; }

std::string_view name_of(Protocol protocol) { return kNames[static_cast<size_t>(protocol)]; }

Result<Protocol> parse_protocol(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Protocol>(i);
  }
  return base::invalid_argument(
      "there is no protocol \"{}\"; choose one of \"grpc\", \"grpc++\", \"star_server\" and "
      "\"star_server_lite\"",
      name);
}

}  // namespace sidereal::cluster
