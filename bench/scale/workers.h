#pragma once

#include <functional>
#include <memory>
#include <string>

#include "plan.h"
#include "sidereal/base/status.h"
#include "sidereal/service/channels.h"
#include "sidereal/sys/address.h"
#include "tally.h"

/// Light workers: connections and what is said on them, without programs of their own.
namespace sidereal::bench {

/// What a worker has to know.
struct WorkerOptions {
  size_t number = 0;  ///< In this process, from 0.
  std::string task;   ///< "/job:worker/replica:0/task:7"
  uint64_t session = 0;
  sys::Address data;  ///< Data port of the ps.
  ScalePlan plan;
  /// What the ps calls the plan's programs, in their order.
  std::vector<uint64_t> programs = {};
};

/// What the workers of a process share.
struct Common {
  Tally tally;
  IdTensors* ids = nullptr;
  cluster::Protocol protocol = cluster::Protocol::kGrpc;
  int cpu = -1;
};

/// What a worker does once its session is attached. Thread: start() and step() any.
class Worker {
 public:
  virtual ~Worker() = default;
  /// Connects; `done` is called once.
  virtual void start(std::function<void(Status)> done) = 0;
  /// Begins a step; the tally says when there is no other one.
  virtual void step() = 0;
  /// The port of its own that the ps connects to; 0: none.
  [[nodiscard]] virtual int data_port() const { return 0; }
};

/// The lane of all workers of this process. Created on first use.
class Lane;
struct LaneDeleter {
  void operator()(Lane* lane) const;
};
using LanePtr = std::unique_ptr<Lane, LaneDeleter>;
Result<LanePtr> make_lane(int cpu);

/// Of star_server, star_server_lite: calls, round by round.
std::unique_ptr<Worker> call_worker(Common* common, Lane* lane, WorkerOptions options);
/// Of grpc++: the ps asks for ids and gradients at a port of the worker's.
std::unique_ptr<Worker> part_worker(Common* common, Lane* lane, WorkerOptions options);

}  // namespace sidereal::bench
