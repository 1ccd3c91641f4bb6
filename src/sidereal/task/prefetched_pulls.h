#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/exec/buffer_pool.h"
#include "sidereal/lane/lane.h"
#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/program/program.h"
#include "sidereal/task/task.h"

/// Calls that are sent before the step that is going to make them.
namespace sidereal::task {

/// A call of a program that may be prefetched, and what its answer is. Value type.
struct PrefetchedCall {
  int number = 0;        ///< Among program::all_calls().
  uint64_t program = 0;  ///< That runs there.
  std::string task;
  int lane = 0;
  std::vector<program::SlotInfo> fetches;
};
using PrefetchedCalls = std::vector<PrefetchedCall>;
/// Those of a program; nullptr when there are none, or when nobody knows how large their answers
/// are, or these are larger than is kept.
std::shared_ptr<const PrefetchedCalls> prefetched_calls(const program::Program& program);

/// kInvalidArgument for what SessionOptions::pull_prefetch_ms cannot be.
Status check_pull_prefetch(int64_t ms);

/// Those of one lane: for the next step of each session that runs one program again and again, at
/// most one of each call. Answers are kept until that step begins, and not longer than the session
/// says. Whatever else the session does first, they are thrown away, and the step asks as if
/// nothing had been sent: so it sees all that its own session has done before. Failures are
/// nobody's: the step asks again.
/// Thread: the lane, but figures.
class PrefetchedPulls {
 public:
  /// Runs a function on the lane, not from within; false when the lane is stopping.
  using Post = std::function<bool(std::function<void()>)>;

  /// All are borrowed; `peers` can run programs.
  PrefetchedPulls(Peers* peers, lane::Lane* lane, exec::BufferPool* pool, Post post);
  ~PrefetchedPulls();
  PrefetchedPulls(const PrefetchedPulls&) = delete;
  PrefetchedPulls& operator=(const PrefetchedPulls&) = delete;

  /// One that was taken: its answer has come, or comes as that of any run.
  class Pull : public Peers::Run {
   public:
    /// nullptr while it is under way.
    virtual std::vector<tensor::Tensor>* answer() = 0;
    /// Who gets its end; when the answer is not here. If it fails, it is asked again first.
    virtual void give(Peers::RunDone* receiver) = 0;
  };

  /// A step of `session` that runs `program` begins; it uses nothing older than `limit_ms`.
  void begin(uint64_t session, uint64_t program, int64_t limit_ms);
  /// That step has ended, and all it sent is on its way. `calls`, if any, are sent for the next
  /// one; nullptr when it failed.
  void end(uint64_t session, const std::shared_ptr<const PrefetchedCalls>& calls, int64_t limit_ms);
  /// Call `number` of a step that has begun, if it was sent; else nullptr.
  std::shared_ptr<Pull> take(uint64_t session, int number);

  /// The task is not reached any more: what was asked there for a session is of no use.
  void lose(uint64_t session, const std::string& task);
  /// Throws away what a session has; the next steps send again.
  void throw_away(uint64_t session);
  /// That of all sessions.
  void throw_all_away();
  /// The session is being closed.
  void forget(uint64_t session);

  /// What it sent and threw away. Any thread.
  [[nodiscard]] const metrics::Figures& figures() const { return figures_; }
  [[nodiscard]] int64_t sent() const { return sent_.value(); }
  [[nodiscard]] int64_t thrown_away() const { return thrown_away_.value(); }

  /// What the answers for one session take at most.
  static constexpr size_t kBytesMax = size_t{256} << 20;
  /// Steps that are not asked for ahead, at most, after some were thrown away.
  static constexpr int kPauseMax = 63;

 private:
  class Sent;
  struct Session {
    uint64_t program = 0;  ///< Of the last step.
    int running = 0;       ///< Steps.
    bool repeats = false;  ///< The last step was of the same program as the one before it.
    int pause = 0;         ///< Steps for which nothing is sent.
    int last_pause = 0;    ///< 0: what was sent last was used.
    int64_t sent_ns = 0;
    lane::TimerId timer = {};
    std::vector<std::shared_ptr<Sent>> sent = {};
  };
  void throw_away(Session* session);
  void stop_timer(Session* session);

  Peers* const peers_;
  lane::Lane* const lane_;
  exec::BufferPool* const pool_;
  const Post post_;
  absl::flat_hash_map<uint64_t, Session> sessions_;
  metrics::Figures figures_;
  metrics::Counter sent_{
      &figures_, metrics::counter("sidereal_task_prefetched_pulls_total", metrics::Unit::kCount,
                                  "Calls sent before the steps that make them began.")};
  metrics::Counter thrown_away_{
      &figures_, metrics::counter("sidereal_task_prefetched_pulls_unused_total",
                                  metrics::Unit::kCount, "Prefetched calls that no step used.")};
};

}  // namespace sidereal::task
