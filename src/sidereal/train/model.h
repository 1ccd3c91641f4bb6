#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/builder.h"
#include "sidereal/train/trainer.h"

namespace sidereal::train {

/// A model under construction: its graph, and layers that add to it (see layers.h). Errors stick in
/// the builder and come out of compile().
/// Thread: core-local.
class Model {
 public:
  explicit Model(uint64_t seed = 0);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// A value fed per row of a batch: `shape` without the batch dimension; -1 for an extent that
  /// differs from batch to batch.
  ir::Output input(const std::string& name, ir::DType dtype, const ir::Shape& shape);
  [[nodiscard]] ir::Builder& builder() { return builder_; }
  /// A seed for the next initializer or dropout, different each time, the same in every run.
  uint64_t next_seed();
  /// A name for a layer that was given none: `kind`, then kind_1, kind_2, ...
  std::string layer_name(const std::string& kind);

  /// Finishes: sigmoid cross entropy of `logit` ([batch, 1] or [batch]) against the input "label"
  /// (float32 [batch]), gradients, and updates by `optimizer`. A model compiles once.
  Result<CompiledModel> compile(ir::Output logit, const ir::OptimizerDef& optimizer);

 private:
  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder builder_;
  uint64_t seed_;
  uint64_t seeds_given_ = 0;
  std::vector<std::string> inputs_;
  std::map<std::string, int64_t> layer_names_;
  bool compiled_ = false;
};

}  // namespace sidereal::train
