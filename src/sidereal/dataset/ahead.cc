#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/dataset/internal/stage.h"

namespace sidereal::dataset {
namespace {

/// Elements read ahead where nobody says how many, and at most.
constexpr int64_t kAheadDefault = 8;
constexpr int64_t kAheadMax = 100'000;
/// How long next() waits before it looks for an interrupt.
constexpr std::chrono::milliseconds kLook{100};
/// A thread takes more items at once while they keep it busy for less.
constexpr std::chrono::microseconds kWorthwhile{100};
constexpr size_t kAtOnceMax = 64;

/// What the input gave.
struct Item {
  Element element;
  Status status;
};

/// A stage with threads, which read the input and do something with each element; results come out
/// in the order of the input. Threads begin with the first next(), wait while `capacity` results
/// are there, and end with the stage.
class Threaded : public Stage, public Sleeper {
 public:
  struct Sizes {
    size_t threads;
    size_t capacity;
    size_t at_once_max;  ///< Items that a thread may take at once, which count as one result.
  };
  Threaded(const DatasetPtr& dataset, StagePtr input, Sizes sizes, Runtime* runtime,
           std::function<void()> tell = nullptr)
      : Stage(dataset, runtime),
        input_(std::move(input)),
        count_(sizes.threads),
        capacity_(sizes.capacity),
        at_once_max_(sizes.at_once_max),
        tell_(std::move(tell)) {
    runtime->add(this);
  }

  void wake() final {
    const std::lock_guard lock(mutex_);
    notify_all();
  }

  Result<bool> next(Element* out) final {
    out->clear();
    std::unique_lock lock(mutex_);
    if (threads_.empty()) SR_RETURN_IF_ERROR(start());
    const auto is_there = [&] {
      return runtime().stopped() || (slots_.empty() ? ended_ && !reading_ : slots_.front()->done);
    };
    while (!done_.wait_for(lock, kLook, is_there)) {
      if (!runtime().options().interrupted) continue;
      lock.unlock();
      if (runtime().options().interrupted()) return base::cancelled("interrupted while waiting");
      lock.lock();
    }
    if (runtime().stopped()) return base::cancelled("the iterator was ended");
    if (slots_.empty()) return false;
    SR_RETURN_IF_ERROR(take(&lock, out));
    return true;
  }

  Result<Poll> poll(Element* out) final {
    out->clear();
    std::unique_lock lock(mutex_);
    if (threads_.empty()) SR_RETURN_IF_ERROR(start());
    if (runtime().stopped()) return base::cancelled("the iterator was ended");
    if (slots_.empty()) return ended_ && !reading_ ? Poll::kEnd : Poll::kNotYet;
    if (!slots_.front()->done) return Poll::kNotYet;
    SR_RETURN_IF_ERROR(take(&lock, out));
    return Poll::kElement;
  }

  Status save(PositionWriter* out) final {
    std::unique_lock lock(mutex_);
    paused_ = true;
    done_.wait(lock, [&] { return !reading_ && working_ == 0; });
    out->put(ended_);
    uint32_t count = 0;
    for (const std::shared_ptr<Slot>& slot : slots_) {
      count += static_cast<uint32_t>(slot->items.size());
    }
    out->put(count);
    for (const std::shared_ptr<Slot>& slot : slots_) {
      for (const Item& item : slot->items) {
        out->put(item.status.ok());
        if (item.status.ok()) {
          out->put(item.element);
        } else {
          out->put(item.status);
        }
      }
    }
    save_more(out);
    // It may wait for threads of its own, and is nobody else's as long as this one is paused.
    lock.unlock();
    Status status = input_->save(out);
    lock.lock();
    paused_ = false;
    may_read_.notify_all();
    return status;
  }

