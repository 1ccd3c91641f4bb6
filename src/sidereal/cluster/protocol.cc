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

Result<std::string> agree_on_protocol(const std::string& given, const std::string& rpc_layer,
                                      const std::string& where) {
  if (!given.empty()) SR_RETURN_IF_ERROR(parse_protocol(given).status());
  if (rpc_layer.empty()) return given;
  const Status known = parse_protocol(rpc_layer).status();
  if (!known.ok()) return base::with_context(known, where + ": rpc_layer");
  if (given.empty() || given == rpc_layer) return rpc_layer;
  return base::invalid_argument(
      "the protocol is \"{}\" and {} says \"{}\" (rpc_layer); say the same, or leave one out",
      given, where, rpc_layer);
}

}  // namespace sidereal::cluster
