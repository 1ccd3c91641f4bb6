#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
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
  Threaded(const DatasetPtr& dataset, StagePtr input, size_t threads, size_t capacity,
           Runtime* runtime, std::function<void()> tell = nullptr)
      : Stage(dataset, runtime),
        input_(std::move(input)),
        count_(threads),
        capacity_(capacity),
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
    if (threads_.empty()) start();
    const auto is_there = [&] {
      return runtime().stopped() || (items_.empty() ? ended_ && !reading_ : items_.front()->done);
    };
    while (!done_.wait_for(lock, kLook, is_there)) {
      if (!runtime().options().interrupted) continue;
      lock.unlock();
      if (runtime().options().interrupted()) return base::cancelled("interrupted while waiting");
      lock.lock();
    }
    if (runtime().stopped()) return base::cancelled("the iterator was ended");
    if (items_.empty()) return false;
    SR_RETURN_IF_ERROR(take(&lock, out));
    return true;
  }

  Result<Poll> poll(Element* out) final {
    out->clear();
    std::unique_lock lock(mutex_);
    if (threads_.empty()) start();
    if (runtime().stopped()) return base::cancelled("the iterator was ended");
    if (items_.empty()) return ended_ && !reading_ ? Poll::kEnd : Poll::kNotYet;
    if (!items_.front()->done) return Poll::kNotYet;
    SR_RETURN_IF_ERROR(take(&lock, out));
    return Poll::kElement;
  }

  Status save(PositionWriter* out) final {
    std::unique_lock lock(mutex_);
    paused_ = true;
    done_.wait(lock, [&] { return !reading_ && working_ == 0; });
    out->put(static_cast<uint8_t>(ended_));
    out->put(static_cast<uint32_t>(items_.size()));
    for (const std::shared_ptr<Slot>& slot : items_) {
      const Item& item = slot->item;
      out->put(static_cast<uint8_t>(item.status.ok()));
      if (item.status.ok()) {
        out->put(item.element);
      } else {
        out->put(item.status);
      }
    }
    save_more(out);
    const Status status = input_->save(out);
    paused_ = false;
    may_read_.notify_all();
    return status;
  }

  Status restore(PositionReader* in) final {
    uint8_t ended = 0;
    uint32_t count = 0;
    SR_RETURN_IF_ERROR(in->get(&ended));
    SR_RETURN_IF_ERROR(in->get_count(&count, 1));
    ended_ = ended != 0;
    for (uint32_t i = 0; i < count; ++i) {
      auto slot = std::make_shared<Slot>();
      uint8_t ok = 0;
      SR_RETURN_IF_ERROR(in->get(&ok));
      SR_RETURN_IF_ERROR(ok != 0 ? in->get(&slot->item.element, specs())
                                 : in->get(&slot->item.status));
      slot->done = true;
      items_.push_back(std::move(slot));
    }
    SR_RETURN_IF_ERROR(restore_more(in));
    return input_->restore(in);
  }

 protected:
  /// Takes a number for the element just read. Called in the order of the input.
  virtual uint64_t number() { return 0; }
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
    threads_.clear();
  }

 private:
  struct Slot {
    Item item;
    bool done = false;
  };

  /// The first item, which is done.
  Status take(std::unique_lock<std::mutex>* lock, Element* out) {
    const std::shared_ptr<Slot> slot = std::move(items_.front());
    items_.pop_front();
    // Not for each one: a thread that wakes up should find something to do for a while.
    if (items_.size() <= capacity_ / 2) may_read_.notify_one();
    if (!items_.empty() && items_.front()->done) done_.notify_one();  // Another consumer.
    lock->unlock();
    SR_RETURN_IF_ERROR(slot->item.status);
    *out = std::move(slot->item.element);
    return {};
  }

  void notify_all() {
    may_read_.notify_all();
    done_.notify_all();
  }

  void start() {
    for (size_t i = 0; i < count_; ++i) threads_.emplace_back([this] { run(); });
  }

  [[nodiscard]] bool may_read() const {
    return !paused_ && !ended_ && !reading_ && items_.size() < capacity_;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      may_read_.wait(lock, [&] { return stopped_ || runtime().stopped() || ended_ || may_read(); });
      if (stopped_ || runtime().stopped() || ended_) return;
      reading_ = true;
      lock.unlock();
      auto slot = std::make_shared<Slot>();
      const Result<bool> some = with_memory([&] { return input_->next(&slot->item.element); });
      lock.lock();
      reading_ = false;
      if (some.ok() && !*some) {
        ended_ = true;
        notify_all();
        lock.unlock();
        if (tell_) tell_();
        return;
      }
      items_.push_back(slot);
      if (some.ok()) {
        const uint64_t of = number();
        ++working_;
        if (may_read()) may_read_.notify_one();  // Another thread.
        lock.unlock();
        slot->item.status = with_memory([&] { return work(&slot->item, of); });
        lock.lock();
        --working_;
      } else {
        slot->item.status = some.status();
      }
      slot->done = true;
      if (paused_ || items_.empty() || items_.front() == slot) done_.notify_all();
      if (!tell_) continue;
      lock.unlock();
      tell_();
      lock.lock();
    }
  }

  StagePtr input_;  // Used by one thread at a time: the one that has set reading_.
  const size_t count_;
  const size_t capacity_;
  const std::function<void()> tell_;
  std::mutex mutex_;
  std::condition_variable may_read_;  // Or the stage ends.
  std::condition_variable done_;      // The first item, or what save() waits for.
  // All guarded by mutex_.
  std::deque<std::shared_ptr<Slot>> items_;
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
      : Threaded(dataset, std::move(input), 1, capacity, runtime, std::move(tell)) {}
  ~Ahead() override { join(); }

 private:
  Status work(Item* /*item*/, uint64_t /*number*/) override { return {}; }
};

class ParallelMap final : public Threaded {
 public:
  ParallelMap(const DatasetPtr& dataset, StagePtr input, size_t threads, Runtime* runtime)
      : Threaded(dataset, std::move(input), threads, 2 * threads, runtime),
        next_(first_step(new_iteration())) {}
  ~ParallelMap() override { join(); }

 private:
  uint64_t number() override { return next_++; }
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
