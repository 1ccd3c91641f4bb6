#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/status.h"
#include "sidereal/eager/call_key.h"
#include "sidereal/exec/executor.h"
#include "sidereal/ir/schema.h"
#include "sidereal/resources/manager.h"
#include "sidereal/sys/disk.h"

namespace sidereal::eager {

using tensor::Tensor;

/// Things made for a call, found again by an equal call. Bounded: when full, all is forgotten.
/// Thread: core-local. A pointer is good until the next insert().
template <class Entry>
class CallCache {
 public:
  explicit CallCache(size_t entries_max) : entries_max_(entries_max) {}

  [[nodiscard]] Entry* find(uint64_t hash, const CallView& call) const {
    const auto it = entries_.find(hash);
    if (it == entries_.end() || !same_call(it->second->key, call)) return nullptr;
    return it->second.get();
  }
  /// Replaces an entry of the same hash. An entry has a member `key`.
  Entry* insert(uint64_t hash, std::unique_ptr<Entry> entry) {
    if (entries_.size() >= entries_max_) entries_.clear();
    std::unique_ptr<Entry>& slot = entries_[hash];
    slot = std::move(entry);
    return slot.get();
  }
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  size_t entries_max_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Entry>> entries_;
};

/// Runs one op at a time. For every (op, attributes, input dtypes and shapes) it keeps a program of
/// one instruction, so that a call that was made before costs a look-up and the kernel.
/// Thread: core-local. Limits: `entries_max` programs are kept.
class Context {
 public:
  static constexpr size_t kDefaultEntries = 4096;
  static constexpr std::chrono::minutes kDefaultOperationTimeout{10};

  explicit Context(size_t entries_max = kDefaultEntries);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const ir::OpRegistry& registry() const { return registry_; }
  [[nodiscard]] const exec::KernelTable& kernels() const { return kernels_; }

  /// Runs `schema` on `inputs` and appends its outputs, which never share memory that is written
  /// again. `name` is for messages; `step` is what the kernel sees as the step's number, which
  /// random ops draw by.
  /// Errors name the op and the inputs' shapes: kInvalidArgument from inference or the kernel;
  /// kFailedPrecondition for ops of graphs, which cannot run alone.
  Status run(const ir::OpSchema& schema, std::span<const Tensor* const> inputs,
             const ir::AttrMap& attrs, std::string_view name, uint64_t step,
             std::vector<Tensor>* outputs);

  /// What steps share by name.
  [[nodiscard]] resources::Manager& resources() { return resources_; }
  /// What kernels may use here.
  [[nodiscard]] const exec::Environment& environment() const { return environment_; }
  /// Functions that steps may call. To be set before any function is compiled.
  void set_host_functions(std::unique_ptr<ports::HostFunctions> functions) {
    host_functions_ = std::move(functions);
    environment_.host_functions = host_functions_.get();
  }

  /// What reads the datasets of iterators. To be set before any function is compiled.
  void set_datasets(std::shared_ptr<ports::Datasets> datasets) {
    datasets_ = std::move(datasets);
    environment_.datasets = datasets_.get();
  }

  /// Where checkpoints are. To be set before any function is compiled.
  void set_disk(std::shared_ptr<sys::Disk> disk) { environment_.disk = std::move(disk); }

  /// Waits for a change of the resources after the change number `seen`, at most for `limit`: false
  /// when there was none, an error to end the step.
  using Waiter = std::function<Result<bool>(uint64_t seen, std::chrono::nanoseconds limit)>;
  /// Another way to wait than Manager::wait(): one that lets other threads run ops meanwhile.
  void set_waiter(Waiter waiter) { waiter_ = std::move(waiter); }
  /// How long a step waits for resources that do not change.
  void set_operation_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }
  [[nodiscard]] std::chrono::nanoseconds operation_timeout() const { return timeout_; }
  /// Runs a step that has been fed to its end, waiting where it must: for `limit` at most, when
  /// that is above 0, and for the operation timeout. kDeadlineExceeded says what it waited for.
  Status finish(exec::Step* step, std::chrono::nanoseconds limit = {});

  /// From now on, writes down what runs; `bytes` of memory are taken. Forgets a trace that was on.
  void start_trace(size_t bytes);
  /// Ends the trace and hands it out; nullptr when none was on.
  std::unique_ptr<exec::Trace> stop_trace() { return std::move(trace_); }
  /// Where steps write down what they do; nullptr when nobody asked for it.
  [[nodiscard]] exec::Trace* trace() const { return trace_.get(); }

  /// Threads that may work on one op at once, from 1 to exec::Workers::kThreadsMax. Results do not
  /// depend on it.
  void set_intra_op_threads(int threads);
  [[nodiscard]] int intra_op_threads() const { return workers_ ? workers_->threads() : 1; }
  /// Those that help; nullptr with one thread.
  [[nodiscard]] exec::Workers* workers() const { return workers_.get(); }

  /// A number for the next step, different each time.
  uint64_t next_step() { return ++step_; }

  /// Programs kept at present.
  [[nodiscard]] size_t cached() const;

 private:
  struct Entry;

  Result<std::unique_ptr<Entry>> make_entry(const CallView& call, std::string_view name);
  /// Runs the program of `entry`.
  Status run_entry(Entry* entry, const CallView& call, uint64_t step, std::vector<Tensor>* outputs);

  ir::OpRegistry registry_;
  exec::KernelTable kernels_;
  resources::Manager resources_;
  std::unique_ptr<ports::HostFunctions> host_functions_;
  std::shared_ptr<ports::Datasets> datasets_;
  exec::Environment environment_;
  Waiter waiter_;
  std::chrono::nanoseconds timeout_ = kDefaultOperationTimeout;
  exec::BufferPool pool_;
  std::unique_ptr<CallCache<Entry>> cache_;
  std::unique_ptr<exec::Trace> trace_;
  std::unique_ptr<exec::Workers> workers_;
  uint64_t step_ = 0;
};

/// The schema of `op`, or kNotFound with the names that come near it.
Result<const ir::OpSchema*> find_op(const ir::OpRegistry& registry, std::string_view op);

/// kFailedPrecondition when `schema` is of an op that cannot run at once, saying what to use.
Status check_runs_alone(const ir::OpSchema& schema);

}  // namespace sidereal::eager
