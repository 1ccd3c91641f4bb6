#include "sidereal/lane/lane.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/log.h"

namespace sidereal::lane {
namespace {

/// What has been read is worked on before more is: a few messages stay in the caches, those of a
/// thousand connections do not.
constexpr size_t kEventsPerPass = 8;
constexpr int kPostsPerPass = 256;
/// Who got something that often in a row is likely to be the next one.
constexpr int kSameInRow = 1000;
/// Looks of that one in an iteration, and iterations for each that asks about all.
constexpr int kLooksPerPass = 4;
constexpr int kPassesPerAsk = 4;
constexpr int64_t kDestroyTimeout = 30 * sys::kSecond;

uint64_t token_of(int handle, uint32_t generation) {
  return (uint64_t{generation} << 32) | static_cast<uint32_t>(handle);
}

}  // namespace

constinit thread_local Lane* Lane::stepping = nullptr;

/// While it lives this thread is that of a lane which it drives.
class Lane::OnLane {
 public:
  explicit OnLane(Lane* lane) : before_(std::exchange(stepping, lane)) {}
  ~OnLane() { stepping = before_; }
  OnLane(const OnLane&) = delete;
  OnLane& operator=(const OnLane&) = delete;

 private:
  Lane* const before_;
};

Result<std::unique_ptr<Lane>> Lane::create(LaneOptions options) {
  SR_CHECK(options.network != nullptr);
  SR_CHECK(options.clock != nullptr);
  if (options.inbox_slots < 2) {
    return base::invalid_argument("lane '{}' has inbox_slots = {}; it must be at least 2",
                                  options.name, options.inbox_slots);
  }
  std::unique_ptr<Lane> lane(new Lane(std::move(options)));
  SR_ASSIGN_OR_RETURN(lane->poller_, lane->options_.network->create_poller());
  return lane;
}

Lane::Lane(LaneOptions options)
    : options_(std::move(options)),
      inbox_(static_cast<size_t>(options_.inbox_slots)),
      events_(kEventsPerPass),
      loop_now_(options_.clock->now()),
      last_idle_(loop_now_),
      ended_(ended_promise_.get_future().share()) {}

Lane::~Lane() {
  const Status stopped = stop(kDestroyTimeout);
  SR_CHECK(stopped.ok(), "{}", base::message_of(stopped));
}

void Lane::start() {
  SR_CHECK(!thread_.joinable(), "lane '{}' was started twice", name());
  std::promise<void> running;
  std::future<void> is_running = running.get_future();
  thread_ = std::thread([this, &running] {
    running_.store(std::this_thread::get_id(), std::memory_order_release);
    running.set_value();
    run();
  });
  is_running.wait();
}

Status Lane::stop(int64_t timeout_ns) {
  inbox_.close();
  stopping_.store(true, std::memory_order_seq_cst);
  if (!thread_.joinable()) {
    if (std::exchange(stepped_, false)) {
      const OnLane on_lane(this);
      finish();
    }
    return {};
  }
  poller_->wake();
  if (running_.load(std::memory_order_acquire) == std::this_thread::get_id()) return {};
  if (ended_.wait_for(std::chrono::nanoseconds(timeout_ns)) != std::future_status::ready) {
    return base::deadline_exceeded(
        "lane '{}' did not end within {:.1f} s: something on it still runs", name(),
        static_cast<double>(timeout_ns) / 1e9);
  }
  thread_.join();
  return {};
}

bool Lane::post(base::Function<void()> fn) {
  if (!inbox_.push(fn)) return false;
  wake_if_asleep();
  return true;
}

// What is to be seen was changed seq_cst, and next_wake() reads it seq_cst after saying that the
// lane sleeps: either this sees the sleeper, or the sleeper sees what is new.
void Lane::wake_if_asleep() {
  if (sleeping_.load(std::memory_order_seq_cst)) poller_->wake();
}

bool Lane::on_lane() const {
  const std::thread::id runs = running_.load(std::memory_order_acquire);
  if (runs == std::this_thread::get_id()) return true;
  return runs == std::thread::id() && (stepping == nullptr || stepping == this);
}

TimerId Lane::run_after(int64_t delay_ns, base::Function<void()> fn) {
  return run_at(now() + std::max<int64_t>(delay_ns, 0), std::move(fn));
}

TimerId Lane::run_at(int64_t deadline_ns, base::Function<void()> fn) {
  SR_DCHECK(on_lane());
  return timers_.add(deadline_ns, std::move(fn));
}

bool Lane::cancel_timer(TimerId id) {
  SR_DCHECK(on_lane());
  return timers_.cancel(id);
}

void Lane::add_driver(Driver* driver) {
  SR_DCHECK(on_lane());
  drivers_.push_back(driver);
}

void Lane::remove_driver(Driver* driver) {
  SR_DCHECK(on_lane());
  // Only emptied here: the loop may be walking over the list.
  std::replace(drivers_.begin(), drivers_.end(), driver, static_cast<Driver*>(nullptr));
}

void Lane::add_stop_hook(StopHook* hook) {
  SR_DCHECK(on_lane());
  stop_hooks_.push_back(hook);
}

void Lane::remove_stop_hook(StopHook* hook) {
  SR_DCHECK(on_lane());
  std::erase(stop_hooks_, hook);
}

Status Lane::watch(const sys::Pollable& what, IoHandler* handler, sys::Interest interest) {
  SR_DCHECK(on_lane());
  const auto at = static_cast<size_t>(what.handle());
  if (watches_.size() <= at) watches_.resize(at + 1);
  SR_CHECK(watches_[at].handler == nullptr, "handle {} is watched twice", at);
  SR_RETURN_IF_ERROR(
      poller_->add(what, token_of(what.handle(), watches_[at].generation), interest));
  watches_[at].handler = handler;
  return {};
}

Status Lane::rewatch(const sys::Pollable& what, sys::Interest interest) {
  SR_DCHECK(on_lane());
  const Watch& watch = watches_[static_cast<size_t>(what.handle())];
  return poller_->update(what, token_of(what.handle(), watch.generation), interest);
}

void Lane::unwatch(const sys::Pollable& what) {
  SR_DCHECK(on_lane());
  const auto at = static_cast<size_t>(what.handle());
  if (at >= watches_.size() || watches_[at].handler == nullptr) return;
  if (came_to_ == watches_[at].handler) came_to(nullptr);
  poller_->remove(what);
  watches_[at].handler = nullptr;
  // An event of this pollable may already be in hand; the new generation makes it stale.
  ++watches_[at].generation;
}

void Lane::flush_later(Flusher* flusher) {
  SR_DCHECK(on_lane());
  if (flusher->queued_) return;
  flusher->queued_ = true;
  flushers_.push_back(flusher);
}

void Lane::cancel_flush(Flusher* flusher) {
  SR_DCHECK(on_lane());
  flusher->queued_ = false;
  std::replace(flushers_.begin(), flushers_.end(), flusher, static_cast<Flusher*>(nullptr));
  std::replace(flushing_.begin(), flushing_.end(), flusher, static_cast<Flusher*>(nullptr));
}

bool Lane::run_flushers() {
  if (flushers_.empty()) return false;
  flushing_.swap(flushers_);
  for (size_t i = 0; i < flushing_.size(); ++i) {
    Flusher* flusher = flushing_[i];
    if (flusher == nullptr) continue;
    flusher->queued_ = false;
    flusher->flush();
  }
  flushing_.clear();
  return true;
}

bool Lane::io_pass(int64_t timeout_ns) {
  const size_t n = poller_->wait(events_, timeout_ns);
  loop_now_ = now();
  in_io_ = true;
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<uint32_t>(events_[i].token);
    const auto generation = static_cast<uint32_t>(events_[i].token >> 32);
    const Watch& watch = watches_[at];
    if (watch.handler == nullptr || watch.generation != generation) continue;
    watch.handler->on_io(events_[i]);
  }
  const bool fired = fire_timers();
  in_io_ = false;
  return n > 0 || fired;
}

