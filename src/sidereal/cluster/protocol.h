#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::cluster {

/// How the servers of a cluster carry what a step sends between them. All servers of a cluster run
/// with the same one. docs/design/0003-protocols.md says how they differ.
/// Source: the `protocol` of tf.distribute.Server; those of DeepRec.
enum class Protocol : uint8_t {
  kGrpc,            ///< "grpc": Send and Recv, over gRPC.
  kGrpcPlusPlus,    ///< "grpc++": Send and Recv, between lanes.
  kStarServer,      ///< "star_server": calls of one driver, by layers, between lanes.
  kStarServerLite,  ///< "star_server_lite": the same with fewer rounds.
};

/// "grpc", "grpc++", "star_server", "star_server_lite", in the order of the enum.
std::span<const std::string_view> protocol_names();
std::string_view name_of(Protocol protocol);
/// kInvalidArgument names those that there are.
Result<Protocol> parse_protocol(std::string_view name);

/// One protocol of what two places say: `given`, by the caller ("" says nothing), and `rpc_layer`,
/// of a TF_CONFIG that `where` names. "" when neither says anything.
/// kInvalidArgument when they differ, and for what is no protocol.
Result<std::string> agree_on_protocol(const std::string& given, const std::string& rpc_layer,
                                      const std::string& where);

/// Whether servers have a data port of their own beside gRPC's.
constexpr bool has_data_port(Protocol protocol) { return protocol != Protocol::kGrpc; }
/// Whether steps are driven by calls of one device, instead of Send and Recv.
constexpr bool is_pull_push(Protocol protocol) {
  return protocol == Protocol::kStarServer || protocol == Protocol::kStarServerLite;
}

}  // namespace sidereal::cluster
