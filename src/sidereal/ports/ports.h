#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::ports {

/// Functions of the program that embeds the engine, called while a step runs.
/// Thread: that of the step.
class HostFunctions {
 public:
  virtual ~HostFunctions();
  /// Calls the function registered under `function`. kNotFound when there is none; whatever it
  /// fails with otherwise.
  virtual Result<std::vector<tensor::Tensor>> call(int64_t function,
                                                   std::span<const tensor::Tensor> inputs) = 0;
};

/// Something that an ElementReading does on another thread.
/// Thread: any.
class ReadingWork {
 public:
  virtual ~ReadingWork();
  /// What it gave, once it is done; none before, without waiting.
  [[nodiscard]] virtual std::optional<Result<std::string>> poll() const = 0;
};

/// The elements of a dataset, read ahead for the ops of steps.
/// Thread: any.
class ElementReading {
 public:
  virtual ~ElementReading();
  /// The next element; none while it is not there, without waiting. kOutOfRange at the end.
  virtual Result<std::optional<std::vector<tensor::Tensor>>> take() = 0;
  /// Finds out where it is, for restore(): the same elements follow. Who waits is told as for
  /// take().
  virtual std::shared_ptr<ReadingWork> save() = 0;
  /// Goes where a reading of an equal dataset was; passes over elements where there is no other
  /// way. kInvalidArgument for bytes, from anyone, that are no such position: it stays where it is.
  virtual std::shared_ptr<ReadingWork> restore(std::string position) = 0;
  /// Ends reading, and all later calls with kCancelled.
  virtual void cancel() = 0;
};

/// Reads datasets for the programs of a process. Thread: any.
class Datasets {
 public:
  virtual ~Datasets();
  /// Begins to read what `definition`, from anyone, says, on threads of its own; `values` are those
  /// that it leaves open, by number. The threads call `changed` when take() may give something
  /// else. kInvalidArgument for what is no definition, and for values that it does not take.
  virtual Result<std::shared_ptr<ElementReading>> open(std::string_view definition,
                                                       const std::vector<tensor::Tensor>& values,
                                                       std::function<void()> changed) = 0;
};

/// Tensors that are passed together. A dead one, which no branch of this release sends, is
/// undefined.
using TensorGroup = std::vector<tensor::Tensor>;

/// Names one tensor group between the programs of a step.
struct RendezvousKey {
  int64_t edge = 0;   ///< Number of the edge in the graph that was cut.
  uint64_t step = 0;  ///< Number of the step; inside a loop, of the nested step of an iteration.
  friend auto operator<=>(const RendezvousKey&, const RendezvousKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const RendezvousKey& key) {
    return H::combine(std::move(h), key.edge, key.step);
  }
};

/// A device that tensors come from.
struct TensorSource {
  std::string device;        ///< "/job:ps/replica:0/task:0/device:CPU:0".
  uint64_t incarnation = 0;  ///< Of the start of its task that is meant; 0: any.
};

/// Passes tensors between the programs of one step, which run on different devices.
/// Thread: core-local to the step's lane.
class Rendezvous {
 public:
  virtual ~Rendezvous();
  /// Leaves tensors, whose memory must not change from now on, for the device that asks for them.
  virtual Status send(const RendezvousKey& key, std::span<const tensor::Tensor> values) = 0;
  /// The `count` tensors, one or more, sent under `key` on `source`, once; none while they are not
  /// here: then they are on their way, and asking again after a while finds them. They may be moved
  /// from, and are there until the next call. Errors end the step: kAborted when the source was
  /// restarted, kUnavailable when it is gone.
  virtual Result<std::span<tensor::Tensor>> receive(const RendezvousKey& key,
                                                    const TensorSource& source, size_t count) = 0;
};

/// Told when a call of a step ends. Called on the step's lane.
class CallCompletion {
 public:
  virtual ~CallCompletion();
  /// Where to put fetch `position`, or why it cannot be taken.
  virtual Result<tensor::Tensor> allocate(int position, tensor::DType dtype,
                                          const tensor::Shape& shape) = 0;
  /// Exactly once per started call. `fetches` may be moved from; empty on error.
  virtual void done(const Status& status, std::span<tensor::Tensor> fetches) = 0;
};

/// Carries the calls of a step to the lanes that own the data.
/// Thread: core-local to the step's lane.
class Exchange {
 public:
  virtual ~Exchange();
  /// Sends call `call`, by its number among program::all_calls(), and returns at once. `step` is
  /// the number that its program begins a step with: that of the step or, in the body of a loop, of
  /// the iteration. A call in a loop is started again and again, one at a time. The feeds are held
  /// until `completion` is told, and their memory does not change before. An error means that
  /// `completion` will not be told.
  virtual Status start(int call, uint64_t step, std::span<const tensor::Tensor> feeds,
                       CallCompletion* completion) = 0;
  /// Lets bytes in and out move, and answers who asks, between two instructions or two parts of a
  /// long one; never waits.
  virtual void yield() = 0;
};

}  // namespace sidereal::ports
