#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/ir/graph.h"
#include "sidereal/task/task.h"
#include "sidereal/tensor/tensor.h"

/// What `bench_scale` sends: that of a real worker, whose own programs are not run.
namespace sidereal::bench {

/// The full name of the only ps.
inline constexpr const char* kPs = "/job:ps/replica:0/task:0";

/// A tensor that goes to the ps.
struct Value {
  bool is_ids = false;    ///< Ids of rows, others for each step; else gradients.
  tensor::Tensor tensor;  ///< Gradients; an empty one where only an order is sent.
};

/// The values of one edge.
struct ScaleTensorGroup {
  std::vector<Value> values;
  bool has_gradients = false;
};

/// One call of `star_server` and `star_server_lite`.
struct ScaleCall {
  uint64_t program = 0;
  std::vector<Value> feeds;
  size_t fetches = 0;
  bool repeatable = false;
};

/// What a step of one worker says to the ps.
struct ScalePlan {
  std::vector<task::NewProgram> programs;  ///< That the ps runs.
  /// Calls: round by round.
  std::vector<std::vector<ScaleCall>> rounds;
  /// Send and Recv: the edges that the only program sends, with how many tensors, and what it
  /// receives.
  std::map<int64_t, size_t> sent;
  std::map<int64_t, ScaleTensorGroup> received;
};

/// Plans a step of `graph` that runs `target`, driven by the worker `task` of `cluster`. `ids`: of
/// each tensor of ids whose extent the graph does not know.
Result<ScalePlan> make_plan(const ir::Graph& graph, const std::string& target,
                            const cluster::ClusterSpec& cluster, const std::string& task,
                            cluster::Protocol protocol, int64_t ids);

/// Tensors of ids, drawn before anything is timed.
class IdTensors {
 public:
  IdTensors(int64_t rows, int64_t ids, uint64_t seed);
  /// The ids of the next tensor. Thread: any.
  const tensor::Tensor& next() {
    return tensors_[next_.fetch_add(1, std::memory_order_relaxed) % tensors_.size()];
  }

 private:
  std::vector<tensor::Tensor> tensors_;
  std::atomic<size_t> next_ = 0;
};

}  // namespace sidereal::bench
