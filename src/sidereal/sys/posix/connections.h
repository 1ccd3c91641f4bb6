#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace sidereal::sys::posix {

/// Who is at an end of a connection. Value type.
struct PeerName {
  std::string host;  ///< The bytes of the IP address: 4 or 16 of them; "": unknown.
  uint16_t port = 0;

  friend auto operator<=>(const PeerName&, const PeerName&) = default;
};

/// The bytes of an IP address that is written as usual; "" where it is none.
std::string host_bytes(const std::string& host);
/// The other end of a connected socket. Thread: any.
PeerName peer_of(int socket);
/// This end of it. Thread: any.
PeerName local_of(int socket);

/// Resets those connections of this process to its port `port` whose other ends are `peers`,
/// whoever has their descriptors, and who sees them end. What has arrived and was not yet read is
/// dropped. One that its peer has reset has no name any more and may hold much that is unread: all
/// such ones are emptied. Thread: any.
void reset_connections(const std::set<PeerName>& peers, uint16_t port);

}  // namespace sidereal::sys::posix