  Status restore(PositionReader* in) final {
    uint32_t count = 0;
    SR_RETURN_IF_ERROR(in->get(&ended_));
    SR_RETURN_IF_ERROR(in->get_count(&count, 1));
    auto slot = std::make_shared<Slot>();
    for (uint32_t i = 0; i < count; ++i) {
      Item& item = slot->items.emplace_back();
      bool is_ok = false;
      SR_RETURN_IF_ERROR(in->get(&is_ok));
      SR_RETURN_IF_ERROR(is_ok ? in->get(&item.element, specs()) : in->get(&item.status));
    }
    slot->done = true;
    if (count > 0) slots_.push_back(std::move(slot));
    SR_RETURN_IF_ERROR(restore_more(in));
    return input_->restore(in);
  }

 protected:
  /// Takes numbers for the elements just read; the first. Called in the order of the input.
  virtual uint64_t numbers(size_t /*count*/) { return 0; }
  /// Makes what comes out of what came in. Thread: several at once.
  virtual Status work(Item* item, uint64_t number) = 0;
  virtual void save_more(PositionWriter* /*out*/) {}
  virtual Status restore_more(PositionReader* /*in*/) { return {}; }

  /// Must be called first in the destructor of what is derived.
  void join() {
    runtime().remove(this);
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    runtime().give_back_threads(threads_.size());
    threads_.clear();
  }

 private:
  /// Items that one thread has read, one after another.
  struct Slot {
    std::deque<Item> items;
    bool done = false;
  };

  /// The first item of the first slot, which is done.
  Status take(std::unique_lock<std::mutex>* lock, Element* out) {
    Item item = std::move(slots_.front()->items.front());
    slots_.front()->items.pop_front();
    if (!slots_.front()->items.empty()) {
      lock->unlock();
      SR_RETURN_IF_ERROR(item.status);
      *out = std::move(item.element);
      return {};
    }
    slots_.pop_front();
    // Not for each one: a thread that wakes up should find something to do for a while.
    if (slots_.size() <= capacity_ / 2) may_read_.notify_one();
    if (!slots_.empty() && slots_.front()->done) done_.notify_one();  // Another consumer.
    lock->unlock();
    SR_RETURN_IF_ERROR(item.status);
    *out = std::move(item.element);
    return {};
  }

  void notify_all() {
    may_read_.notify_all();
    done_.notify_all();
  }

  /// Starts threads, fewer where there may not be as many; kResourceExhausted when there is none.
  Status start() {
    const size_t may = runtime().take_threads(count_);
    try {
      for (size_t i = 0; i < may; ++i) threads_.emplace_back([this] { run(); });
      // NOLINTNEXTLINE(bugprone-empty-catch): as many as there are will do.
    } catch (const std::system_error&) {
    }
    runtime().give_back_threads(may - threads_.size());
    if (!threads_.empty()) return {};
    return base::resource_exhausted(
        "{}: there are no threads left: {} of this iterator are running, or the machine has none; "
        "use fewer parallel maps and prefetches",
        dataset().op(), Runtime::kThreadsMax);
  }

  [[nodiscard]] bool may_read() const {
    return !paused_ && !ended_ && !reading_ && slots_.size() < capacity_;
  }

  /// Reads up to `wanted` items, until an error; false at the end of the input.
  bool read(Slot* slot, size_t wanted) {
    while (slot->items.size() < wanted) {
      Item& item = slot->items.emplace_back();
      const Result<bool> some = with_memory([&] { return input_->next(&item.element); });
      item.status = some.status();
      if (!some.ok()) return true;
      if (*some) continue;
      slot->items.pop_back();
      return false;
    }
    return true;
  }

  void work_on(Slot* slot, uint64_t number) {
    for (Item& item : slot->items) {
      if (item.status.ok()) item.status = with_memory([&] { return work(&item, number); });
      ++number;
    }
  }

