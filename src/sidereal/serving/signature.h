#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/serving/batcher.h"
#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/shape.h"

namespace sidereal::serving {

/// An input. Extents that are open are -1.
struct Input {
  std::string name;
  tensor::DType dtype = tensor::DType::kInvalid;
  tensor::Shape shape;
};

/// What a version computes under a name.
struct Signature {
  std::string name;
  std::vector<Input> inputs;
  std::vector<std::string> outputs;
  std::shared_ptr<Batcher> batcher;
};

/// The version of a model that is served. Immutable.
struct Version {
  std::string model;
  int64_t number = 0;
  std::vector<std::string> labels;
  std::vector<Signature> signatures;
};

}  // namespace sidereal::serving
