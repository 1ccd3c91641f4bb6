#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/kernels/initializer.h"
#include "sidereal/kernels/optimizer_rules.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::store {

using kernels::Initializer;
using kernels::UpdateRule;

/// What a dense variable is made from.
struct DenseOptions {
  std::string name;
  tensor::Shape shape;
  UpdateRule rule;
  Initializer initializer;
  /// Weights and slots together may take this many bytes.
  size_t bytes_max = size_t{1} << 40;
  /// Buffers of versions nobody holds any more that are kept for the next apply.
  int spare_versions_max = 4;
};

/// A float32 variable of fixed shape with its optimizer slots, on one lane.
///
/// read() hands out the current version without a copy. A version somebody still holds never
/// changes: apply() then writes a new version beside it. Buffers of released versions are used
/// again, so with a bounded number of readers nothing is allocated in the long run.
/// Thread: core-local. A Tensor from read() may be read and dropped on any thread.
class DenseVariable {
 public:
  /// Allocates and initialises. kInvalidArgument for a bad initializer or shape;
  /// kResourceExhausted past bytes_max or when the machine has no such memory.
  static Result<std::unique_ptr<DenseVariable>> create(DenseOptions options);

  DenseVariable(const DenseVariable&) = delete;
  DenseVariable& operator=(const DenseVariable&) = delete;

  /// The current version, shared. Never changes while the caller holds it.
  [[nodiscard]] const tensor::Tensor& read() const { return current_; }
  /// One step of the update rule. kInvalidArgument unless `grad` is float32 of this shape;
  /// kResourceExhausted when all versions are held and there is no memory for one more.
  Status apply(const tensor::Tensor& grad);
  /// Replaces the weights; the slots and the step count stay. kInvalidArgument as in apply().
  Status assign(const tensor::Tensor& value);
  /// Optimizer slot `i` in [0, rule().num_slots()), a copy.
  [[nodiscard]] tensor::Tensor read_slot(int i) const;
  /// Replaces slot `i`. kInvalidArgument as in apply(), or for a slot that is not there.
  Status assign_slot(int i, const tensor::Tensor& value);

  /// Later applies use `factor` times the learning rate given to create(); finite and >= 0.
  void scale_learning_rate(double factor) { rate_factor_ = factor; }
  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] const tensor::Shape& shape() const { return options_.shape; }
  [[nodiscard]] const UpdateRule& rule() const { return options_.rule; }
  /// Number of applies so far, the t of Adam.
  [[nodiscard]] int64_t applies() const { return applies_; }
  /// For restoring a checkpoint.
  void set_applies(int64_t applies) { applies_ = applies; }
  /// Bytes of the current weights and the slots, without old versions and spares.
  [[nodiscard]] size_t bytes() const;
  /// Times apply() or assign() had to leave a held version behind.
  [[nodiscard]] int64_t versions_made() const { return versions_made_; }

 private:
  explicit DenseVariable(DenseOptions options) : options_(std::move(options)) {}

  Status check_like(const tensor::Tensor& t, const char* what) const;
  Result<tensor::Tensor> writable_version();
  void publish(tensor::Tensor next);

  DenseOptions options_;
  tensor::Tensor current_;
  std::vector<tensor::Tensor> slots_;
  std::vector<tensor::Tensor> older_;  // Past versions: free again once only we hold them.
  int64_t applies_ = 0;
  int64_t versions_made_ = 0;
  double rate_factor_ = 1;
};

}  // namespace sidereal::store
