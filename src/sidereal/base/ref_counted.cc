#include "sidereal/base/ref_counted.h"

#include "sidereal/base/check.h"

namespace sidereal::base {

/// Where others leave what the owner is to look at: a stack of which the owner takes all at once.
struct CountOwner::Desk {
  std::atomic<RefCounted*> first = nullptr;
  std::mutex mutex;
  std::function<void()> wake;  ///< Guarded by `mutex`.
  Desk* next = nullptr;        ///< Of all there ever were: none is out of reach, which were a leak.
};

CountOwner::Desk CountOwner::nobody_;

namespace {

/// Stands first on the desk of an owner that has gone.
RefCounted* gone() {
  static char place;
  return reinterpret_cast<RefCounted*>(&place);
}

}  // namespace

CountOwner::CountOwner(std::function<void()> wake) : desk_(new Desk) {
  SR_CHECK(desk_of_this_thread == &nobody_, "a thread has two owners of counts");
  desk_->wake = std::move(wake);
  static std::atomic<Desk*> all = nullptr;
  desk_->next = all.load(std::memory_order_relaxed);
  while (!all.compare_exchange_weak(desk_->next, desk_, std::memory_order_release,
                                    std::memory_order_relaxed)) {
  }
  desk_of_this_thread = desk_;
}

CountOwner::~CountOwner() {
  settle();
  desk_of_this_thread = &nobody_;
  // What others let go of from here on they settle themselves: nothing is counted here any more.
  take_all(gone());
  const std::lock_guard lock(desk_->mutex);
  desk_->wake = nullptr;
}

bool CountOwner::has_left_over() const {
  return desk_->first.load(std::memory_order_seq_cst) != nullptr;
}

void CountOwner::settle() {
  if (desk_->first.load(std::memory_order_relaxed) != nullptr) take_all(nullptr);
}

void CountOwner::take_all(RefCounted* leave) {
  RefCounted* next = desk_->first.exchange(leave, std::memory_order_acq_rel);
  while (next != nullptr) std::exchange(next, next->next_)->settle();
}

RefCounted::RefCounted() : owner_(nullptr), own_(0), others_(kOne | kMerged) { take_over(); }

void RefCounted::take_over() {
  CountOwner::Desk* const desk = CountOwner::desk_of_this_thread;
  if (desk == &CountOwner::nobody_) return;
  // Nobody else can change it meanwhile.
  if (others_.load(std::memory_order_acquire) != (kOne | kMerged)) return;
  own_ = 1;
  owner_.store(desk, std::memory_order_relaxed);
  others_.store(0, std::memory_order_relaxed);
}

void RefCounted::hold_again() {
  own_ = 0;
  owner_.store(nullptr, std::memory_order_relaxed);
  others_.store(kOne | kMerged, std::memory_order_relaxed);
  take_over();
}

void RefCounted::unref_last() {
  int64_t others = others_.load(std::memory_order_acquire);
  if (others != 0) {
    // Whoever holds it yet destroys it; or it is on the desk.
    owner_.store(nullptr, std::memory_order_relaxed);
    while (others != 0 &&
           !others_.compare_exchange_weak(others, others | kMerged, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
    }
  }
  if (others == 0) unheld();
}

void RefCounted::unref_elsewhere() {
  // Read now: after the change it may be gone. It has an owner as long as the count can get less
  // than 0.
  CountOwner::Desk* const desk = owner_.load(std::memory_order_relaxed);
  int64_t others = others_.load(std::memory_order_relaxed);
  int64_t left = 0;
  do {
    left = others - kOne;
    if (left < 0) left |= kOnDesk;
  } while (!others_.compare_exchange_weak(others, left, std::memory_order_acq_rel,
                                          std::memory_order_relaxed));
  if ((left & kMerged) != 0) {
    if (left == kMerged) unheld();
    return;
  }
  if ((left & kOnDesk) == 0 || (others & kOnDesk) != 0) return;
  RefCounted* first = desk->first.load(std::memory_order_acquire);
  do {
    if (first == gone()) return settle();
    next_ = first;
  } while (!desk->first.compare_exchange_weak(first, this, std::memory_order_seq_cst,
                                              std::memory_order_acquire));
  if (first != nullptr) return;
  const std::lock_guard lock(desk->mutex);
  if (desk->wake) desk->wake();
}

void RefCounted::settle() {
  const int64_t own = std::exchange(own_, 0) * kOne;
  owner_.store(nullptr, std::memory_order_relaxed);
  int64_t others = others_.load(std::memory_order_relaxed);
  int64_t all = 0;
  do {
    all = ((others + own) & ~kOnDesk) | kMerged;
  } while (!others_.compare_exchange_weak(others, all, std::memory_order_acq_rel,
                                          std::memory_order_relaxed));
  if (all == kMerged) unheld();
}

}  // namespace sidereal::base
