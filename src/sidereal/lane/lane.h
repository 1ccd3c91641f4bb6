#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/base/function.h"
#include "sidereal/base/ref_counted.h"
#include "sidereal/base/status.h"
#include "sidereal/lane/inbox.h"
#include "sidereal/lane/spin.h"
#include "sidereal/lane/timers.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/network.h"

namespace sidereal::lane {

/// Work a lane does in every iteration, such as running the ready instructions of steps.
/// Borrowed by the lane between add_driver() and remove_driver(). Thread: core-local.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Does some work; true if there was any. A lane whose drivers all return false may sleep: what
  /// makes a driver ready again must be an I/O event, a timer or a post.
  virtual bool poll() = 0;
  /// Does what may wait until the lane has nothing else to do; true if there was any. Called at the
  /// end of an iteration that found nothing, and about every kPatience in a lane that always has
  /// something.
  virtual bool poll_idle() { return false; }
  static constexpr int64_t kPatience = 1 * sys::kMillisecond;
};

/// Receives the readiness of one watched pollable. Thread: core-local.
class IoHandler {
 public:
  virtual ~IoHandler() = default;
  virtual void on_io(const sys::Event& event) = 0;
  /// Takes what has come, if anything; false when nothing has. See Lane::came_to().
  virtual bool look() { return false; }
};

/// Gathers output over an iteration and writes it once at its end. Thread: core-local.
class Flusher {
 public:
  virtual ~Flusher() = default;
  virtual void flush() = 0;

 private:
  friend class Lane;
  bool queued_ = false;
};

/// Told when the lane ends. Thread: core-local.
class StopHook {
 public:
  virtual ~StopHook() = default;
  virtual void on_lane_stop() = 0;
};

struct LaneOptions {
  std::string name;              ///< for messages, such as "/job:ps/replica:0/task:0/lane:1"
  std::string thread_name = {};  ///< of which the system shows 15 bytes, "ps:0/1"; "": `name`
  int index = 0;                 ///< number of the lane within its task
  /// Look this long before sleeping; 0: never spin; or a constant of lane/spin.h.
  int64_t spin_us = kSpinAdaptive;
  int cpu = -1;  ///< pin the thread to this processor; -1: do not
  int64_t inbox_slots = 4096;
  sys::Network* network = nullptr;  ///< borrowed for the lane's life
  sys::Clock* clock = nullptr;      ///< borrowed for the lane's life
};

/// One thread that owns everything it touches: sockets, timers, drivers.
///
/// An iteration: sockets, due timers, inbox, drivers, flushers. When none had anything to do, nor
/// drivers anything that had waited for that, the lane keeps looking as `spin_us` says, then blocks
/// in the poller until an event, a timer or a post. The thread treats denormal floats as zero, and
/// owns the counts of what it makes (base::CountOwner).
///
/// Lifecycle: create(), then start(), then stop(). What is "on-lane only" may also be called before
/// start() by the thread that creates the lane, and after stop() has returned ok. In the place of
/// start() somebody may drive the lane: step() and next_wake(), such as a simulation in which many
/// lanes share a thread.
/// Stopping: post() refuses from then on; every function accepted before is run; stop hooks run,
/// last added first; flushers run a last time; timers are dropped unfired; the thread ends.
/// Thread: core-local, except post(), stop(), on_lane(), options(), metrics().
class Lane {
 public:
  static Result<std::unique_ptr<Lane>> create(LaneOptions options);
  /// Stops, waiting at most 30 s: a lane that does not end is a bug of what runs on it.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Starts the thread. Once.
  void start();
  /// One iteration of a lane that was not started, without waiting; true if there was something to
  /// do. After stop() it does nothing. Thread: the one that drives the lane.
  bool step();
  /// When the next step() is due if neither an event nor a post comes before: at the earliest
  /// timer, INT64_MAX without one, INT64_MIN when it is due now. From here to the next step() a
  /// post() wakes the poller. Thread: the one that drives the lane.
  int64_t next_wake();
  /// Ends the lane and waits until it has ended; from the lane itself it only asks for the end. A
  /// lane that is driven by step() ends within this, on the thread that drives it.
  /// kDeadlineExceeded naming the lane when it is stuck; then it may be called again. Any thread,
  /// one at a time.
  Status stop(int64_t timeout_ns = 10 * sys::kSecond);
  /// Runs `fn` on the lane soon, in the order posted by this thread. False, and `fn` is never run,
  /// when the inbox is full or the lane is stopping. Wakes the lane only if it sleeps. Any thread.
  [[nodiscard]] bool post(base::Function<void()> fn);
  /// True on the lane's thread, and for everybody while the lane does not run. Of lanes that are
  /// driven by step(): not for what another one does in its step.
  [[nodiscard]] bool on_lane() const;

