#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/data/data_spec.h"
#include "sidereal/ir/graph.h"
#include "sidereal/train/model.h"
#include "sidereal/train/objective.h"
#include "sidereal/train/optimizers.h"

namespace sidereal::train {

/// Which click model to build, and for what data. Value type.
struct ModelOptions {
  /// lr      logistic regression.
  /// fm      lr and a factorization machine over the embeddings (Rendle, 2010).
  /// wdl     lr and an Mlp over embeddings and numbers (Cheng et al., "Wide & Deep", 2016).
  /// deepfm  fm and wdl with shared embeddings (Guo et al., "DeepFM", 2017).
  /// dcn     a cross network beside an Mlp (Wang et al., "Deep & Cross Network", 2017).
  /// mmoe    several labels that share experts, mixed for each, with a tower each (Ma et al.,
  ///         "Modeling Task Relationships ... with Multi-gate Mixture-of-Experts", 2018).
  std::string kind = "deepfm";
  data::Schema schema;  ///< Of the training data; says which inputs there are.
  int64_t embedding_dim = 16;
  double embedding_stddev = 0.01;  ///< Embeddings start normally distributed around 0.
  std::vector<int64_t> hidden = {400, 400, 400};  ///< Units of the Mlp's layers (relu).
  double dropout = 0;                             ///< After each layer of the Mlp.
  int64_t cross_layers = 3;
  Objective objective = {};
  int64_t experts = 4;  ///< mmoe: their number; each has the first of `hidden` as units.
  OptimizerDef optimizer = optimizer_of("adam");
  uint64_t seed = 0;        ///< Of initial values and dropout.
  double l2_embedding = 0;  ///< L2 penalty on embedding rows read.
  double l2_linear = 0;     ///< On weights of the linear part.
  double l2_dense = 0;      ///< On kernels of the Mlp and the cross network.
  /// The learning rate of step n of the first so many, from 0, is (n + 1) / warmup_steps of the
  /// optimizer's.
  int64_t warmup_steps = 0;
};

/// "lr", "fm", "wdl", "deepfm", "dcn", "mmoe".
std::vector<std::string> model_names();

/// Builds and compiles a model. Its inputs, as far as the schema has them: "ids" int64 [b, fields],
/// "dense" float32 [b, dense_width], "weights" float32 like ids (then ids may differ in number from
/// batch to batch, and the Mlp sees the weighted sum of the embeddings), "sample_weight" float32
/// [b], those of sequences int64 [b, length], which count as a field that is the sum of its rows,
/// "label" and Schema::targets, more labels, float32 [b]. Numbers enter the linear part, the Mlp
/// and the cross network, not the factorization machine. kInvalidArgument for options or a schema
/// no model can be made of.
Result<CompiledModel> build_model(const ModelOptions& options);

}  // namespace sidereal::train
