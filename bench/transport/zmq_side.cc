// ZeroMQ: a DEALER that sends, a ROUTER that answers.
#include "../ps/work.h"
#include "sidereal/base/check.h"
#include "sides.h"

#ifdef SIDEREAL_HAVE_ZMQ
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace sidereal::bench {
namespace {

constexpr int kUnlimited = 0;

void* make_socket(void* context, int type) {
  void* const socket = zmq_socket(context, type);
  zmq_setsockopt(socket, ZMQ_SNDHWM, &kUnlimited, sizeof(kUnlimited));
  zmq_setsockopt(socket, ZMQ_RCVHWM, &kUnlimited, sizeof(kUnlimited));
  return socket;
}

/// Receives one part; waits in the kernel, or looks all the time.
bool receive(void* socket, zmq_msg_t* part, bool polling) {
  while (zmq_msg_recv(part, socket, polling ? ZMQ_DONTWAIT : 0) < 0) {
    if (errno != EAGAIN && errno != EINTR) return false;
  }
  return true;
}

void keep(void*, void*) {}

}  // namespace

bool has_zmq() { return true; }

Status serve_zmq(int, int out, bool polling) {
  pin_to(0);  // Its I/O thread too.
  void* const context = zmq_ctx_new();
  void* const socket = make_socket(context, ZMQ_ROUTER);
  if (zmq_bind(socket, "tcp://127.0.0.1:*") != 0) return base::unavailable("no ZeroMQ socket");
  std::array<char, 100> name = {};
  size_t length = name.size();
  zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, name.data(), &length);
  const char* const digits = std::strrchr(name.data(), ':') + 1;
  const auto port = static_cast<int32_t>(std::strtol(digits, nullptr, 10));
  use_cubic();
  write_all(out, &port, sizeof(port));
  zmq_msg_t from;
  zmq_msg_t message;
  zmq_msg_init(&from);
  zmq_msg_init(&message);
  while (receive(socket, &from, polling) && receive(socket, &message, polling)) {
    std::array<char, kReplyBytes> answer = {};
    std::memcpy(answer.data(), zmq_msg_data(&message), sizeof(int64_t));
    zmq_msg_send(&from, socket, ZMQ_SNDMORE);
    zmq_send(socket, answer.data(), answer.size(), 0);
  }
  return {};
}

Status drive_zmq(int in, int out, int port, bool polling) {
  pin_to(1);
  void* const context = zmq_ctx_new();
  void* const socket = make_socket(context, ZMQ_DEALER);
  if (zmq_connect(socket, fmt::format("tcp://127.0.0.1:{}", port).c_str()) != 0) {
    return base::unavailable("no ZeroMQ connection");
  }
  std::vector<std::vector<char>> slots(kOutstandingMax, std::vector<char>(kBytesMax));
  std::array<int64_t, kOutstandingMax> times = {};
  bool is_tuned = false;
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  Load load;
  while (read_all(in, &load, sizeof(load))) {
    Recorder recorder(load);
    const auto send = [&](int64_t slot) {
      times[static_cast<size_t>(slot)] = recorder.sent();
      char* const data = slots[static_cast<size_t>(slot)].data();
      std::memcpy(data, &slot, sizeof(slot));
      zmq_msg_t message;
      if (load.bytes > 4096) {
        zmq_msg_init_data(&message, data, static_cast<size_t>(load.bytes), keep, nullptr);
      } else {
        zmq_msg_init_size(&message, static_cast<size_t>(load.bytes));
        std::memcpy(zmq_msg_data(&message), data, static_cast<size_t>(load.bytes));
      }
      zmq_msg_send(&message, socket, 0);
    };
    int64_t under_way = 0;
    for (; under_way < load.outstanding; ++under_way) send(under_way);
    zmq_msg_t answer;
    zmq_msg_init(&answer);
    while (under_way > 0) {
      SR_CHECK(receive(socket, &answer, polling));
      if (!is_tuned) {
        use_cubic();
        is_tuned = true;
      }
      int64_t slot = 0;
      std::memcpy(&slot, zmq_msg_data(&answer), sizeof(slot));
      if (recorder.answered(times[static_cast<size_t>(slot)])) {
        send(slot);
      } else {
        --under_way;
      }
    }
    zmq_msg_close(&answer);
    const Outcome outcome = recorder.outcome();
    write_all(out, &outcome, sizeof(outcome));
  }
  return {};
}

}  // namespace sidereal::bench
#else

namespace sidereal::bench {

bool has_zmq() { return false; }
Status serve_zmq(int, int, bool) { return base::unimplemented("built without ZeroMQ"); }
Status drive_zmq(int, int, int, bool) { return base::unimplemented("built without ZeroMQ"); }

}  // namespace sidereal::bench
#endif
