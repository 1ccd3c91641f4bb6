#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/resources/manager.h"
#include "sidereal/resources/waiters.h"

namespace sidereal::resources {

/// What an accumulator gives out of what was added.
enum class Reduction : uint8_t {
  kMean,       ///< The mean; of a row that over the gradients that had it.
  kSum,        ///< The sum.
  kMeanOfAll,  ///< The mean, of a row too over all gradients: those without it had zeros there.
};

/// What is known of an accumulator when it is made. Value type.
struct AccumulatorDef {
  std::string name = {};
  tensor::DType dtype = tensor::DType::kFloat32;  ///< float32 or float64.
  tensor::Shape shape = {};                       ///< Of a gradient; unknown extents fit any.
  Reduction reduction = Reduction::kMean;
  bool sparse = false;  ///< Gradients are rows along dimension 0.
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

  /// Adds a gradient of `local_step`, or drops it when that step is over. A closure that may be run
  /// again (`closure.client`) gives one: another one of it is dropped, unless restart() has
  /// forgotten the first. kInvalidArgument when it is of another dtype or shape.
  Status apply(const tensor::Tensor& grad, int64_t local_step, const ClosureKey& closure = {});
  /// As apply(), for the rows `indices` (int64, may repeat) with the values `values` [n, row...].
  Status apply_rows(const tensor::Tensor& indices, const tensor::Tensor& values, int64_t local_step,
                    const ClosureKey& closure = {});
  /// What the reduction makes of all that were added, once at least `count` were, or as many as
  /// come in a step if these are fewer, and one at least; the next step begins then. A dense result
  /// is one tensor, a sparse one (indices, ascending; values). kInvalidArgument unless `count` is
  /// positive. The ticket says kOutOfRange when all contributors have left and nothing was added.
  Result<std::unique_ptr<Ticket>> take(int64_t count);
  /// As take(), of what there is: zeros, or no rows, when nothing was added.
  /// kFailedPrecondition when nothing was, and the shape of a gradient is not known.
  Result<Tuple> take_now();
  /// Waits until the current step is later than `step`. The result is the current step, int64 [].
  Result<std::unique_ptr<Ticket>> await_step(int64_t step);

  /// Begins anew: what was added is forgotten, what waits ends with kAborted, `step` is the current
  /// step, and `contributors` give one gradient each in every step. kInvalidArgument unless
  /// `contributors` is positive.
  Status restart(int64_t step, int64_t contributors);
  /// So many contributors give nothing any more, and are not waited for. kInvalidArgument unless
  /// there are as many.
  Status leave(int64_t count);

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

  [[nodiscard]] bool is_given(const ClosureKey& closure);
  void note_given(const ClosureKey& closure);
  void serve();
  void serve_awaiting();
  [[nodiscard]] Tuple end_step();
  static void end_all(std::deque<RequestPtr>* requests, const Status& why);
  [[nodiscard]] double divisor(int64_t having) const;
  [[nodiscard]] Tuple give_out();
  [[nodiscard]] Tuple give_out_rows();

  const AccumulatorDef def_;
  mutable std::mutex mutex_;
  int64_t step_ = 0;
  int64_t count_ = 0;
  int64_t contributors_ = std::numeric_limits<int64_t>::max();
  tensor::Shape shape_;          // Of what was added in this step.
  std::vector<double> sum_;      // Dense.
  std::map<int64_t, Row> rows_;  // Sparse.
  // What closures of one client have given: in this step, and, by place, the latest that was taken.
  uint64_t client_ = 0;
  absl::flat_hash_set<uint64_t> given_;
  absl::flat_hash_map<uint64_t, uint64_t> taken_;
  std::deque<RequestPtr> taking_;
  std::deque<RequestPtr> awaiting_;  // Of each, `count` is the step that must be over.
};

}  // namespace sidereal::resources
