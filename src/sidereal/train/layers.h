#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/train/model.h"

/// Layers: each is a value that says what to build, and a call that adds it to a model:
///
///     Output x = Dense{.units = 10, .activation = "relu"}(model, features);
///
/// A layer without a name gets one of its own ("dense", "dense_1", ...); variables are called after
/// their layer ("mlp/0/kernel"). Errors stick in the model's builder and come out of
/// Model::compile(). Names and defaults follow tf.keras.layers where one exists there.
namespace sidereal::train {

using ir::Output;

/// Normal with mean 0; `stddev` is large enough by default that no value is a denormal number.
Initializer normal_initializer(double stddev = 0.01);
/// As named in Glorot and Bengio, 2010; what Keras starts kernels with.
Initializer glorot_uniform_initializer();
/// All zeros.
Initializer zeros_initializer();

/// `x` through the activation of that name: linear (or ""), relu, sigmoid, tanh, softplus.
Output activate(Model& model, Output x, std::string_view activation);

/// A table with one row per id, split over all ps lanes; only the rows of the ids in a batch are
/// read and updated. ids int64 [b, f] -> float32 [b, f, dim]. Id -1 is "none": a row of zeros.
/// Variable: <name>/table. As tf.keras.layers.Embedding.
struct Embedding {
  int64_t rows = 0;  ///< Every id is below this.
  int64_t dim = 0;
  Initializer initializer = normal_initializer();
  std::string name = {};
  double l2 = 0;  ///< L2 penalty on the rows read.
  Output operator()(Model& model, Output ids) const;
};

/// activation(x * kernel + bias). x float32 [b, n] -> [b, units].
/// Variables: <name>/kernel [n, units], <name>/bias [units]. As tf.keras.layers.Dense.
struct Dense {
  int64_t units = 0;
  std::string activation = {};  ///< See activate().
  bool use_bias = true;
  Initializer initializer = glorot_uniform_initializer();
  std::string name = {};
  double l2 = 0;  ///< L2 penalty on the kernel.
  Output operator()(Model& model, Output x) const;
};

/// A trained vector added to the last dimension of x; starts at zero. Variable: <name>/bias.
struct Bias {
  std::string name = {};
  Output operator()(Model& model, Output x) const;
};

/// Sets a share `rate` of the elements to zero while training and scales the others by
/// 1 / (1 - rate). Rate 0 adds nothing. As tf.keras.layers.Dropout.
struct Dropout {
  double rate = 0;  ///< In [0, 1).
  Output operator()(Model& model, Output x) const;
};

/// Dense layers one after the other, each followed by dropout. x [b, n] -> [b, hidden.back()].
/// Variables: <name>/0/kernel, <name>/0/bias, <name>/1/kernel, ...
struct Mlp {
  std::vector<int64_t> hidden = {};
  std::string activation = "relu";
  double dropout = 0;
  std::string name = {};
  double l2 = 0;  ///< L2 penalty on the kernels.
  Output operator()(Model& model, Output x) const;
};

/// All dimensions but the first in one. x [b, n, m] -> [b, n * m]. Extents but the first must be
/// known.
struct Flatten {
  Output operator()(Model& model, Output x) const;
};

/// The inputs beside each other along `axis`. One input is returned as it is.
struct Concatenate {
  int64_t axis = -1;
  Output operator()(Model& model, const std::vector<Output>& inputs) const;
};

/// The sum of all inputs, which have one shape. One input is returned as it is.
struct Add {
  Output operator()(Model& model, const std::vector<Output>& inputs) const;
};

/// Each row of x times its weight. x [b, f, d], weights [b, f] -> [b, f, d].
struct Weighted {
  Output operator()(Model& model, Output x, Output weights) const;
};

/// The sum over fields, with weights if given (a bag of embeddings).
/// x [b, f, d], weights [b, f] -> [b, d]. As tf.nn.embedding_lookup_sparse with combiner "sum".
struct WeightedSum {
  Output operator()(Model& model, Output x, Output weights = {}) const;
};

/// The sum of the inner products of all pairs of fields. x [b, f, d] -> [b, 1].
/// Source: Rendle, "Factorization Machines", 2010, equation 5.
struct FactorizationMachine {
  Output operator()(Model& model, Output x) const;
};

/// x[l+1] = x[0] * (x[l] . kernel[l]) + bias[l] + x[l]. x [b, n] -> [b, n].
/// Variables: <name>/0/kernel [n, 1], <name>/0/bias [n], <name>/1/kernel, ...
/// Source: Wang et al., "Deep & Cross Network for Ad Click Predictions", 2017.
struct CrossNetwork {
  int64_t layers = 3;
  std::string name = {};
  double l2 = 0;  ///< L2 penalty on the kernels.
  Output operator()(Model& model, Output x) const;
};

}  // namespace sidereal::train
