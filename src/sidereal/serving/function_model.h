#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sidereal/eager/local_function.h"
#include "sidereal/serving/batcher.h"

namespace sidereal::serving {

/// A function and the values that it uses beside its inputs, on an engine of its own. Nothing of it
/// is Python's, or anybody else's. Thread: as Model.
class FunctionModel final : public Model {
 public:
  /// The first of the function's inputs are the model's, the others `captures`; of its outputs
  /// there are as many as the model has, in their order.
  /// Errors: kFailedPrecondition for a function that does more than to compute, which belongs to
  /// the program that made it; those of compiling it.
  static Result<std::unique_ptr<FunctionModel>> create(const eager::FunctionDef& def,
                                                       std::vector<Tensor> captures,
                                                       int intra_op_threads);

  Result<Columns> call(const Columns& columns) override;

 private:
  FunctionModel(const eager::FunctionDef& def, std::vector<Tensor> captures, int threads);

  eager::Engine engine_;
  std::shared_ptr<eager::LocalFunction> function_;
  std::vector<eager::Value> captures_;
};

}  // namespace sidereal::serving
