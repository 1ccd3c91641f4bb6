#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sidereal/base/status.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/dataset/iterator.h"
#include "sidereal/dataset/position.h"

/// What an iterator is made of: one stage for each dataset it stands on.
namespace sidereal::dataset {

/// What waits for other threads of an iterator.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  /// Runtime::stopped() has become true. Thread: any.
  virtual void wake() = 0;
};

/// What the stages of one iterator share. Thread: any.
class Runtime {
 public:
  explicit Runtime(IteratorOptions options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] const IteratorOptions& options() const { return options_; }

  void stop();
  [[nodiscard]] const std::atomic<bool>& stopped() const { return stopped_; }
  void add(Sleeper* sleeper);
  void remove(Sleeper* sleeper);

  /// How many of `count` threads may be started: all stages of an iterator together have
  /// kThreadsMax at most. They are given back when they have ended.
  size_t take_threads(size_t count);
  void give_back_threads(size_t count);
  static constexpr size_t kThreadsMax = 512;

  /// Runs the function of `dataset` on the tensors of `element`. `step` tells calls apart: what is
  /// drawn at random depends on it.
  Result<std::vector<Tensor>> call(const Dataset& dataset, const Element& element, uint64_t step);

 private:
  struct Runner;
  Result<std::unique_ptr<Runner>> make_runner(const Dataset& dataset);
  std::unique_ptr<Runner> idle_runner(const ir::Function* function);

  IteratorOptions options_;
  // Set once; who sees it needs nothing else, so relaxed order is enough.
  std::atomic<bool> stopped_{false};
  // No lock: stages ask with theirs, which stop() takes.
  std::atomic<size_t> threads_{0};
  std::mutex mutex_;
  absl::flat_hash_set<Sleeper*> sleepers_;                                               // mutex_
  absl::flat_hash_map<const ir::Function*, std::vector<std::unique_ptr<Runner>>> idle_;  // mutex_
};

/// Makes the elements of one dataset.
/// Thread: one at a time, not always the same.
class Stage {
 public:
  Stage(DatasetPtr dataset, Runtime* runtime) : dataset_(std::move(dataset)), runtime_(*runtime) {}
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// The next element into `out`, whose old components are dropped; false at the end, and again.
  virtual Result<bool> next(Element* out) = 0;
  /// As next(); what reads ahead does not wait.
  virtual Result<Poll> poll(Element* out);
  /// Passes over `count` elements; how many there were.
  virtual Result<int64_t> skip(int64_t count);
  /// Writes down where it is, and its inputs are.
  virtual Status save(PositionWriter* out) = 0;
  /// Goes there. Nothing was read before.
  virtual Status restore(PositionReader* in) = 0;

 protected:
  [[nodiscard]] const Dataset& dataset() const { return *dataset_; }
  [[nodiscard]] const DatasetPtr& dataset_ptr() const { return dataset_; }
  [[nodiscard]] const DatasetPtr& input(size_t i = 0) const { return dataset_->def().inputs[i]; }
  [[nodiscard]] const std::vector<ComponentSpec>& specs() const { return dataset_->outputs(); }
  [[nodiscard]] Runtime& runtime() const { return runtime_; }
  /// Number of this stage among those of the dataset, for what differs between iterations.
  [[nodiscard]] uint64_t new_iteration() const { return dataset_->shared().iterations++; }
  /// With a position goes which iterations follow.
  void save_iterations(PositionWriter* out) const {
    out->put(dataset_->shared().iterations.load());
  }
  [[nodiscard]] Status restore_iterations(PositionReader* in) const;
  /// kCancelled when the iterator is to end.
  [[nodiscard]] Status check_stopped() const;
  /// Takes elements of `input` until there are `size`, or it has `ended`.
  template <class Elements>
  Status collect(Stage* input, int64_t size, Elements* elements, bool* ended) const {
    while (!*ended && static_cast<int64_t>(elements->size()) < size) {
      SR_RETURN_IF_ERROR(check_stopped());
      Element element;
      SR_ASSIGN_OR_RETURN(const bool some, input->next(&element));
      if (some) elements->push_back(std::move(element));
      *ended = !some;
    }
    return {};
  }

 private:
  DatasetPtr dataset_;
  Runtime& runtime_;
};
using StagePtr = std::unique_ptr<Stage>;

/// The stage of `dataset` and those it stands on. kInvalidArgument for numbers that make no sense.
Result<StagePtr> make_stage(const DatasetPtr& dataset, Runtime* runtime);

// By kind; each makes the stages of the ops in its file.
Result<StagePtr> make_source(const DatasetPtr& dataset, Runtime* runtime);
Result<StagePtr> make_batches(const DatasetPtr& dataset, StagePtr input, Runtime* runtime);
Result<StagePtr> make_order(const DatasetPtr& dataset, StagePtr input, Runtime* runtime);
Result<StagePtr> make_cache_file(const DatasetPtr& dataset, StagePtr input, Runtime* runtime);
Result<StagePtr> make_function(const DatasetPtr& dataset, StagePtr input, Runtime* runtime);
/// Reads `input` ahead, at most `capacity` elements, on a thread of its own, which calls `changed`,
/// if any, when poll() may give something else.
StagePtr make_ahead(const DatasetPtr& dataset, StagePtr input, int64_t capacity, Runtime* runtime,
                    std::function<void()> changed = nullptr);
/// A Map on `threads` threads, which keeps the order.
StagePtr make_parallel_map(const DatasetPtr& dataset, StagePtr input, int threads,
                           Runtime* runtime);

/// Numbers of a function's calls begin with this one, other ones in each iteration.
inline uint64_t first_step(uint64_t iteration) { return (iteration << 32) + 1; }

/// `tensors` as an element.
Element element_of(std::vector<Tensor> tensors);

/// What `work` gives; kResourceExhausted when there is no memory for it.
template <class Work>
auto with_memory(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc& error) {
    return base::resource_exhausted("{}", error.what());
  }
}

}  // namespace sidereal::dataset
