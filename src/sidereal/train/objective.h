#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/data/data_spec.h"
#include "sidereal/train/model.h"

namespace sidereal::train {

/// What is minimized, by its name in Keras: "binary_crossentropy", "mse",
/// "sparse_categorical_crossentropy", or "pairwise_logistic" (for each two rows of a group of which
/// the first has the higher label, log(1 + exp(score of the second - score of the first)); without
/// groups each batch is one). Means over the rows, or pairs, of which each counts by its weight
/// ("sample_weight"; of pairs that of the first).
std::vector<std::string> loss_names();

/// Value type.
struct Objective {
  std::string loss = "binary_crossentropy";
  /// Of sparse_categorical_crossentropy: labels are below it.
  int64_t classes = 0;
  friend bool operator==(const Objective&, const Objective&) = default;
};

/// kInvalidArgument for a loss that there is not, or classes that do not go with it, or with data
/// of that schema: groups are of pairs of rows, and negatives of no classes.
Status check_objective(const Objective& objective, const data::Schema& schema);

/// The logits of each label that there is: outputs [b, n].
int64_t units_of(const Objective& objective);

/// Finishes a model whose logits [b, units] of labels, "label" and then Schema::targets, are given.
/// It predicts a probability [b], a number or score [b], or probabilities [b, classes]; of several
/// labels these beside each other. The loss is the sum of those of all labels.
Result<CompiledModel> compile_objective(Model* model, const Objective& objective,
                                        const data::Schema& schema,
                                        const std::vector<ir::Output>& logits,
                                        const OptimizerDef& optimizer);

}  // namespace sidereal::train
