#include "sidereal/exec/workers.h"

#include <exception>

#include "sidereal/base/check.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace sidereal::exec {
namespace {

constexpr int kPartBits = 20;
constexpr uint64_t kPartMask = (uint64_t{1} << kPartBits) - 1;
/// How often a thread looks again before it sleeps: some ten microseconds.
constexpr int kLooks = 400;

uint64_t next_of(uint64_t ticket) { return ticket & kPartMask; }
uint64_t parts_of(uint64_t ticket) { return ticket >> kPartBits & kPartMask; }
uint64_t run_of(uint64_t ticket) { return ticket >> (2 * kPartBits); }

void pause() {
#if defined(__SSE2__)
  _mm_pause();
#endif
}

/// Returns when `value` is not `old` any more.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kLooks; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

Workers::Workers(int threads) {
  SR_CHECK(threads >= 1 && threads <= kThreadsMax, "{} threads", threads);
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
}

Workers::~Workers() {
  stopping_.store(true, std::memory_order_relaxed);
  const uint64_t run = run_of(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store(run << (2 * kPartBits), std::memory_order_release);
  ticket_.notify_all();
}

void Workers::run(int64_t parts, absl::FunctionRef<void(int64_t)> unsafe) {
  // Nobody may leave before all parts are done: what a part throws waits until then.
  std::atomic<bool> has_thrown = false;
  std::exception_ptr thrown;
  const auto body = [&](int64_t part) {
    try {
      unsafe(part);
    } catch (...) {
      if (!has_thrown.exchange(true)) thrown = std::current_exception();
    }
  };
  run_all(parts, body);
  if (has_thrown.load()) std::rethrow_exception(thrown);
}

void Workers::run_all(int64_t parts, Body body) {
  SR_CHECK(parts >= 0 && parts <= kPartsMax, "{} parts", parts);
  if (parts <= 1 || helpers_.empty()) {
    for (int64_t i = 0; i < parts; ++i) body(i);
    return;
  }
  std::fegetenv(&environment_);
  body_ = &body;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t run = run_of(ticket_.load(std::memory_order_relaxed)) + 1;
  const uint64_t ticket = run << (2 * kPartBits) | static_cast<uint64_t>(parts) << kPartBits;
  ticket_.store(ticket, std::memory_order_release);
  ticket_.notify_all();
  work(ticket, false);
  for (int64_t done = done_.load(std::memory_order_acquire); done != parts;
       done = done_.load(std::memory_order_acquire)) {
    wait_while(done_, done);
  }
}

void Workers::work(uint64_t ticket, bool is_helper) {
  uint64_t prepared = is_helper ? ~uint64_t{0} : run_of(ticket);
  while (next_of(ticket) < parts_of(ticket)) {
    // Fails where another thread took this part; `ticket` is then what there is to do now.
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    if (prepared != run_of(ticket)) std::fesetenv(&environment_);
    prepared = run_of(ticket);
    const auto parts = static_cast<int64_t>(parts_of(ticket));
    (*body_)(static_cast<int64_t>(next_of(ticket)));
    // Once its last part is counted the run may be over.
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) done_.notify_one();
    ++ticket;
  }
}

void Workers::help() {
  while (true) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (next_of(ticket) < parts_of(ticket)) {
      work(ticket, true);
    } else {
      wait_while(ticket_, ticket);
    }
  }
}

}  // namespace sidereal::exec
