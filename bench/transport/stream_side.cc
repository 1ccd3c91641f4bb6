// The limits: bytes through one TCP connection, 1 MiB for each system call, and nothing else; and
// small messages through one, by a loop that is written for them alone.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

/// A socket that listens; its port is said to the benchmark.
Result<int> listen_for_client(int out) {
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
  return listener;
}

Result<int> connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  tune(fd);
  const sockaddr_in address = loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return base::unavailable("no stream");
  }
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/// Reads what there is behind what `buffer` holds; looks until there is some. 0: the end.
size_t read_some(int fd, std::vector<char>* buffer, size_t held) {
  while (true) {
    const ssize_t got = recv(fd, buffer->data() + held, buffer->size() - held, MSG_DONTWAIT);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EAGAIN && errno != EINTR) return 0;
  }
}

/// Goes through the whole messages of `bytes` bytes at the front of `buffer`, and moves what is
/// left of the last one there; returns how much that is.
template <class Fn>
size_t take_messages(std::vector<char>* buffer, size_t held, size_t bytes, const Fn& fn) {
  size_t at = 0;
  for (; held - at >= bytes; at += bytes) fn(buffer->data() + at);
  std::memmove(buffer->data(), buffer->data() + at, held - at);
  return held - at;
}

}  // namespace

Status serve_hand_loop(int, int out) {
  pin_to(0);
  SR_ASSIGN_OR_RETURN(const int listener, listen_for_client(out));
  std::vector<char> in(kBytesMax);
  std::vector<char> answers;
  while (true) {  // Until it is killed.
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    send_at_once(fd);
    int64_t bytes = 0;
    if (!read_all(fd, &bytes, sizeof(bytes))) continue;
    size_t held = 0;
    while (const size_t got = read_some(fd, &in, held)) {
      answers.clear();
      held = take_messages(&in, held + got, static_cast<size_t>(bytes), [&](const char* message) {
        answers.insert(answers.end(), message, message + kReplyBytes);
      });
      if (!answers.empty()) write_all(fd, answers.data(), answers.size());
    }
    close(fd);
  }
}

Status drive_hand_loop(int in, int out, int port) {
  pin_to(1);
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  std::vector<char> answers(kBytesMax);
  std::vector<char> messages;
  Load load;
  while (read_all(in, &load, sizeof(load))) {
    SR_ASSIGN_OR_RETURN(const int fd, connect_to(port));
    send_at_once(fd);
    write_all(fd, &load.bytes, sizeof(load.bytes));
    Recorder recorder(load);
    const std::vector<char> message(static_cast<size_t>(load.bytes), 'x');
    const auto send = [&] {  // Its time travels with it.
      const int64_t sent = recorder.sent();
      messages.insert(messages.end(), message.begin(), message.end());
      std::memcpy(messages.data() + messages.size() - message.size(), &sent, sizeof(sent));
    };
    int64_t under_way = load.outstanding;
    for (int64_t i = 0; i < under_way; ++i) send();
    size_t held = 0;
    while (under_way > 0) {
      if (!messages.empty()) write_all(fd, messages.data(), messages.size());
      messages.clear();
      const size_t got = read_some(fd, &answers, held);
      if (got == 0) return base::unavailable("the hand loop's stream broke");
      held = take_messages(&answers, held + got, kReplyBytes, [&](const char* answer) {
        int64_t sent = 0;
        std::memcpy(&sent, answer, sizeof(sent));
        if (recorder.answered(sent)) {
          send();
        } else {
          --under_way;
        }
      });
    }
    close(fd);
    const Outcome outcome = recorder.outcome();
    write_all(out, &outcome, sizeof(outcome));
  }
  return {};
}

Status serve_stream(int, int out) {
  pin_to(0);
  SR_ASSIGN_OR_RETURN(const int listener, listen_for_client(out));
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
    SR_ASSIGN_OR_RETURN(const int fd, connect_to(port));
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
