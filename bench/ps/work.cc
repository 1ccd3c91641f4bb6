#include "work.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <random>

#include "sidereal/base/check.h"

namespace sidereal::bench {
namespace {

constexpr size_t kIdsDrawn = 100 * kIdsMax;

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Stopwatch::Stopwatch(const Window& window)
    : warm_end_(now_ns() + window.warm_ns), measure_ns_(window.measure_ns) {}

bool Stopwatch::count(int64_t ids, int64_t rows) {
  if (over_) return false;
  const int64_t now = now_ns();
  if (began_ == 0) {
    // The first call after the warm-up starts the clock and is not counted itself.
    if (now >= warm_end_) began_ = now;
    return true;
  }
  ++figures_.calls;
  figures_.ids += ids;
  figures_.rows += rows;
  figures_.ns = now - began_;
  over_ = now - began_ >= measure_ns_;
  return !over_;
}

Ids::Ids(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  for (size_t skewed = 0; skewed < drawn_.size(); ++skewed) {
    drawn_[skewed].resize(kIdsDrawn);
    for (int64_t& id : drawn_[skewed]) {
      const double u = unit(random);
      const auto rows = static_cast<double>(kTableRows);
      const auto rank = static_cast<uint64_t>(skewed != 0 ? std::pow(rows, u) - 1.0 : u * rows);
      // Popular ids lie anywhere in the table: the factor has no divisor in common with its size.
      id = static_cast<int64_t>(rank * 2654435761U % kTableRows);
    }
  }
}

std::span<const int64_t> Ids::next(const Window& window) {
  const auto count = static_cast<size_t>(window.batch * kFields);
  if (at_ + count > kIdsDrawn) at_ = 0;
  const std::span<const int64_t> ids(drawn_[window.skewed != 0 ? 1 : 0].data() + at_, count);
  at_ += count;
  return ids;
}

Front::Front()
    : layout_(kTableRows, 1, 1), unique_(kIdsMax), inverse_(kIdsMax), position_(kIdsMax) {}

int64_t Front::run(std::span<const int64_t> ids, int64_t* rows) {
  const int64_t count = kernels::unique(ids, scratch_, unique_.data(), inverse_.data());
  std::array<int64_t, 2> offsets = {};
  const int64_t bad = kernels::route({unique_.data(), static_cast<size_t>(count)}, layout_, rows,
                                     offsets.data(), position_.data());
  SR_CHECK(bad < 0);
  return count;
}

std::vector<float> make_gradients() {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<float> small(-1e-3F, 1e-3F);
  std::vector<float> gradients(kIdsMax * kDim);
  for (float& g : gradients) g = small(random);
  return gradients;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
}

bool read_all(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(fd, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

}  // namespace sidereal::bench
