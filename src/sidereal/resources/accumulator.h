#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sidereal/resources/manager.h"
#include "sidereal/resources/waiters.h"

namespace sidereal::resources {

/// What is known of an accumulator when it is made. Value type.
struct AccumulatorDef {
  std::string name = {};
  tensor::DType dtype = tensor::DType::kFloat32;  ///< float32 or float64.
  tensor::Shape shape = {};                       ///< Of a gradient; unknown extents fit any.
  bool mean = true;                               ///< Else the sum is given out.
  bool sparse = false;                            ///< Gradients are rows along dimension 0.
};

/// Collects gradients of one step from many workers and gives out their mean or sum once there are
/// enough (tf.compat.v1.ConditionalAccumulator, SparseConditionalAccumulator). A gradient of a step
/// before the current one is dropped: its worker was too slow.
/// Thread: any.
class Accumulator final : public Resource,
                          public WaitingRoom,
                          public std::enable_shared_from_this<Accumulator> {
 public:
  static constexpr std::string_view kKind = "accumulator";

  /// kInvalidArgument for another dtype than float32 and float64, or a sparse one without rows.
  static Result<std::shared_ptr<Accumulator>> make(AccumulatorDef def);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] const AccumulatorDef& def() const { return def_; }

  /// Adds a gradient of `local_step`, or drops it when that step is over. kInvalidArgument when it
  /// is of another dtype or shape.
  Status apply(const tensor::Tensor& grad, int64_t local_step);
  /// As apply(), for the rows `indices` (int64, may repeat) with the values `values` [n, row...].
  Status apply_rows(const tensor::Tensor& indices, const tensor::Tensor& values,
                    int64_t local_step);
  /// The mean or sum of all that were added, once at least `count` were; the next step begins then.
  /// A dense result is one tensor, a sparse one (indices, ascending; values), where the mean of a
  /// row is over those who had it. kInvalidArgument unless `count` is positive.
  Result<std::unique_ptr<Ticket>> take(int64_t count);

  /// Gradients that were added since the last take().
  [[nodiscard]] int64_t num_accumulated() const;
  /// Makes `step` the current one; gradients of steps before are dropped from now on.
  void set_global_step(int64_t step);
  [[nodiscard]] int64_t global_step() const;
  /// "accumulator 'a' (1 gradient of step 3)", for who waits.
  [[nodiscard]] std::string describe() const;

  void cancel() override;
  bool poll(const Request& request) override;
  void withdraw(const RequestPtr& request) override;

 private:
  struct Row {
    std::vector<double> sum;
    int64_t count = 0;
  };

  explicit Accumulator(AccumulatorDef def) : def_(std::move(def)) {}

  void serve();
  [[nodiscard]] Tuple give_out();
  [[nodiscard]] Tuple give_out_rows();

  const AccumulatorDef def_;
  mutable std::mutex mutex_;
  int64_t step_ = 0;
  int64_t count_ = 0;
  tensor::Shape shape_;          // Of what was added in this step.
  std::vector<double> sum_;      // Dense.
  std::map<int64_t, Row> rows_;  // Sparse.
  std::deque<RequestPtr> taking_;
};

}  // namespace sidereal::resources
