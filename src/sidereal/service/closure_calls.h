#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::service {

/// What a closure runs: names of the graph of a session, as of Session::run(). Value type.
struct ClosurePlan {
  std::vector<std::string> feeds = {};
  std::vector<std::string> fetches = {};
  std::vector<std::string> targets = {};
};

/// How a closure ended.
struct ClosureResult {
  uint64_t closure = 0;
  Status status;
  std::vector<tensor::Tensor> fetches;
};

/// Hears of the closures of one stream. Called by threads of gRPC, one at a time; must not block.
class ClosureObserver {
 public:
  virtual ~ClosureObserver() = default;
  virtual void ended(std::vector<ClosureResult> results) = 0;
  /// The stream is gone, and closures that did not end with it. The last call.
  virtual void lost(const Status& why) = 0;
};

/// Steps of a session of which many are under way, on one stream: see Session::run_closures().
/// None of its calls waits. What is said leaves with flush(), together, or with what is written
/// already.
/// Thread: any.
class ClosureCalls {
 public:
  virtual ~ClosureCalls() = default;
  /// `plan` is a number of the caller's, another one for each.
  virtual void add_plan(uint64_t plan, ClosurePlan what) = 0;
  /// Runs a plan with values for its feeds, in their order. `closure`: as `plan`. `timeout` 0: the
  /// session's. `key`: what it is called wherever the client of the stream runs it again; 0:
  /// nowhere.
  virtual void run(uint64_t closure, uint64_t plan, std::vector<tensor::Tensor> feeds,
                   std::chrono::milliseconds timeout, uint64_t key = 0) = 0;
  /// Ends it soon, with kCancelled, unless it has ended.
  virtual void cancel(uint64_t closure) = 0;
  virtual void flush() = 0;
  /// Ends the stream and all that runs.
  virtual void hang_up() = 0;
};

}  // namespace sidereal::service
