#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/ir/device_spec.h"
#include "sidereal/ir/graph.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/closure_calls.h"
#include "sidereal/service/job.h"
#include "sidereal/task/loop.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::service {

class JobCommands;
class JobLease;

/// How a session is made. Value type.
/// Source: tf.compat.v1.ConfigProto.
struct SessionOptions {
  bool allow_soft_placement = false;
  bool log_device_placement = false;        ///< Into the log of the master, and take_placement().
  std::vector<std::string> device_filters;  ///< Only devices that fit one of these; none: all.
  std::chrono::milliseconds operation_timeout{0};  ///< Of every call; 0: none.
  bool isolate_session_state = false;  ///< Variables and the like are the session's own.
  /// Variables and the like are those of the sessions, of any masters, that say the same name; they
  /// are there from the first to the last of these. "": those of all that say nothing. At most
  /// task::kStateGroupBytesMax bytes; not with isolate_session_state.
  std::string state_group = {};
  std::string compute_dtype = "float32";  ///< Or "bfloat16": of products.
  /// Over grpc and grpc++: what one task has for another at the same time is one message. Other
  /// protocols make no use of it.
  bool tensor_fuse = false;
  /// Over star_server_lite: pulls of the next step are sent when one has ended, where the graph
  /// allows it, and used by it if it begins within so many milliseconds; 0: never. Nothing: as the
  /// master was told, else 200. docs/design/0003-protocols.md says what may be missed.
  std::optional<int64_t> pull_prefetch_ms = std::nullopt;
  /// How long to wait for the master and the tasks that the graph needs.
  std::chrono::milliseconds connect_timeout{600'000};
  /// For servers that were started without a cluster: who is in it. The first session tells them,
  /// later ones may name it again, or a part of it: the tasks that the session sees. Empty: all
  /// that the master knows. Source: ConfigProto.cluster_def.
  cluster::ClusterSpec cluster = {};
  security::SecurityOptions security;
  /// Asked now and then while a call waits: true ends it with kCancelled. nullptr: never.
  std::function<bool()> interrupt = nullptr;
  /// With a name: the session holds the lease of that job of the cluster, and ends when another one
  /// takes it over. kAlreadyExists when the job runs elsewhere.
  JobOptions job = {};
  std::shared_ptr<JobLease> lease = nullptr;  ///< That it belongs to, and ends with.
  ir::PlacementOverrides overrides = {};      ///< Until Session::extend() says others.
};

/// What one step may differ in. Value type.
struct RunOptions {
  std::chrono::milliseconds timeout{0};  ///< 0: the session's.
  bool trace = false;
  /// It ends when all others see what it has changed; over star_server_lite steps end before.
  bool waits_for_pushes = false;
};

/// What a step tells besides its fetches.
struct RunMetadata {
  std::string trace;  ///< Elements of Chrome's trace format.
};

/// A device of a cluster.
struct DeviceAttributes {
  std::string name;
  std::string type;
  int64_t memory_bytes = 0;
  uint64_t incarnation = 0;
  /// Of what holds the session's variables there, which are gone when it is another one; 0: the
  /// session is not attached there.
  uint64_t state = 0;
};

/// A client's session with a master.
/// Lifecycle: create(), then run() and extend(); close(). The destructor closes too.
/// Thread:    any.
/// Source:    tf.compat.v1.Session.
class Session {
 public:
  /// `target` is "grpc://host:port", or has the name of the master's protocol before "://". Waits
  /// for the master and the tasks that `graph` names. Errors: kDeadlineExceeded or kUnavailable
  /// naming who does not answer; kInvalidArgument for a graph that cannot be placed;
  /// kFailedPrecondition for a master with another protocol than the target says, and for a task
  /// that is in another cluster than `options` name.
  static Result<std::unique_ptr<Session>> create(const std::string& target, const ir::Graph& graph,
                                                 const SessionOptions& options = {});
  /// One that holds the lease of a job at the master that grants leases, and runs nothing. See
  /// JobLease.
  static Result<std::unique_ptr<Session>> hold(const std::string& target, const JobHolder& holder,
                                               bool take_over, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Makes `graph`, which begins with the nodes the session has, the session's. kAborted when
  /// another client extended it.
  Status extend(const ir::Graph& graph);
  /// The same; and from now on variables are where `overrides` say, all that was there before too,
  /// and tasks that it leaves may be stopped. No step may run meanwhile that uses what is elsewhere
  /// then.
  Status extend(const ir::Graph& graph, const ir::PlacementOverrides& overrides);

  using Feed = std::pair<std::string, tensor::Tensor>;
  /// Runs a step: what `fetches` and `targets` need, with the values `feeds` in the place of those
  /// that the graph calculates. The values of `fetches`, in their order.
  /// Errors: kNotFound for a name; kDeadlineExceeded; kCancelled when the session is closed;
  /// kUnavailable or kAborted when a task has gone: make a new session then.
  Result<std::vector<tensor::Tensor>> run(const std::vector<Feed>& feeds,
                                          const std::vector<std::string>& fetches,
                                          const std::vector<std::string>& targets = {},
                                          const RunOptions& options = {},
                                          RunMetadata* metadata = nullptr);

  /// Runs steps one after another on lanes of the master's task, fed with data that is read there,
  /// until the data ends or there were as many as `options` say. `observer` is called by this
  /// thread. Errors: those of run(), naming the task that was lost; kInvalidArgument for a column
  /// that is not there or does not fit its feed; kDeadlineExceeded for data that does not come;
  /// kCancelled when the observer says so.
  Result<task::LoopResult> run_loop(const task::LoopOptions& options,
                                    const task::LoopObserver& observer = {});

  /// Begins a stream of closures, which ends with the session's lease. The session must outlive it.
  /// `client`: random, of who may run closures again, also on other streams; their changes of
  /// variables are made once, then.
  std::shared_ptr<ClosureCalls> run_closures(std::shared_ptr<ClosureObserver> observer,
                                             uint64_t client = 0);

  /// What placing decided since this was last asked, when options say log_device_placement: a line
  /// "NAME: (OP): DEVICE" for each new node, then passes::to_text() of the report.
  std::string take_placement();

  /// Ends the session and its steps, which end with kCancelled.
  Status close();
  /// Why the master has it no more, as far as is known here.
  [[nodiscard]] Status check() const;
  /// Calls `told` once, when the master has it no more, from a thread of gRPC, or at once where
  /// that is so; not after `asker` has gone. It must not block.
  void when_ended(std::weak_ptr<void> asker, std::function<void()> told);
  /// Of one that holds a lease: see JobLease.
  void leave_unfinished();
  /// Of one that holds a lease, and outlives what it gives: see JobLease.
  std::unique_ptr<JobCommands> hear_commands();
  /// The lease that it holds, or belongs to; 0: none.
  [[nodiscard]] uint64_t lease() const;
  /// The devices of all tasks.
  Result<std::vector<DeviceAttributes>> list_devices();

  /// Forgets what lies in `containers` (none: the default one) on every task of the cluster, and
  /// ends all sessions of the master, whose calls then are kAborted. kNotFound for a target that is
  /// no address.
  static Status reset(const std::string& target, const std::vector<std::string>& containers,
                      const SessionOptions& options = {});

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::service
