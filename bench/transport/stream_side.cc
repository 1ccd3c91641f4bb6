// The limit: bytes through one TCP connection, 1 MiB for each system call, and nothing else.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "../ps/work.h"
#include "sides.h"

namespace sidereal::bench {
namespace {

constexpr int kSocketBufferBytes = 4 << 20;  // As ours.

void tune(int fd) {
  const int size = kSocketBufferBytes;
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
  use_cubic();
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

Status serve_stream(int, int out) {
  pin_to(0);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof(address);
  tune(listener);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 8) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return base::unavailable("no socket for a stream");
  }
  const int32_t port = ntohs(address.sin_port);
  write_all(out, &port, sizeof(port));
  std::vector<char> buffer(kBytesMax);
  while (true) {  // Until it is killed.
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    ssize_t got = 0;
    while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
    }
    (void)!write(fd, buffer.data(), 1);
    close(fd);
  }
}

Status drive_stream(int in, int out, int port) {
  pin_to(1);
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  std::vector<char> buffer(kBytesMax, 'x');
  Load load;
  while (read_all(in, &load, sizeof(load))) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    tune(fd);
    const sockaddr_in address = loopback(port);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return base::unavailable("no stream");
    }
    Outcome outcome;
    const int64_t began = now_ns();
    int64_t bytes = 0;
    while (now_ns() - began < load.measure_ns) {
      const ssize_t sent = write(fd, buffer.data(), buffer.size());
      if (sent <= 0) return base::unavailable("the stream broke");
      bytes += sent;
    }
    shutdown(fd, SHUT_WR);
    char answer = 0;
    (void)!read(fd, &answer, 1);  // All has arrived.
    outcome.ns = now_ns() - began;
    outcome.messages = bytes / load.bytes;
    close(fd);
    write_all(out, &outcome, sizeof(outcome));
  }
  return {};
}

}  // namespace sidereal::bench
