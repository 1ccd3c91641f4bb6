#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace sidereal::base {

class RefCounted;

/// Makes a thread count those of its holders of objects that it made, or took over, without atomic
/// changes: biased reference counting (Choi, Shull, Torrellas: "Biased Reference Counting:
/// Minimizing Atomic Operations in Garbage Collection", PACT 2018). For threads that make and use
/// most of their objects alone, such as lanes. Other threads count as std::shared_ptr does.
/// Lifecycle: made and destroyed by its thread, which has one at most. Objects may outlive it.
/// Thread: its own, but for has_left_over().
class CountOwner {
 public:
  /// `wake` is called by other threads when has_left_over() becomes true, also while the owner is
  /// being destroyed, never afterwards.
  explicit CountOwner(std::function<void()> wake);
  ~CountOwner();
  CountOwner(const CountOwner&) = delete;
  CountOwner& operator=(const CountOwner&) = delete;

  /// Whether settle() has something to do. Sequentially consistent with `wake`.
  [[nodiscard]] bool has_left_over() const;
  /// Counts what other threads have let go of that this one had counted; what nobody holds any
  /// more is destroyed. Must be called from time to time.
  void settle();
  /// Tells the threads that have an owner apart, those of the past too; nullptr: the calling thread
  /// has none.
  [[nodiscard]] static const void* here() {
    return desk_of_this_thread == &nobody_ ? nullptr : desk_of_this_thread;
  }

 private:
  friend class RefCounted;
  /// What objects know of their owner; lasts as long as the process, as they may.
  struct Desk;
  /// Settles what is on the desk, and leaves `leave` there.
  void take_all(RefCounted* leave);

  static Desk nobody_;  ///< Of threads without an owner.
  inline static constinit thread_local Desk* desk_of_this_thread
      __attribute__((tls_model("initial-exec"))) = &nobody_;

  Desk* const desk_;
};

/// What RefPtr may hold; whoever lets go of it last deletes it, unless unheld() says otherwise.
/// Thread: any; the object's own rules say who may use what it contains.
class RefCounted {
 public:
  virtual ~RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void hold() {
    if (owner_.load(std::memory_order_relaxed) == CountOwner::desk_of_this_thread) {
      ++own_;
    } else {
      others_.fetch_add(kOne, std::memory_order_relaxed);
    }
  }
  void unref() {
    if (owner_.load(std::memory_order_relaxed) == CountOwner::desk_of_this_thread) {
      if (--own_ == 0) unref_last();
    } else {
      unref_elsewhere();
    }
  }
  /// True when the caller, who holds it once, is the only holder: what others did with it comes
  /// before. May say false of an only holder on another thread than the one that counts it.
  [[nodiscard]] bool has_one_holder() const { return holders() == 1; }
  /// How many hold it; kUnknown where only another thread knows. What holders that have let go did
  /// with it comes before.
  [[nodiscard]] int64_t holders() const {
    const int64_t others = others_.load(std::memory_order_acquire);
    if ((others & kMerged) != 0) return others >> kFlagBits;
    if (owner_.load(std::memory_order_relaxed) != CountOwner::desk_of_this_thread) return kUnknown;
    return own_ + (others >> kFlagBits);
  }
  static constexpr int64_t kUnknown = INT64_MAX;
  /// The calling thread, which is the only holder, counts it from now on, if it can.
  void take_over();

 protected:
  RefCounted();
  /// Nobody holds it any more. Called once, on the thread that noticed.
  virtual void unheld() { delete this; }
  /// The caller holds what nobody held, as if it was made now.
  void hold_again();

 private:
  friend class CountOwner;
  // In others_: below the number of holders that the owner does not count, which is less than none
  // where others let go of what the owner had counted.
  static constexpr int kFlagBits = 2;
  static constexpr int64_t kOne = int64_t{1} << kFlagBits;
  static constexpr int64_t kMerged = 1;  ///< All are counted in others_; there is no owner.
  static constexpr int64_t kOnDesk = 2;  ///< The owner will look at it; nobody else destroys it.

  void unref_last();
  void unref_elsewhere();
  void settle();

  std::atomic<CountOwner::Desk*> owner_;
  int64_t own_;  ///< Of the owner's thread.
  std::atomic<int64_t> others_;
  RefCounted* next_ = nullptr;  ///< On the desk.
};

/// Holds a RefCounted object, as std::shared_ptr does. Thread: as a std::shared_ptr: several may
/// hold the same object, each its own pointer.
template <class T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  RefPtr(const RefPtr& other) : object_(other.object_) {
    if (object_ != nullptr) object_->hold();
  }
  RefPtr(RefPtr&& other) noexcept : object_(other.release()) {}
  template <class Derived>
  requires std::derived_from<Derived, T> RefPtr(
      RefPtr<Derived> other)  // NOLINT(google-explicit-constructor): as of pointers
      : object_(other.release()) {}
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~RefPtr() {
    if (object_ != nullptr) object_->unref();
  }
  /// A new object.
  template <class... Args>
  static RefPtr make(Args&&... args) {
    RefPtr out;
    out.object_ = new T(std::forward<Args>(args)...);
    return out;
  }

  /// Another holder of what somebody holds.
  static RefPtr share(T* object) {
    object->hold();
    return adopt(object);
  }
  /// What the caller holds already is the result's.
  static RefPtr adopt(T* object) {
    RefPtr out;
    out.object_ = object;
    return out;
  }

  /// The caller holds it instead.
  [[nodiscard]] T* release() { return std::exchange(object_, nullptr); }
  void reset() { *this = RefPtr(); }
  [[nodiscard]] T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.object_ == b.object_; }
  friend bool operator==(const RefPtr& a, std::nullptr_t) { return a.object_ == nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace sidereal::base
