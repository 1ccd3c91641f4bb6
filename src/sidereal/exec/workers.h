#pragma once

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace sidereal::exec {

/// Threads that help whoever runs a step with parts of one kernel. They sleep when there is nothing
/// to do for some ten microseconds.
///
/// Lifecycle: made and destroyed by the owner of the step; no run() may be going on then.
/// Thread:    run() from one thread at a time; the helpers see nothing but the body it is given.
class Workers {
 public:
  /// Most threads that can be asked for.
  static constexpr int kThreadsMax = 256;
  /// Most parts of one run().
  static constexpr int64_t kPartsMax = (int64_t{1} << 20) - 1;

  /// `threads`, at least 1, counts the caller of run(): so many less one are started.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  /// Calls body(0), ..., body(parts - 1), each once, on the caller's thread and the helpers, with
  /// the caller's floating-point environment. Returns when all are done; throws
  /// what one of them threw. `parts` <= kPartsMax.
  void run(int64_t parts, absl::FunctionRef<void(int64_t)> body);

 private:
  using Body = absl::FunctionRef<void(int64_t)>;

  void run_all(int64_t parts, Body body);
  /// Takes parts of the run whose ticket was seen until none is left.
  void work(uint64_t ticket, bool is_helper);
  void help();

  /// Number of the run, number of parts, next part: 24, 20 and 20 bits. What a helper has taken a
  /// part of cannot end before it has done it, so body_ is that run's. Released by run(), acquired
  /// by who takes a part.
  std::atomic<uint64_t> ticket_{0};
  /// Parts done of the present run. Released by who did one, acquired by run().
  std::atomic<int64_t> done_{0};
  std::atomic<bool> stopping_{false};  ///< Released with a new ticket.
  const Body* body_ = nullptr;
  std::fenv_t environment_{};
  std::vector<std::jthread> helpers_;
};

}  // namespace sidereal::exec
