#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

/// What all sides of `bench_transport` have in common: one process sends messages of some size, the
/// other answers each with kReplyBytes, and so many are under way at a time.
namespace sidereal::bench {

inline constexpr int64_t kReplyBytes = 16;
inline constexpr int64_t kBytesMax = 1 << 20;
inline constexpr int kOutstandingMax = 64;

/// One measurement, as it is asked of a process. Sent through a pipe as it is.
struct Load {
  int64_t bytes = 0;
  int64_t outstanding = 1;
  int64_t warm_ns = 0;
  int64_t measure_ns = 0;
};

/// What came out. Sent through a pipe as it is.
struct Outcome {
  int64_t messages = 0;
  int64_t ns = 0;
  int64_t p50_ns = 0;  ///< From a message to its answer; 0 where there is none.
  int64_t p99_ns = 0;
};

/// Counts the messages of a load that are answered after its warm-up. Looks at the clock only now
/// and then where messages are many. Thread: one at a time.
class Recorder {
 public:
  explicit Recorder(const Load& load);

  /// For a message that is sent now: what answered() wants.
  int64_t sent();
  /// An answer has come. False when the load is over.
  bool answered(int64_t sent);
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] Outcome outcome();

 private:
  Load load_;
  uint64_t look_mask_;
  uint64_t count_ = 0;
  int64_t warm_end_;
  int64_t began_ = 0;
  bool over_ = false;
  Outcome outcome_;
  std::vector<int64_t> times_;
};

/// Gives every TCP socket of this process cubic, or reno; accepted ones inherit it from the
/// listening one.
void use_cubic();
/// What a socket of this process that is not told otherwise uses.
std::string default_congestion_control();

// What the processes run, servers on core 0 and clients on core 1, until `in` is closed. Servers
// write an int32 to `out` when they are ready, the port; clients an int32, then an Outcome for each
// Load.
/// `shared`: the connection moves to shared memory while it warms up.
Status serve_lane(int in, int out, int64_t spin_us, bool shared);
Status drive_lane(int in, int out, int port, int64_t spin_us, bool shared);
/// `queue`: with completion queues, else with callbacks.
Status serve_grpc_echo(int in, int out, bool queue);
Status drive_grpc_echo(int in, int out, int port, bool queue);
Status serve_zmq(int in, int out, bool polling);
Status drive_zmq(int in, int out, int port, bool polling);
/// What is possible with small messages: they lie behind each other without frames, each side looks
/// all the time, and writes once for all that it has read.
Status serve_hand_loop(int in, int out);
Status drive_hand_loop(int in, int out, int port);
/// Bytes in one direction, without messages; one answer at the end.
Status serve_stream(int in, int out);
Status drive_stream(int in, int out, int port);

/// Whether this program was built with ZeroMQ.
bool has_zmq();

}  // namespace sidereal::bench
