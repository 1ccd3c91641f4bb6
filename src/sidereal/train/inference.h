#pragma once

#include <string_view>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/train/placed_model.h"
#include "sidereal/train/trainer.h"

/// Passes of a placed model through data, which change nothing of it. Internal to train.
/// Thread: core-local (blocking calls).
namespace sidereal::train {

/// As Trainer::evaluate().
Result<EvalResult> evaluate(app::Cluster* cluster, PlacedModel* placed, const data::DataSpec& data,
                            const FitOptions& options);
/// As Trainer::predict().
Result<tensor::Tensor> predict(app::Cluster* cluster, PlacedModel* placed,
                               const data::DataSpec& data, const FitOptions& options);

/// What is told when `data` had no row to `use`.
Status no_rows(const data::DataSpec& data, std::string_view use);

}  // namespace sidereal::train
