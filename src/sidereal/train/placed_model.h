#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/service/job_lease.h"
#include "sidereal/service/status_client.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/train/distribute.h"
#include "sidereal/train/loop_group.h"
#include "sidereal/train/model.h"

namespace sidereal::train {

/// A model on the tasks of a cluster: its variables, which are its own, and sessions to the
/// workers. Internal to train.
/// Thread: core-local (blocking calls). Borrows the cluster.
class PlacedModel {
 public:
  /// As `job`, or one with a name of its own.
  PlacedModel(app::Cluster* cluster, CompiledModel model, service::JobOptions job);

  /// Reaches every task, takes the lease of the job, places the variables and gives them their
  /// first values.
  Status place();
  /// place(), after tasks were lost, in as long as it takes them to be there again, at most
  /// `limit`: variables and sessions are others then, and what is left of the old ones, on workers
  /// that nobody can reach too, cannot change the new ones. Whatever the result is, sessions from
  /// before are closed. Errors: kDeadlineExceeded, naming who is not there again; kCancelled.
  Status place_again(std::chrono::milliseconds limit, const std::function<bool()>& cancelled);
  /// Tasks that do not answer, or are others than when the model was placed; never waits for long.
  std::vector<std::string> lost_tasks();
  /// Those of them that answer: they have nothing of the model any more.
  std::vector<std::string> tasks_started_again();
  /// Those that were others the last time that it was placed again.
  [[nodiscard]] const std::vector<std::string>& replaced() const { return replaced_; }

  /// A session to each worker whose products are computed in `compute_dtype`. Errors: kUnavailable
  /// when the model is on no cluster any more, as it could not be placed again.
  Result<const std::vector<WorkerSession>*> sessions(const std::string& compute_dtype);
  /// Likewise, of `graph`; `kind` is what it does, for sessions that are there already.
  Result<const std::vector<WorkerSession>*> sessions(const std::string& compute_dtype,
                                                     const ir::Graph& graph,
                                                     const std::string& kind);
  /// One at the first worker.
  [[nodiscard]] service::Session* first() const { return first_.get(); }

  /// The value of a variable, whole.
  Result<tensor::Tensor> read_variable(const std::string& name);
  /// Figures of the parameter servers so far.
  Result<std::vector<TaskStats>> ps_stats();

  /// Whether another program had the job before this one, and may be ending yet.
  [[nodiscard]] bool took_over() const { return took_over_; }
  [[nodiscard]] const CompiledModel& model() const { return model_; }
  [[nodiscard]] const DistributedModel& distributed() const { return distributed_; }
  [[nodiscard]] const ir::OpRegistry& registry() const { return registry_; }
  [[nodiscard]] const std::vector<int>& worker_lanes() const { return worker_lanes_; }
  /// Lanes of all workers.
  [[nodiscard]] int64_t replicas() const;

 private:
  Status reach_tasks(std::chrono::milliseconds limit, const std::function<bool()>& cancelled);
  Status take_lease();
  Status give_first_values();
  Result<const std::vector<WorkerSession>*> make_sessions(const std::string& compute_dtype,
                                                          const ir::Graph& graph,
                                                          const std::string& kind);
  Result<std::unique_ptr<service::StatusClient>> status_of(const std::vector<std::string>& jobs);
  void take_tasks(const std::vector<service::TaskReport>& reports);
  void close_sessions();
  [[nodiscard]] Status check_placed() const;
  Result<tensor::Tensor> read_part(const std::string& node, tensor::DType dtype,
                                   const tensor::Shape& shape);

  app::Cluster* cluster_;
  CompiledModel model_;
  ir::OpRegistry registry_;
  std::unique_ptr<service::StatusClient> ps_status_;
  std::unique_ptr<service::StatusClient> everybody_;
  std::map<std::string, uint64_t> incarnations_;  // By task.
  std::vector<std::string> replaced_;
  Topology topology_;
  std::vector<int> worker_lanes_;
  DistributedModel distributed_;
  service::JobOptions job_;
  bool took_over_ = false;
  std::shared_ptr<service::JobLease> lease_;  // Of its sessions, which go before it.
  std::string state_group_;
  /// By compute_dtype and kind.
  std::map<std::pair<std::string, std::string>, std::vector<WorkerSession>> sessions_;
  std::shared_ptr<service::Session> first_;
};

}  // namespace sidereal::train
