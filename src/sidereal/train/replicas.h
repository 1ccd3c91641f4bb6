#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/config/consistency.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/train/loop_group.h"
#include "sidereal/train/placed_model.h"
#include "sidereal/train/synchronize.h"

namespace sidereal::train {

/// What the replicas of a model, lanes of workers, do to keep to the consistency of a fit: what
/// their steps run, and what is done before and beside their loops. Internal to train.
/// Thread: core-local (blocking calls). Borrows the model.
class Replicas {
 public:
  explicit Replicas(PlacedModel* placed) : placed_(placed) {}

  /// Sessions that train so, one to each worker. They are the model's.
  Result<const std::vector<WorkerSession>*> open(const config::Consistency& consistency,
                                                 const std::string& compute_dtype);
  /// After open() and PlacedModel::prepare(): sessions that train so on what is prepared, so that
  /// open() has them when it is the model.
  Status prepare();
  /// What the sessions of open(), and of prepare(), are made of.
  [[nodiscard]] const ir::Graph& graph() const;
  [[nodiscard]] const ir::Graph& prepared_graph() const;
  /// What a step runs to update variables. After open().
  [[nodiscard]] const std::vector<std::string>& targets() const;
  /// Before a loop of `group`, that runs `loop`: nothing is left of steps before, whatever became
  /// of them. `rate` is what scales learning rates, fed where variables are updated: to replicas,
  /// the chief, or, when hybrid, both.
  Status begin(const std::pair<std::string, tensor::Tensor>& rate, LoopGroup* group,
               task::LoopOptions* loop);
  /// What the loop of a worker is told besides.
  void number(size_t worker, task::LoopOptions* own) const;
  /// Updates that the loop has made which has ended, when replicas are in step.
  Result<int64_t> updates();

 private:
  /// How the model trains, with variables in one placement. Value type.
  struct Way {
    std::string kind;    ///< Of its sessions.
    ReplicaModel model;  ///< Its graph is empty where it is that of the placement.
    std::string keep;    ///< Of CopiesModel.
  };
  [[nodiscard]] Result<Way> way_on(const DistributedModel& distributed) const;
  Status begin_in_step(const std::pair<std::string, tensor::Tensor>& rate, LoopGroup* group);
  Status begin_bounded(LoopGroup* group);
  void begin_geo(LoopGroup* group, task::LoopOptions* loop);
  [[nodiscard]] const std::shared_ptr<service::Session>& first() const;
  [[nodiscard]] int64_t replica_of(size_t worker, size_t lane) const;

  PlacedModel* const placed_;
  config::Consistency consistency_;
  std::string compute_dtype_;
  Way way_;
  Way prepared_;
  const std::vector<WorkerSession>* workers_ = nullptr;
  /// The first step of the chief, the first replica, or the number, of a loop. Grows from loop to
  /// loop, of all fits: what a cancelled step still sends is of another time.
  int64_t first_ = 0;
};

}  // namespace sidereal::train
