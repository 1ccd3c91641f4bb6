#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/service/job_commands.h"
#include "sidereal/service/job_lease.h"
#include "sidereal/service/status_client.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/train/distribute.h"
#include "sidereal/train/loop_group.h"
#include "sidereal/train/model.h"
#include "sidereal/train/placement.h"

namespace sidereal::train {

/// Whether that is the full name of a parameter server.
bool is_ps(const std::string& task);

/// A model on the tasks of a cluster: its variables, which are its own, and sessions to the
/// workers. Internal to train.
/// Thread: core-local (blocking calls). Borrows the cluster.
class PlacedModel {
 public:
  /// As `job`, or one with a name of its own.
  PlacedModel(app::Cluster* cluster, CompiledModel model, service::JobOptions job,
              PlacementOptions placement = {});

  /// Reaches every worker and the parameter servers that it begins on, takes the lease of the job,
  /// places the variables and gives them their first values.
  Status place();
  /// place(), as placement() says, after tasks were lost, in as long as it takes them to be there
  /// again, at most `limit`: variables and sessions are others then, and what is left of the old
  /// ones, on workers that nobody can reach too, cannot change the new ones. Whatever the result
  /// is, sessions from before are closed. Errors: kDeadlineExceeded, naming who is not there again;
  /// kCancelled. `may_miss`: workers that do not answer are left out, as join_again() does.
  Status place_again(std::chrono::milliseconds limit, bool may_miss,
                     const std::function<bool()>& cancelled);
  /// After tasks were lost, or are there again: sessions of the variables as they are, to all
  /// workers, or, where it may miss some, those that answer: the others have no session and no
  /// lanes from now on. Waits at most `limit` for all that it may not miss. Sessions from before
  /// are closed. Errors: kUnavailable and kDeadlineExceeded, naming a task that does not answer;
  /// kDataLoss when a parameter server was started again and has not, from a standby, all that it
  /// had answered; kCancelled.
  Status join_again(std::chrono::milliseconds limit, bool may_miss,
                    const std::function<bool()>& cancelled);
  /// Whether workers that were left out answer; asks them now and then, until join_again().
  bool has_found_workers();
  /// Tasks that the model is on and that do not answer, or are others than when it was placed;
  /// never waits for long.
  std::vector<std::string> lost_tasks();
  /// Those of them that answer: they have nothing of the model any more.
  std::vector<std::string> tasks_started_again();
  /// Those that were others when it was last placed again, or joined.
  [[nodiscard]] const std::vector<std::string>& replaced() const { return replaced_; }

  /// A session to each worker whose products are computed in `compute_dtype`. Errors: kUnavailable
  /// when the model is on no cluster any more, as it could not be placed again.
  Result<const std::vector<WorkerSession>*> sessions(const std::string& compute_dtype);
  /// Likewise, of `graph`; `kind` is what it does, for sessions that are there already.
  Result<const std::vector<WorkerSession>*> sessions(const std::string& compute_dtype,
                                                     const ir::Graph& graph,
                                                     const std::string& kind);
  /// One at the first worker that there is.
  [[nodiscard]] const std::shared_ptr<service::Session>& first() const { return first_; }

  /// Reaches the tasks of another placement, and makes what there is to be of the model on it,
  /// beside what there is: nothing runs there yet. Errors: kUnavailable and kDeadlineExceeded,
  /// naming a task that does not answer; those of sessions.
  Status prepare(Placement next);
  /// A session to each worker of what is prepared, as sessions().
  Result<const std::vector<WorkerSession>*> prepared_sessions(const std::string& compute_dtype,
                                                              const ir::Graph& graph,
                                                              const std::string& kind);
  [[nodiscard]] const DistributedModel& prepared() const { return next_->distributed; }
  /// Variables are where what is prepared looks for them: it is the model from now on. Sessions
  /// from before are closed. Tasks that the model has left may be stopped.
  void take_prepared();
  /// It is not wanted; nothing where nothing is prepared.
  void drop_prepared();
  /// Runs `graph`, which names devices of the cluster, once in the state of the model: fetches
  /// `fetches`.
  Status run_once(const ir::Graph& graph, const std::vector<std::string>& fetches);

