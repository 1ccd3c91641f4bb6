#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

/// For tests: ports that stay free until a server listens there, also after it was killed.
namespace sidereal::app {

/// Ports of loopback for servers. They are not of the range that the system gives to connections,
/// and each is reserved as long as this object lives: by a name of the abstract namespace of Unix
/// sockets, which belongs to one process and ends with it. `sidereal launch` and tests in Python
/// take the same names. Not copyable.
class ReservedPorts {
 public:
  explicit ReservedPorts(int count) {
    std::vector<uint16_t> candidates = all();
    std::shuffle(candidates.begin(), candidates.end(), std::mt19937_64(std::random_device()()));
    for (const uint16_t port : candidates) {
      if (ports_.size() == static_cast<size_t>(count)) return;
      if (!reserve(port)) continue;
      ports_.push_back(port);
    }
    ADD_FAILURE() << "there are no " << count << " free ports";
  }
  ~ReservedPorts() {
    for (const int name : names_) close(name);
  }
  ReservedPorts(const ReservedPorts&) = delete;
  ReservedPorts& operator=(const ReservedPorts&) = delete;

  /// "127.0.0.1:PORT" of each.
  [[nodiscard]] std::vector<std::string> addresses() const {
    std::vector<std::string> out;
    for (const uint16_t port : ports_) out.push_back("127.0.0.1:" + std::to_string(port));
    return out;
  }

 private:
  static constexpr uint16_t kLowest = 10240;

  static std::vector<uint16_t> all() {
    int of_connections = 32768;
    std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> of_connections;
    std::vector<uint16_t> out;
    for (int port = kLowest; port < of_connections; ++port) {
      out.push_back(static_cast<uint16_t>(port));
    }
    return out;
  }

  /// Whether nobody has reserved it and nobody listens there.
  bool reserve(uint16_t port) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = "sidereal-port-" + std::to_string(port);
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    const int held = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(held, reinterpret_cast<sockaddr*>(&name), length) != 0 || !is_free(port)) {
      close(held);
      return false;
    }
    names_.push_back(held);
    return true;
  }

  static bool is_free(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool out = bind(one, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
    close(one);
    return out;
  }

  std::vector<uint16_t> ports_;
  std::vector<int> names_;
};

}  // namespace sidereal::app
