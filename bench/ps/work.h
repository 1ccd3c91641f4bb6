#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/kernels/sparse.h"

/// What all sides of `bench_ps` have in common: the cases, the ids, the table.
namespace sidereal::bench {

inline constexpr int64_t kTableRows = 10'000'000;
inline constexpr int64_t kDim = 16;
inline constexpr int64_t kRowBytes = kDim * static_cast<int64_t>(sizeof(float));
inline constexpr int64_t kFields = 26;
inline constexpr std::array<int64_t, 3> kBatches = {32, 256, 1024};
inline constexpr std::array<int, 2> kOutstanding = {1, 4};
inline constexpr int64_t kIdsMax = kFields * kBatches.back();
inline constexpr double kLearningRate = 0.01;
inline constexpr float kFirstWeight = 0.005F;

enum class Op : int32_t { kPull, kPush };

/// How gRPC is used; the other sides ignore it.
enum class Api : int32_t { kSync, kAsync, kAsyncSpin };
inline constexpr std::array<const char*, 3> kApiNames = {"sync", "async", "async spin"};

/// One measurement, as it is asked of a process. Sent through a pipe as it is.
struct Window {
  Op op = Op::kPull;
  Api api = Api::kSync;
  int32_t skewed = 0;
  int32_t outstanding = 1;
  int64_t batch = 0;
  int64_t warm_ns = 0;
  int64_t measure_ns = 0;
};

/// What came out. Sent through a pipe as it is.
struct Figures {
  int64_t calls = 0;
  int64_t ids = 0;   ///< Ids looked up or pushed to.
  int64_t rows = 0;  ///< Distinct ids among them: the rows that travel.
  int64_t ns = 0;
};

/// Counts the calls of a window that end after its warm-up.
class Stopwatch {
 public:
  explicit Stopwatch(const Window& window);
  /// One call has ended. False when the window is over.
  bool count(int64_t ids, int64_t rows);
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] const Figures& figures() const { return figures_; }

 private:
  int64_t warm_end_;
  int64_t measure_ns_;
  int64_t began_ = 0;
  bool over_ = false;
  Figures figures_;
};

/// Ids drawn before anything is timed: uniform, or with probability 1 / rank (Zipf's law with
/// exponent 1). Calls take slices one after the other, so that no batch comes again before 100
/// batches of the largest size have passed.
class Ids {
 public:
  explicit Ids(uint64_t seed);
  /// The ids of the next call.
  std::span<const int64_t> next(const Window& window);

 private:
  std::array<std::vector<int64_t>, 2> drawn_;
  size_t at_ = 0;
};

/// The work a worker does before a call, on every side the same: unique, then route.
class Front {
 public:
  Front();
  /// Writes the rows to ask for to `rows` (room for ids.size()); returns their number.
  int64_t run(std::span<const int64_t> ids, int64_t* rows);

 private:
  kernels::ShardLayout layout_;
  kernels::UniqueScratch scratch_;
  std::vector<int64_t> unique_;
  std::vector<int32_t> inverse_;
  std::vector<int64_t> position_;
};

/// Small gradients for kIdsMax rows.
std::vector<float> make_gradients();

/// Pins the calling thread and those it starts.
void pin_to(int cpu);
/// CLOCK_MONOTONIC.
int64_t now_ns();
/// Reads or writes all of `bytes`; false when the other end is gone.
bool read_all(int fd, void* data, size_t bytes);
bool write_all(int fd, const void* data, size_t bytes);

// What the processes run, each on its core, until `in` is closed. They write one int32 to `out`
// when they are ready (servers: the port, gRPC: a second one), then Figures for each Window.
Status serve_sidereal(int in, int out);
Status drive_sidereal(int in, int out, int port);
Status serve_grpc(int in, int out);
Status drive_grpc(int in, int out, int sync_port, int async_port);
Status drive_in_process(int in, int out);

}  // namespace sidereal::bench
