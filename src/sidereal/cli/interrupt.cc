#include "sidereal/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace sidereal::cli {

namespace {

// A signal handler can reach nothing but a global. Lock-free, so safe there; no data travels with
// it, so relaxed order is enough.
std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal, std::memory_order_relaxed)) {
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

bool interrupted() { return interrupting_signal() != 0; }

int interrupting_signal() { return g_signal.load(std::memory_order_relaxed); }

}  // namespace sidereal::cli
