#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "sidereal/base/status.h"

namespace sidereal::resources {

/// How something came to a task that its steps have not made. Value type.
enum class Arrival : uint8_t {
  kNone,    ///< It did not, or steps have used it since.
  kComing,  ///< From another task, by a move that may be given up yet.
  kUnused,  ///< To stay, or from a standby, and no step has used it: it may be what is left of a
            ///< move that was given up when the task had died, or had kept it.
};

/// Something with state that the ops of many steps use by name.
/// Thread: any; calls never wait for anything but other calls.
class Resource {
 public:
  Resource() = default;
  virtual ~Resource();
  Resource(const Resource&) = delete;
  Resource& operator=(const Resource&) = delete;

  /// "queue", "accumulator", "table", for messages.
  [[nodiscard]] virtual std::string_view kind() const = 0;
  /// Ends what waits for it, now and later, with kCancelled.
  virtual void cancel() {}
  /// Bytes of the tensors it holds, as far as it knows.
  [[nodiscard]] virtual int64_t bytes() const { return 0; }

  [[nodiscard]] Arrival arrival() const { return arrival_.load(std::memory_order_relaxed); }
  /// Before steps know it.
  void comes() { arrival_.store(Arrival::kComing, std::memory_order_relaxed); }
  /// It stays, as far as those know who sent it; unless a step has used it already.
  void stays() {
    Arrival seen = Arrival::kComing;
    arrival_.compare_exchange_strong(seen, Arrival::kUnused, std::memory_order_relaxed);
  }
  /// A step uses it.
  void note_use() {
    if (arrival() != Arrival::kNone) arrival_.store(Arrival::kNone, std::memory_order_relaxed);
  }

 private:
  std::atomic<Arrival> arrival_ = Arrival::kNone;
};

/// The name in a Manager of what is called `name` in `container`; "" is the default container.
/// kInvalidArgument for a container with a '|', which stands between the two.
Result<std::string> key_of(std::string_view container, std::string_view name);

/// The resources of one process or session, by name. Ops that must wait return; whoever runs them
/// waits here for a change and runs them again.
/// Thread: any.
class Manager {
 public:
  Manager() = default;
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// The resource `name`; kNotFound when there is none, kInvalidArgument when it is another kind.
  template <class T>
  Result<std::shared_ptr<T>> find(std::string_view name) const {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<Resource> found, find_any(name, T::kKind));
    return std::static_pointer_cast<T>(found);
  }
  /// As find(), but makes it when there is none: `make()` gives a std::shared_ptr<T>.
  template <class T, class Make>
  Result<std::shared_ptr<T>> find_or_create(std::string_view name, Make make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Resource>& slot = resources_[std::string(name)];
    if (slot == nullptr) {
      slot = make();
      ++made_;
    }
    SR_RETURN_IF_ERROR(check_kind(*slot, name, T::kKind));
    return std::static_pointer_cast<T>(slot);
  }
  /// Forgets the resource `name` and ends what waits for it; false when there is none.
  bool erase(std::string_view name);
  /// The same, if it is `resource`, or that is nullptr.
  bool erase(std::string_view name, const Resource* resource);
  /// The same, if it came here and no step has used it: another one of its name takes its place.
  bool erase_unused(std::string_view name);
  /// Forgets all of one container, and ends what waits for them; see key_of().
  void erase_container(std::string_view container);
  /// Ends what waits for any of the resources, and forgets them all.
  void clear();
  /// Names, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// How many times resources were forgotten: what was found before is there yet while this does
  /// not change. To be read before what is to be remembered is looked for.
  [[nodiscard]] uint64_t forgotten() const { return forgotten_.load(std::memory_order_acquire); }
  /// How many were made so far: none are new while this does not change.
  [[nodiscard]] uint64_t made() const { return made_.load(std::memory_order_acquire); }
  /// Bytes of all of them.
  [[nodiscard]] int64_t bytes() const;

  /// To be called after each change that may end a wait.
  void changed();
  /// How many changes there were: to be read before what may have to wait is tried.
  [[nodiscard]] uint64_t changes() const { return changes_; }
  /// Waits until changes() differs from `seen`; false when it still is `seen` after `limit`.
  bool wait(uint64_t seen, std::chrono::nanoseconds limit) const;

 private:
  [[nodiscard]] Result<std::shared_ptr<Resource>> find_any(std::string_view name,
                                                           std::string_view kind) const;
  bool erase_if(std::string_view name, absl::FunctionRef<bool(const Resource&)> is_it);
  static Status check_kind(const Resource& found, std::string_view name, std::string_view kind);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  absl::flat_hash_map<std::string, std::shared_ptr<Resource>> resources_;
  std::atomic<uint64_t> changes_ = 0;    // Changed with mutex_.
  std::atomic<uint64_t> forgotten_ = 0;  // Changed with mutex_.
  std::atomic<uint64_t> made_ = 0;       // Changed with mutex_.
};

}  // namespace sidereal::resources
