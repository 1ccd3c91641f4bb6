#pragma once

#include <memory>
#include <string>

#include "sidereal/lane/lane.h"
#include "sidereal/security/credentials.h"
#include "sidereal/sys/sim/world.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/endpoint.h"
#include "tests/sim/ledger.h"
#include "tests/sim/scenario.h"

namespace sidereal::sim {

inline constexpr uint64_t kCluster = 0xc0ffee;
inline constexpr int kPort = 2222;

/// What all processes of a run share; borrowed.
struct Context {
  sys::sim::World* world = nullptr;
  const Scenario* scenario = nullptr;
  Ledger* ledger = nullptr;
  std::shared_ptr<const security::Credentials> credentials = nullptr;  ///< Or plain text.
};

/// Which lane of which life of a task.
struct Place {
  std::string task;
  int lane = 0;
  int lanes = 1;
  uint64_t life = 0;  ///< the task's incarnation; 0: drawn by the node
};

/// A lane of a life of a task: a node with an endpoint. Nodes of one task are on one host.
class Process : public sys::sim::Runner {
 public:
  Process(const Context& context, sys::sim::Host* host, const Place& place);
  /// `on_death` ends what lives on the lane; the node must have been killed.
  ~Process() override;

  bool step() override { return lane_->step(); }
  int64_t next_wake() override { return lane_->next_wake(); }

  [[nodiscard]] sys::sim::Node* node() const { return node_; }
  [[nodiscard]] lane::Lane* lane() const { return lane_.get(); }
  [[nodiscard]] transport::Endpoint* endpoint() const { return endpoint_.get(); }
  [[nodiscard]] uint64_t life() const { return endpoint_->identity().incarnation; }

 protected:
  [[nodiscard]] sys::sim::Rng& random() const { return node_->random(); }
  [[nodiscard]] const Scenario& scenario() const { return *context_.scenario; }
  [[nodiscard]] Ledger* ledger() const { return context_.ledger; }
  /// So many bytes that follow from `what`.
  static tensor::Tensor pattern(int64_t bytes, uint64_t what);
  static bool is_pattern(const tensor::Tensor& value, uint64_t what);

 private:
  const Context& context_;
  sys::sim::Node* const node_;
  std::unique_ptr<lane::Lane> lane_;
  std::unique_ptr<transport::Endpoint> endpoint_;
};

std::string ps_name(int index);
std::string worker_name(int index);
/// Those of real tasks, "/job:ps/replica:0/task:2".
std::string task_of_ps(int index);
std::string task_of_worker(int index);

}  // namespace sidereal::sim
