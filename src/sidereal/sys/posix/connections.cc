#include "sidereal/sys/posix/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <vector>

namespace sidereal::sys::posix {

namespace {

/// A state of TCP: neither open nor closing.
constexpr int kClosed = 7;

PeerName peer_name(const sockaddr_storage& address) {
  PeerName out;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    out.host.assign(reinterpret_cast<const char*>(&v4.sin_addr), sizeof(v4.sin_addr));
    out.port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    out.host.assign(reinterpret_cast<const char*>(&v6.sin6_addr), sizeof(v6.sin6_addr));
    out.port = ntohs(v6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) out.host.erase(0, 12);
  }
  return out;
}

/// Descriptors that this process has open.
std::vector<int> descriptors() {
  std::vector<int> out;
  std::error_code error;
  std::filesystem::directory_iterator at("/proc/self/fd", error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename();
    std::from_chars(name.data(), name.data() + name.size(), out.emplace_back());
  }
  return out;
}

/// Resets a connection. What has arrived and was not yet read is dropped: a shutdown would leave it
/// to be read, which may be tens of thousands of calls.
void reset(int socket) {
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  if (connect(socket, &nobody, sizeof(nobody)) != 0) shutdown(socket, SHUT_RDWR);
}

/// Whether a descriptor is a connection that its other end has reset.
bool is_dead(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_state == kClosed;
}

PeerName name_of(int socket, decltype(getpeername)* which) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (which(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return {};
  return peer_name(address);
}

}  // namespace

std::string host_bytes(const std::string& host) {
  std::string out(sizeof(in6_addr), '\0');
  if (inet_pton(AF_INET6, host.c_str(), out.data()) == 1) return out;
  out.resize(sizeof(in_addr));
  return inet_pton(AF_INET, host.c_str(), out.data()) == 1 ? out : "";
}

PeerName peer_of(int socket) { return name_of(socket, getpeername); }
PeerName local_of(int socket) { return name_of(socket, getsockname); }

void reset_connections(const std::set<PeerName>& peers, uint16_t port) {
  for (const int fd : descriptors()) {
    // One of our own, so that it is the same to the end.
    const int held = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (held < 0) continue;
    if ((peers.contains(peer_of(held)) && local_of(held).port == port) || is_dead(held)) {
      reset(held);
    }
    close(held);
  }
}

}  // namespace sidereal::sys::posix
