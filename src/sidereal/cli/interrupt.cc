#include "sidereal/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace sidereal::cli {

namespace {

// A signal handler can reach nothing but a global. Lock-free, so safe there; no data travels with
// it, so relaxed order is enough.
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  if (g_interrupted.exchange(true, std::memory_order_relaxed)) {
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  constexpr std::string_view kText = "\nsidereal: stopping (once more to kill)\n";
  if (write(STDERR_FILENO, kText.data(), kText.size()) < 0) return;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted.load(std::memory_order_relaxed); }

}  // namespace sidereal::cli
