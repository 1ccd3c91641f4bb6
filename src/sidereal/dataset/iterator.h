#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/ports/ports.h"

namespace sidereal::dataset {

class Runtime;
class Stage;

/// Elements that the embedding program makes: a Python generator.
class ElementSource {
 public:
  virtual ~ElementSource();
  /// False at the end. Thread: one at a time, not always the same.
  virtual Result<bool> next(Element* out) = 0;
};

/// How a dataset is read. Value type.
struct IteratorOptions {
  /// Of what has no seed of its own.
  uint64_t seed = 0;
  /// Threads that a Map takes whose "parallel" is -1.
  int threads = 2;
  /// Called by functions with Python code; none where there is no Python.
  std::shared_ptr<ports::HostFunctions> host_functions;
  /// Begins generator `number` from its start; none where there is no Python.
  std::function<Result<std::unique_ptr<ElementSource>>(int64_t number)> generators;
  /// Asked now and then while next() waits for other threads: true ends the call with kCancelled.
  std::function<bool()> interrupted;
};

/// What poll() gave.
enum class Poll : uint8_t { kElement, kNotYet, kEnd };

/// Gives out the elements of a dataset, one after another. Prefetches and parallel maps run on
/// threads of their own, from the first next() on, with bounded buffers.
/// Thread: any; calls of next(), save() and restore() wait for each other, but after read_ahead()
/// next() and poll() wait for none of these.
class Iterator {
 public:
  /// kFailedPrecondition when the dataset lacks values (see Dataset::has_slots), or has Python code
  /// and `options` have none.
  static Result<std::unique_ptr<Iterator>> make(DatasetPtr dataset, IteratorOptions options);
  ~Iterator();
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;

  /// The next element; false at the end, and from then on. After an error, the next call goes on
  /// behind the element that failed, where there is a way. kCancelled after cancel().
  Result<bool> next(Element* out);
  /// As next(), but does not wait for what is read ahead (see read_ahead()).
  Result<Poll> poll(Element* out);
  /// From now on elements are made ahead, on a thread of its own, which calls `changed` when poll()
  /// may give something else. Again: nothing.
  void read_ahead(std::function<void()> changed);
  /// Ends what waits or runs, soon, and all later calls. Does not wait. Thread: any.
  void cancel();

  /// How far it has come, for restore(): the same elements follow, when files and functions are
  /// the same. Grows with the buffers of shuffles and prefetches.
  Result<std::string> save();
  /// Goes where an iterator of an equal dataset was when it was saved. kDataLoss for bytes that are
  /// no such position: they may come from anyone; the iterator stays where it is then.
  Status restore(std::string_view position);

  [[nodiscard]] const Dataset& dataset() const { return *dataset_; }

 private:
  Iterator(DatasetPtr dataset, std::unique_ptr<Runtime> runtime);
  Status begin();
  std::shared_ptr<Stage> ahead();
  void set_ahead(std::shared_ptr<Stage> stage);

  DatasetPtr dataset_;
  std::unique_ptr<Runtime> runtime_;
  std::mutex mutex_;              // Of save() and restore(), which may wait for a reader.
  std::unique_ptr<Stage> stage_;  // Guarded by mutex_, like its use.
  std::mutex ahead_mutex_;        // Held shortly.
  std::shared_ptr<Stage> ahead_;  // In its place after read_ahead(); any thread may use it.
  std::function<void()> changed_;
};

}  // namespace sidereal::dataset