  [[nodiscard]] const LaneOptions& options() const { return options_; }
  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] int index() const { return options_.index; }
  [[nodiscard]] sys::Network* network() const { return options_.network; }
  /// This lane's counters. Any thread may read.
  [[nodiscard]] metrics::LaneMetrics& metrics() { return metrics_; }

  /// Nanoseconds on the lane's clock, read now.
  [[nodiscard]] int64_t now() const { return options_.clock->now(); }
  /// The clock as read at the start of this iteration or poll_io().
  [[nodiscard]] int64_t loop_now() const { return loop_now_; }
  /// now(), or up to 0.1 ms before: cheaper, for what is done for every small message.
  [[nodiscard]] int64_t recent_now() { return options_.clock->recent(&recent_); }

  /// Calls `fn` once, not before `delay_ns` from now.
  TimerId run_after(int64_t delay_ns, base::Function<void()> fn);
  /// The same at a given time of now().
  TimerId run_at(int64_t deadline_ns, base::Function<void()> fn);
  /// False when it has fired or was cancelled.
  bool cancel_timer(TimerId id);

  void add_driver(Driver* driver);
  void remove_driver(Driver* driver);
  void add_stop_hook(StopHook* hook);
  void remove_stop_hook(StopHook* hook);

  /// Reports readiness of `what` to `handler` until unwatch(), which must come before `what` dies.
  Status watch(const sys::Pollable& what, IoHandler* handler, sys::Interest interest);
  Status rewatch(const sys::Pollable& what, sys::Interest interest);
  void unwatch(const sys::Pollable& what);
  /// Something has come to `handler`, which can look() for more; nullptr: to one that cannot. Where
  /// it is the same one for a while, a lane that has nothing to do and does not sleep has it look:
  /// that is a call of the system less than to ask who has something, which it does less often
  /// then. Until unwatch().
  void came_to(IoHandler* handler) {
    came_in_row_ = handler == came_to_ ? came_in_row_ + 1 : 0;
    came_to_ = handler;
  }

  /// Has flush() called at the end of this iteration; once, however often asked.
  void flush_later(Flusher* flusher);
  void cancel_flush(Flusher* flusher);

  /// One pass over sockets, due timers and flushers, without waiting; for a long step to call
  /// between its instructions. Never calls drivers or posted functions. Does nothing when called
  /// from inside an I/O handler, timer or flusher. True if there was something to do.
  bool poll_io();
  /// Runs what was posted; for a long step to call beside poll_io(), on a lane where nothing that
  /// is posted begins or ends a step. As poll_io().
  bool poll_posts();
  /// Runs the flushers that wait, without a look at sockets: what was made leaves. As poll_io().
  bool flush();

 private:
  struct Watch {
    IoHandler* handler = nullptr;
    uint32_t generation = 0;
  };
  class OnLane;

  explicit Lane(LaneOptions options);
  void run();
  void prepare_thread();
  void wake_if_asleep();
  bool iterate(bool asks = true);
  bool io_pass(int64_t timeout_ns);
  bool look_pass();
  [[nodiscard]] bool knows_who() const;
  bool fire_timers();
  bool run_inbox();
  bool run_flushers();
  bool poll_idle();
  void sleep();
  void finish();

  /// The lane whose step() this thread is in; nullptr: none.
  static constinit thread_local Lane* stepping;

  LaneOptions options_;
  std::unique_ptr<sys::Poller> poller_;
  Inbox inbox_;
  Timers timers_;
  metrics::LaneMetrics metrics_;
  std::vector<Driver*> drivers_;
  std::vector<StopHook*> stop_hooks_;
  std::vector<Watch> watches_;    // indexed by handle
  IoHandler* came_to_ = nullptr;  // last
  int64_t came_in_row_ = 0;
  std::vector<Flusher*> flushers_;
  std::vector<Flusher*> flushing_;
  std::vector<sys::Event> events_;
  std::optional<base::CountOwner> counts_;  // While the thread runs.
  int64_t loop_now_ = 0;
  int64_t last_idle_ = 0;  // When drivers last did what may wait.
  sys::Clock::Reading recent_;
  bool in_io_ = false;

  // Pairs with the inbox's tail: either the poster sees the sleeper or the sleeper the post.
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stopping_{false};                        // set by stop(), read by the loop
  bool stepped_ = false;                                     // driven by step()
  std::atomic<std::thread::id> running_{std::thread::id{}};  // set while the thread runs
  std::promise<void> ended_promise_;
  std::shared_future<void> ended_;
  std::thread thread_;
};

}  // namespace sidereal::lane