bool Lane::knows_who() const { return came_to_ != nullptr && came_in_row_ >= kSameInRow; }

/// As io_pass(0), but only the one that is known to be likely looks.
bool Lane::look_pass() {
  loop_now_ = now();
  in_io_ = true;
  bool came = false;
  for (int i = 0; i < kLooksPerPass && !came && knows_who(); ++i) came = came_to_->look();
  const bool fired = fire_timers();
  in_io_ = false;
  return came || fired;
}

bool Lane::fire_timers() {
  const int fired = timers_.fire(loop_now_);
  metrics_.timers.add(fired);
  return fired > 0;
}

bool Lane::flush() {
  SR_DCHECK(on_lane());
  if (in_io_) return false;
  in_io_ = true;
  const bool progress = run_flushers();
  in_io_ = false;
  return progress;
}

bool Lane::poll_io() {
  SR_DCHECK(on_lane());
  if (in_io_) return false;
  bool progress = flush();
  progress |= io_pass(0);
  progress |= flush();
  return progress;
}

bool Lane::poll_posts() {
  SR_DCHECK(on_lane());
  return !in_io_ && run_inbox();
}

bool Lane::run_inbox() {
  base::Function<void()> fn;
  int count = 0;
  while (count < kPostsPerPass && inbox_.pop(&fn)) {
    fn();
    ++count;
  }
  metrics_.posts.add(count);
  return count > 0;
}