  [[nodiscard]] const Placement& placement() const { return now_.placement; }
  [[nodiscard]] const std::string& job_name() const { return job_.name; }
  /// Where the job hears of commands; nullptr without a lease.
  service::JobCommands* commands() { return lease_ == nullptr ? nullptr : lease_->commands(); }
  /// Nothing trains it any more: who gives a command is told so.
  void hear_no_commands() {
    if (lease_ != nullptr) lease_->hear_no_commands();
  }
  /// By which tasks know the state of the model.
  [[nodiscard]] const std::string& state_group() const { return state_group_; }
  [[nodiscard]] app::Cluster* cluster() const { return cluster_; }

  /// The value of a variable, whole.
  Result<tensor::Tensor> read_variable(const std::string& name);
  /// Figures of the parameter servers that it is on, so far.
  Result<std::vector<TaskStats>> ps_stats();

  /// Whether another program had the job before this one, and may be ending yet.
  [[nodiscard]] bool took_over() const { return took_over_; }
  [[nodiscard]] const CompiledModel& model() const { return model_; }
  [[nodiscard]] const DistributedModel& distributed() const { return now_.distributed; }
  [[nodiscard]] const ir::OpRegistry& registry() const { return registry_; }
  [[nodiscard]] const std::vector<int>& worker_lanes() const { return worker_lanes_; }
  /// Workers that are left out.
  [[nodiscard]] std::vector<std::string> missing_workers() const;
  /// Those that are not, and lanes of all of these.
  [[nodiscard]] int64_t workers() const;
  [[nodiscard]] int64_t replicas() const;

 private:
  /// By compute_dtype and kind.
  using Sessions = std::map<std::pair<std::string, std::string>, std::vector<WorkerSession>>;
  /// The model on one placement.
  struct Spread {
    Placement placement = {};
    DistributedModel distributed = {};
    Sessions sessions = {};
  };

  Status join_once(std::chrono::milliseconds limit, bool may_miss,
                   const std::function<bool()>& cancelled);
  Status reach_tasks(std::chrono::milliseconds limit, bool may_miss,
                     const std::function<bool()>& cancelled);
  Status check_taken();
  Status take_lease();
  Status give_first_values();
  Result<const std::vector<WorkerSession>*> make_sessions(Spread* spread,
                                                          const std::string& compute_dtype,
                                                          const ir::Graph& graph,
                                                          const std::string& kind,
                                                          std::chrono::milliseconds limit);
  Result<std::shared_ptr<service::Session>> make_session(int worker,
                                                         const std::string& compute_dtype,
                                                         const ir::Graph& graph,
                                                         std::chrono::milliseconds limit);
  [[nodiscard]] std::vector<int> used_ps() const;
  [[nodiscard]] Result<cluster::ClusterSpec> spec_of(const std::vector<int>& ps) const;
  [[nodiscard]] Result<std::unique_ptr<service::StatusClient>> status_of(
      const std::vector<int>& ps) const;
  void need_only(const std::vector<int>& ps);
  void take_tasks(const std::vector<service::TaskReport>& reports);
  static void close_all(const Sessions& sessions);
  void close_sessions();
  [[nodiscard]] Status check_placed() const;
  Result<tensor::Tensor> read_part(const std::string& node, tensor::DType dtype,
                                   const tensor::Shape& shape);

  app::Cluster* cluster_;
  CompiledModel model_;
  ir::OpRegistry registry_;
  const PlacementOptions placement_options_;
  std::unique_ptr<service::StatusClient> everybody_;  // Of workers, and ps that it is on.
  std::map<std::string, uint64_t> incarnations_;      // By task.
  std::map<std::string, uint64_t> placed_on_;  // As they were when it was last placed or joined,
  std::vector<std::string> replaced_;          // and those that are others now.
  bool pushes_are_answered_ = true;      // Before a step ends; star_server_lite does not wait.
  std::map<std::string, int> ps_lanes_;  // By task, of those that it is on.
  std::vector<int> worker_lanes_;        // 0: it is left out.
  std::chrono::steady_clock::time_point looked_;  // For workers that are left out,
  bool has_found_ = false;                        // and one of them answered.
  Spread now_;
  std::optional<Spread> next_;                         // Prepared,
  std::map<std::string, uint64_t> next_incarnations_;  // on these.
  std::map<std::string, int> next_lanes_;
  std::unique_ptr<service::StatusClient> next_everybody_;
  service::JobOptions job_;
  bool took_over_ = false;
  std::shared_ptr<service::JobLease> lease_;  // Of its sessions, which go before it.
  std::string state_group_;
  std::shared_ptr<service::Session> first_;
};

}  // namespace sidereal::train