  /// Threads that do little for an item take several at once: handing over costs more then.
  void adapt(size_t wanted, std::chrono::nanoseconds took) {
    if (at_once_ != wanted) return;  // Another thread has seen it too.
    if (took < kWorthwhile && wanted < at_once_max_) at_once_ = wanted * 2;
    if (took > 2 * kWorthwhile && wanted > 1) at_once_ = wanted / 2;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      may_read_.wait(lock, [&] { return stopped_ || runtime().stopped() || ended_ || may_read(); });
      if (stopped_ || runtime().stopped() || ended_) return;
      reading_ = true;
      const size_t wanted = at_once_;
      lock.unlock();
      const auto began = std::chrono::steady_clock::now();
      auto slot = std::make_shared<Slot>();
      const bool ended = !read(slot.get(), wanted);
      lock.lock();
      reading_ = false;
      ended_ = ended;
      if (slot->items.empty()) {
        notify_all();
        lock.unlock();
        if (tell_) tell_();
        return;
      }
      slots_.push_back(slot);
      const uint64_t first = numbers(slot->items.size());
      ++working_;
      if (may_read()) may_read_.notify_one();  // Another thread.
      lock.unlock();
      work_on(slot.get(), first);
      const auto took = std::chrono::steady_clock::now() - began;
      lock.lock();
      --working_;
      adapt(wanted, took);
      slot->done = true;
      if (paused_ || ended_ || slots_.empty() || slots_.front() == slot) done_.notify_all();
      if (ended_) may_read_.notify_all();
      if (!tell_) continue;
      lock.unlock();
      tell_();
      lock.lock();
    }
  }

  StagePtr input_;  // Used by one thread at a time: the one that has set reading_.
  const size_t count_;
  const size_t capacity_;
  const size_t at_once_max_;
  const std::function<void()> tell_;
  std::mutex mutex_;
  std::condition_variable may_read_;  // Or the stage ends.
  std::condition_variable done_;      // The first item, or what save() waits for.
  // All guarded by mutex_.
  std::deque<std::shared_ptr<Slot>> slots_;
  size_t at_once_ = 1;  // Items that a thread takes.
  bool ended_ = false;
  bool reading_ = false;
  bool paused_ = false;
  bool stopped_ = false;
  int working_ = 0;
  std::vector<std::thread> threads_;
};

class Ahead final : public Threaded {
 public:
  Ahead(const DatasetPtr& dataset, StagePtr input, size_t capacity, Runtime* runtime,
        std::function<void()> tell)
      : Threaded(dataset, std::move(input), {1, capacity, 1}, runtime, std::move(tell)) {}
  ~Ahead() override { join(); }

 private:
  Status work(Item* /*item*/, uint64_t /*number*/) override { return {}; }
};

class ParallelMap final : public Threaded {
 public:
  ParallelMap(const DatasetPtr& dataset, StagePtr input, size_t threads, Runtime* runtime)
      : Threaded(dataset, std::move(input), {threads, 2 * threads, kAtOnceMax}, runtime),
        next_(first_step(new_iteration())) {}
  ~ParallelMap() override { join(); }

 private:
  uint64_t numbers(size_t count) override { return std::exchange(next_, next_ + count); }
  Status work(Item* item, uint64_t number) override {
    SR_ASSIGN_OR_RETURN(std::vector<Tensor> values,
                        runtime().call(dataset(), item->element, number));
    item->element = element_of(std::move(values));
    return {};
  }
  void save_more(PositionWriter* out) override {
    save_iterations(out);
    out->put(next_);
  }
  Status restore_more(PositionReader* in) override {
    SR_RETURN_IF_ERROR(restore_iterations(in));
    return in->get(&next_);
  }

  uint64_t next_;
};

}  // namespace

StagePtr make_ahead(const DatasetPtr& dataset, StagePtr input, int64_t capacity, Runtime* runtime,
                    std::function<void()> changed) {
  const int64_t ahead = capacity < 0 ? kAheadDefault : std::clamp<int64_t>(capacity, 1, kAheadMax);
  return std::make_unique<Ahead>(dataset, std::move(input), static_cast<size_t>(ahead), runtime,
                                 std::move(changed));
}

StagePtr make_parallel_map(const DatasetPtr& dataset, StagePtr input, int threads,
                           Runtime* runtime) {
  return std::make_unique<ParallelMap>(dataset, std::move(input), static_cast<size_t>(threads),
                                       runtime);
}

}  // namespace sidereal::dataset