bool Lane::iterate(bool asks) {
  metrics_.loops.add();
  if (counts_) counts_->settle();
  bool progress = asks || !knows_who() ? io_pass(0) : look_pass();
  progress |= run_inbox();
  bool holes = false;
  for (size_t i = 0; i < drivers_.size(); ++i) {
    if (drivers_[i] != nullptr) {
      progress |= drivers_[i]->poll();
    } else {
      holes = true;
    }
  }
  if (holes) std::erase(drivers_, nullptr);
  if (!progress || loop_now_ - last_idle_ >= Driver::kPatience) progress |= poll_idle();
  progress |= flush();
  return progress;
}

bool Lane::poll_idle() {
  last_idle_ = loop_now_;
  bool progress = false;
  for (size_t i = 0; i < drivers_.size(); ++i) {
    if (drivers_[i] != nullptr) progress |= drivers_[i]->poll_idle();
  }
  return progress;
}

bool Lane::step() {
  if (stopping_.load(std::memory_order_acquire)) return false;
  stepped_ = true;
  sleeping_.store(false, std::memory_order_relaxed);
  const OnLane on_lane(this);
  return iterate();
}

int64_t Lane::next_wake() {
  sleeping_.store(true, std::memory_order_seq_cst);  // before empty(); see wake_if_asleep()
  if (!inbox_.empty() || stopping_.load(std::memory_order_relaxed)) return INT64_MIN;
  if (counts_ && counts_->has_left_over()) return INT64_MIN;
  return timers_.next_deadline();
}

void Lane::sleep() {
  const int64_t wake = next_wake();
  if (wake != INT64_MIN) {
    const int64_t wait = wake == INT64_MAX ? -1 : std::max<int64_t>(0, wake - now());
    // Readiness is only looked at here; the next iteration handles it.
    std::array<sys::Event, 1> ready;
    (void)poller_->wait(ready, wait);
  }
  sleeping_.store(false, std::memory_order_relaxed);
}

void Lane::run() {
  prepare_thread();
  counts_.emplace([this] { wake_if_asleep(); });
  Spin spin(options_.spin_us);
  int64_t from = now();
  bool idle = false;
  int64_t idle_since = 0;
  int64_t look = 0;  // How long to go on looking, from idle_since.
  int passes = 0;    // From idle_since.
  while (!stopping_.load(std::memory_order_acquire)) {
    const bool progress = iterate(!idle || ++passes % kPassesPerAsk == 0);
    const int64_t to = now();
    if (progress) {
      metrics_.busy_ns.add(to - from);
      if (idle) spin.found(from - idle_since);
      idle = false;
      from = to;
      continue;
    }
    metrics_.spin_ns.add(to - from);
    if (!idle) {
      idle = true;
      passes = 0;
      idle_since = from;
      look = spin.begin(from);
    } else {
      spin.passed(to - from);
    }
    if (to - idle_since >= look) {
      if (look > 0) spin.gave_up(to - idle_since);
      sleep();
      idle = false;
      from = now();
      metrics_.sleep_ns.add(from - to);
      continue;
    }
    _mm_pause();
    from = to;
  }
  finish();
  counts_.reset();
  running_.store(std::thread::id(), std::memory_order_release);
  ended_promise_.set_value();
}

void Lane::finish() {
  // A producer that had taken its place before the close may still be filling it: that takes it a
  // few instructions, so looking again is enough.
  while (!inbox_.empty()) {
    if (!run_inbox()) std::this_thread::yield();
  }
  while (!stop_hooks_.empty()) {
    StopHook* hook = stop_hooks_.back();
    stop_hooks_.pop_back();
    hook->on_lane_stop();
  }
  in_io_ = true;
  while (run_flushers()) {
  }
  in_io_ = false;
  timers_.clear();
}

void Lane::prepare_thread() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  // Denormals-are-zero is bit 6 of MXCSR.
  _mm_setcsr(_mm_getcsr() | 0x40);
  const std::string& shown_name = options_.thread_name.empty() ? name() : options_.thread_name;
  const std::string shown = shown_name.substr(0, 15);  // the kernel's limit
  pthread_setname_np(pthread_self(), shown.c_str());
  if (options_.cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(options_.cpu) % CPU_SETSIZE, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
      base::log_warning("lane_not_pinned lane={} cpu={}", name(), options_.cpu);
    }
  }
}

}  // namespace sidereal::lane
